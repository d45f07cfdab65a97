// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// TestReloadIsInForce: once a reload has returned, no new connection is served by the configuration before, also where
// the worker that has it notices late that it is replaced, as on a busy host: its other thread accepts connections
// until then.
func TestReloadIsInForce(t *testing.T) {
	t.Parallel()
	r := newTestEngine(t)
	s := newService(t,
		lb.Proxy{Speaks: lb.SpeaksHTTP, Routes: []lb.Route{{Hosts: []string{"a.test"}, Backends: []string{"w1"}}}},
		newBackend(t, "w1"), newBackend(t, "w2"))
	d := desired(s)
	d.Engine.Threads = 2
	if err := r.Apply(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	late := stallThread(t, children(t, r.State().PID)[0].PID, unix.SIGUSR1)
	asked := make(chan error, 1)
	c := client(t, nil, s)
	c.Transport.(*http.Transport).DisableKeepAlives = true
	go func() {
		p := *s.Proxy
		// one more: servers change without a reload
		p.Routes = append([]lb.Route{{Hosts: []string{"*.test"}, Backends: []string{"w2"}}}, p.Routes...)
		d.Services[0].Proxy = &p
		err := r.Apply(t.Context(), d)
		for i := 0; i < 50 && err == nil; i++ {
			var text string
			if _, text, err = get(c, "http://a.test/"); err == nil && !strings.HasPrefix(text, "w2") {
				err = fmt.Errorf("request %d after the reload is answered by %q", i+1, text)
			}
		}
		asked <- err
	}()
	select {
	case <-late.held:
	case err := <-asked:
		t.Fatalf("the worker was not signalled that it is replaced: %v", err)
	}
	// As long as the requests of a reload that does not wait take, or a moment.
	var err error
	select {
	case err = <-asked:
		late.release()
	case <-time.After(time.Second):
		late.release()
		err = <-asked
	}
	if err != nil {
		t.Error(err)
	}
}

// stalledThread is a thread that gets a signal late.
type stalledThread struct {
	held      chan struct{} // closed once the signal has come
	on, ended chan struct{}
}

// release lets it have the signal.
func (h *stalledThread) release() {
	close(h.on)
	<-h.ended
}

// stallThread traces a process's first thread, and has it stand still from when it gets a signal until it is released.
func stallThread(t *testing.T, pid int, signal unix.Signal) *stalledThread {
	t.Helper()
	h := &stalledThread{held: make(chan struct{}), on: make(chan struct{}), ended: make(chan struct{})}
	seized := make(chan error)
	go func() {
		defer close(h.ended)
		runtime.LockOSThread() // which the kernel knows as the tracer, and which ends with it
		err := unix.PtraceSeize(pid)
		seized <- err
		for err == nil {
			var status unix.WaitStatus
			if _, err = unix.Wait4(pid, &status, unix.WALL, nil); err == unix.EINTR {
				err = nil
				continue
			}
			if err != nil || !status.Stopped() {
				return // it has ended
			}
			if status.StopSignal() == signal {
				close(h.held)
				<-h.on
				// With the signal, which unix.PtraceDetach does not give it.
				unix.RawSyscall6(unix.SYS_PTRACE, unix.PTRACE_DETACH, uintptr(pid), 0, uintptr(signal), 0, 0)
				return
			}
			err = unix.PtraceCont(pid, int(status.StopSignal()))
		}
	}()
	if err := <-seized; err != nil {
		t.Fatalf("tracing a worker of HAProxy's: %v", err)
	}
	return h
}
