// SPDX-License-Identifier: Apache-2.0

package netns

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// OnOwnThread runs f in a new goroutine on an OS thread that ends with it, so that f may change the thread's namespaces
// permanently.
func OnOwnThread(f func()) {
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() != unix.Getpid() {
			f()
			return
		}
		// The main thread outlives its goroutines, so it would stay in the namespace, keep it alive, and show it as the
		// whole process's in /proc. Hold the main thread here until another goroutine has another thread.
		taken := make(chan struct{})
		go func() {
			runtime.LockOSThread()
			close(taken)
			f()
		}()
		<-taken
		runtime.UnlockOSThread()
	}()
}

// Keeper is an OS thread that lives inside a host's namespaces as long as the lab exists. Processes are started from
// it: their parent-death signal is bound to the thread that made them, so that thread must neither end early nor
// outlive the lab.
type Keeper struct {
	calls chan func()
	ended chan struct{}
}

// NewKeeper starts the thread and runs enter on it; an error of enter ends the thread.
func NewKeeper(enter func() error) (*Keeper, error) {
	k := &Keeper{calls: make(chan func()), ended: make(chan struct{})}
	entered := make(chan error, 1)
	OnOwnThread(func() {
		defer close(k.ended)
		err := enter()
		entered <- err
		if err != nil {
			return
		}
		for call := range k.calls {
			call()
		}
	})
	if err := <-entered; err != nil {
		return nil, err
	}
	return k, nil
}

// Do runs f on the thread. It must not be called after Stop.
func (k *Keeper) Do(f func() error) error {
	done := make(chan error, 1)
	k.calls <- func() { done <- f() }
	return <-done
}

// Stop ends the thread, which kills the processes that were started from it and still run.
func (k *Keeper) Stop() {
	close(k.calls)
	<-k.ended
}
