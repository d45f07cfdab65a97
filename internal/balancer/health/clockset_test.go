// SPDX-License-Identifier: Apache-2.0

package health_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/balancer/health"
	"github.com/jeoul/jeoul/internal/balancer/health/checker"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/test/testenv"
)

// clockIsOurs says that the machine's clock may be set.
const clockIsOurs = "JEOUL_TEST_CLOCK"

// TestClockIsSetInVM is TestClockIsSet in a virtual machine, if JEOUL_TEST_VM is set.
func TestClockIsSetInVM(t *testing.T) {
	if os.Getenv("JEOUL_TEST_VM") == "" {
		t.Skip("JEOUL_TEST_VM is not set")
	}
	inVM(t, "TestClockIsSet")
}

// TestClockIsSet: when the wall clock is set, by hours to either side, checks go on as before, no verdict changes
// for it, and the next process takes over the verdicts.
func TestClockIsSet(t *testing.T) {
	if os.Getenv(clockIsOurs) == "" {
		t.Skip("this sets the machine's clock: JEOUL_TEST_VM=1, and TestClockIsSetInVM")
	}
	var web clockedWeb
	open := func() { web.open(t) }
	open()
	e := web.watched(t)
	testenv.Eventually(t, testenv.WaitLimit, "every backend is healthy", func() bool { return web.all(e, lb.Healthy) })
	e.Changed()
	for _, by := range []time.Duration{time.Hour, -2 * time.Hour, time.Hour} {
		t.Run(by.String(), func(t *testing.T) {
			setClock(t, by)
			asked := web.asked.Load()
			testenv.Eventually(t, testenv.WaitLimit, "checks go on",
				func() bool { return web.asked.Load() >= asked+10 })
			if changed := e.Changed(); len(changed) > 0 || !web.all(e, lb.Healthy) {
				t.Errorf("verdicts have changed: %v", changed)
			}
			web.server.Close()
			testenv.Eventually(t, testenv.WaitLimit, "every backend fails",
				func() bool { return web.all(e, lb.Failing) })
			saved := e.Save()
			setClock(t, by)
			next := web.watching(t)
			if err := next.Restore(saved, 0); err != nil {
				t.Fatal(err)
			}
			next.SetTargets(web.wanted())
			if !web.all(next, lb.Failing) {
				t.Errorf("the next process does not begin with the verdicts of this one: %v", next.Verdicts())
			}
			setClock(t, -by)
			open()
			testenv.Eventually(t, testenv.WaitLimit, "every backend is healthy", func() bool {
				return web.all(e, lb.Healthy)
			})
			e.Changed()
		})
	}
}

// setClock sets the machine's wall clock by so much.
func setClock(t *testing.T, by time.Duration) {
	t.Helper()
	to := unix.NsecToTimeval(time.Now().Add(by).UnixNano())
	if err := unix.Settimeofday(&to); err != nil {
		t.Fatal(err)
	}
}

// clockedWeb is a web server, and two backends that are asked of it: by TCP and by HTTP.
type clockedWeb struct {
	server *http.Server
	port   uint16
	asked  atomic.Int64
}

func (w *clockedWeb) ServeHTTP(http.ResponseWriter, *http.Request) { w.asked.Add(1) }

// open has the server listen, at the previous port.
func (w *clockedWeb) open(t *testing.T) {
	t.Helper()
	listener, err := net.Listen("tcp4", fmt.Sprintf("127.0.0.1:%d", w.port))
	if err != nil {
		t.Fatal(err)
	}
	w.port = uint16(listener.Addr().(*net.TCPAddr).Port)
	server := &http.Server{Handler: w}
	w.server = server
	t.Cleanup(func() { server.Close() })
	go server.Serve(listener)
}

func (w *clockedWeb) wanted() (all []health.Wanted) {
	service := lb.ServiceKey{VIP: netip.MustParseAddr("192.0.2.1"), Port: 80, Protocol: lb.TCP}
	for i, kind := range []lb.CheckType{lb.CheckTCP, lb.CheckHTTP} {
		check := lb.Check{Type: kind, Via: lb.ViaAddress, Port: w.port, Interval: time.Second, Timeout: time.Second,
			Rise: 2, Fall: 3}
		if kind == lb.CheckHTTP {
			check.HTTP = &lb.HTTPCheck{Method: http.MethodGet, Path: "/"}
		}
		all = append(all, health.Wanted{Checks: []lb.Check{check},
			Backend: lb.BackendKey{Service: service, Address: netip.MustParseAddr("127.0.0.1"), Port: uint16(1 + i)}})
	}
	return all
}

// watching returns an engine that is to watch the backends.
func (w *clockedWeb) watching(t *testing.T) *health.Engine {
	t.Helper()
	return health.New(health.Options{Checker: checker.New(nil), Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
}

// watched returns an engine that checks them.
func (w *clockedWeb) watched(t *testing.T) *health.Engine {
	t.Helper()
	e := w.watching(t)
	e.SetTargets(w.wanted())
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		e.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	return e
}

// all reports whether all backends are in a state.
func (w *clockedWeb) all(e *health.Engine, state lb.Health) bool {
	for _, wanted := range w.wanted() {
		if v, ok := e.Verdict(wanted.Backend); !ok || v.State != state {
			return false
		}
	}
	return true
}
