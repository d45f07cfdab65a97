// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"strconv"

	"github.com/jeoul/jeoul/internal/host/sysctl"
)

// readNumber reads a numeric sysctl. The error wraps fs.ErrNotExist if the kernel does not have it.
func readNumber(name string) (uint64, error) {
	text, err := sysctl.Read(name)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read %s: %q is not a number", name, text)
	}
	return n, nil
}
