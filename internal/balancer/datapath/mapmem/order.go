// SPDX-License-Identifier: Apache-2.0

package mapmem

import "runtime"

// weaklyOrdered: a processor may order reads and writes otherwise than the program does. Tests change it.
var weaklyOrdered = runtime.GOARCH != "amd64"

// Weak is 1 where a processor may order reads and writes otherwise than the program does, and 0 elsewhere: `weak` of
// struct settings in bpf/balancer/types.h.
func Weak() uint8 {
	if weaklyOrdered {
		return 1
	}
	return 0
}

// AssumeWeak has Weak return 1 from now on: for tests of the programs that such machines load. Their order costs
// instructions and changes nothing else.
func AssumeWeak() { weaklyOrdered = true }
