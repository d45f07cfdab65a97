// SPDX-License-Identifier: Apache-2.0

package mapmem

import "runtime"

// weaklyOrdered: the processor may reorder reads and writes. Tests change it.
var weaklyOrdered = runtime.GOARCH != "amd64"

// Weak returns 1 where the processor may reorder reads and writes, and 0 elsewhere: `weak` of struct settings in
// bpf/balancer/types/settings.h.
func Weak() uint8 {
	if weaklyOrdered {
		return 1
	}
	return 0
}

// AssumeWeak makes Weak return 1 from now on, for tests of the programs that such machines load: the barriers cost
// instructions and change nothing else.
func AssumeWeak() { weaklyOrdered = true }
