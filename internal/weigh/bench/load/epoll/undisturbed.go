// SPDX-License-Identifier: Apache-2.0

package epoll

import (
	"runtime"
	"runtime/debug"
)

// Undisturbed locks a client to its thread and disables garbage collection until end is called: a collection would
// pause all requests (there is hardly any garbage), and with a single P the runtime's monitor takes it from the thread
// in each system call of more than 20 µs.
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
