// SPDX-License-Identifier: Apache-2.0

package control

import (
	"errors"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// role is the role of one of several balancers.
type role struct {
	mu      sync.Mutex
	holds   bool
	err     error
	changes chan struct{}
}

func (r *role) Holds() (bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.holds, r.err
}

func (r *role) Changes() <-chan struct{} { return r.changes }

func (r *role) become(holds bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.holds, r.err = holds, err
	signal(r.changes)
}

// shared is a controller of web whose VIP is its own while a role says so.
func shared(w *world, holds bool) (*Controller, *role) {
	r := &role{holds: holds, changes: make(chan struct{}, 1)}
	opt := w.controller(web).opt
	opt.Role = r
	return New(opt, parse(w.t, web)), r
}

// TestRole: the data plane is ready all the time, and the VIP comes and goes with the role.
func TestRole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		c, r := shared(w, false)
		stop := w.run(c)
		time.Sleep(time.Minute)
		w.expect(started[:2]...)
		r.become(true, nil)
		time.Sleep(settleDelay)
		w.expect("add 192.0.2.100", "announce 192.0.2.100 on eth9")
		w.expectLog("this balancer holds its VIPs")
		w.quiet()
		w.changeLink(func() { w.drop(netip.MustParseAddr("192.0.2.100")) })
		time.Sleep(settleDelay)
		w.expect("add 192.0.2.100", "announce 192.0.2.100 on eth9")
		w.quiet()
		r.become(false, nil)
		time.Sleep(settleDelay)
		w.expect("remove 192.0.2.100")
		w.mustReload(c, strings.ReplaceAll(web, "192.0.2.100", "192.0.2.101"))
		w.expect("watch 192.0.2.1 192.0.2.2", "apply web: web01=- web02=-", "watch 192.0.2.1 192.0.2.2")
		stop()
	})
}

// TestSourceLost: the role cannot be read; the VIP stays, backends are followed, and the source is
// asked again until it answers.
func TestSourceLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		c, r := shared(w, true)
		stop := w.run(c)
		w.quiet()
		r.become(false, errors.New("the peers do not answer"))
		w.found("192.0.2.1", 1)
		time.Sleep(settleDelay)
		w.expect("apply web: web01=1 web02=-")
		w.expectLog("ERROR", "the peers do not answer", "the state of the role at")
		expectProblems(t, c, "the peers do not answer")
		r.mu.Lock()
		r.err = nil // without a signal
		r.mu.Unlock()
		time.Sleep(2*retryFirst + settleDelay)
		w.expect("remove 192.0.2.100")
		stop()
	})
}

// slow is a data plane in which a change can be held.
type slow struct {
	*world
	held chan struct{}
}

func (s slow) Apply(state lb.State) error {
	<-s.held
	return s.world.Apply(state)
}

// TestStatusDuringApply: read-only requests are answered while a change is being applied.
func TestStatusDuringApply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.found("192.0.2.1", 1)
		w.found("192.0.2.2", 2)
		c := w.controller(web)
		held := make(chan struct{}, 1)
		held <- struct{}{}
		c.opt.DataPlane = slow{w, held}
		stop := w.run(c)
		w.quiet()
		result := w.reload(c, web+shop)
		time.Sleep(resolveBound) // now it waits in Apply
		status, err := c.Status()
		if err != nil || len(status.Services) != 1 {
			t.Errorf("status: %d services, %v; want the one of before", len(status.Services), err)
		}
		if _, err := c.Operations(); err != nil {
			t.Error(err)
		}
		held <- struct{}{}
		if err := finished(t, result); err != nil {
			t.Fatal(err)
		}
		if status, err := c.Status(); err != nil || len(status.Services) != 2 {
			t.Errorf("status: %d services, %v; want both", len(status.Services), err)
		}
		stop()
	})
}
