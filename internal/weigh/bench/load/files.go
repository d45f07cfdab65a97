// SPDX-License-Identifier: Apache-2.0

package load

import (
	"errors"
	"os"
)

func removeIfThere(path string) error {
	if err := os.Remove(path); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
