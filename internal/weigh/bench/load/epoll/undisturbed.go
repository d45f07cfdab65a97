// SPDX-License-Identifier: Apache-2.0

package epoll

import (
	"runtime"
	"runtime/debug"
)

// Undisturbed ties a client to the calling thread and keeps the runtime out of its way
// until end is called: a collection would be a pause of all requests (there is next to no
// garbage), and with a single processor the runtime's monitor takes that from the thread
// whenever a system call is longer than 20 µs, and a fight for it follows.
func Undisturbed() (end func()) {
	runtime.LockOSThread()
	percent := debug.SetGCPercent(-1)
	processors := runtime.GOMAXPROCS(0)
	if processors < 2 {
		runtime.GOMAXPROCS(2)
	}
	return func() {
		if processors < 2 {
			runtime.GOMAXPROCS(processors)
		}
		debug.SetGCPercent(percent)
		runtime.UnlockOSThread()
	}
}
