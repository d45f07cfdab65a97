// SPDX-License-Identifier: Apache-2.0

package cmdkit

import (
	"fmt"
	"strings"
)

// Target is a backend as SERVICE/BACKEND.
type Target struct{ Service, Backend string }

// UnmarshalText accepts SERVICE/BACKEND.
func (t *Target) UnmarshalText(text []byte) error {
	service, backend, ok := strings.Cut(string(text), "/")
	if !ok || service == "" || backend == "" || strings.Contains(backend, "/") {
		return fmt.Errorf("%q is not SERVICE/BACKEND, such as web/web01; `jeoul status` lists them", text)
	}
	*t = Target{service, backend}
	return nil
}
