// SPDX-License-Identifier: Apache-2.0

package checker

import (
	"net"
	"testing"
)

// loopbacks returns this machine's own addresses of both families, with port 0: IPv4 alone where IPv6 is off.
func loopbacks(t *testing.T) []string {
	t.Helper()
	const four, six = "127.0.0.1:0", "[::1]:0"
	l, err := net.Listen("tcp", six)
	if err != nil {
		t.Logf("only IPv4 is tested: %v", err)
		return []string{four}
	}
	l.Close()
	return []string{four, six}
}
