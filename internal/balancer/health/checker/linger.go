// SPDX-License-Identifier: Apache-2.0

package checker

import (
	"io"
	"net"
	"time"
)

// Bounds of reading a connection to its end: in bytes, and in time.
const (
	lingerBytes = 64 << 10
	lingerTime  = 200 * time.Millisecond
)

// finish ends a connection without a reset, which a backend would log: whatever is still to come
// is read until the peer ends it too, beside whatever comes next, and within bounds.
func finish(c net.Conn) {
	if err := closeWrite(c); err != nil {
		c.Close()
		return
	}
	go func() {
		defer c.Close()
		if c.SetDeadline(time.Now().Add(lingerTime)) == nil {
			io.Copy(io.Discard, io.LimitReader(c, lingerBytes))
		}
	}()
}
