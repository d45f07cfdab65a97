// SPDX-License-Identifier: Apache-2.0

package control

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/control/vips"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
)

// ballot is a role that is voted on; keeping has the VIPs held, and not announced.
type ballot struct {
	role
	keeping bool
	again   uint64
	wanted  ops.Election
}

func (b *ballot) HoldingUndecided() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.keeping
}
func (b *ballot) SetDesired(wanted ops.Election) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.wanted = wanted
}
func (b *ballot) FillStatus(*ops.VRRP) {}
func (b *ballot) Announcements() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.again
}

// announce has the VIPs announced again.
func (b *ballot) announce() {
	b.mu.Lock()
	b.again++
	b.mu.Unlock()
	signal(b.changes)
}

func (b *ballot) settle() {
	b.mu.Lock()
	b.keeping = false
	b.mu.Unlock()
	signal(b.changes)
}

// votes is a controller whose VIPs are shared by VRRP, and which holds them.
func votes(w *world, file string, keeping bool) (*Controller, *ballot) {
	b := &ballot{role: role{holds: true, changes: make(chan struct{}, 1)}, keeping: keeping}
	opt := w.controller(file).opt
	opt.Election, opt.TakesOver = b, keeping
	return New(opt, parse(w.t, file)), b
}

const voted = "vrrp: {id: 51}\n" + web

// renewals counts and forgets the noted steps, all of which must be renewals for a time.
func (w *world) renewals(of string) (n int) {
	w.t.Helper()
	synctest.Wait()
	for _, line := range w.done() {
		if line != of {
			w.t.Errorf("%q was done, not %q", line, of)
		}
		n++
	}
	return n
}

// TestSharedAddressesAreRenewed: addresses that are shared stay without the process for a while only, and are renewed
// for as long as they are held; a configuration that shares them no more leaves them there permanently.
func TestSharedAddressesAreRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		c, b := votes(w, voted, false)
		stop := w.run(c)
		w.quiet()
		time.Sleep(20 * time.Second)
		if n := w.renewals("renew 192.0.2.100 for 6s"); n < 9 || n > 11 {
			t.Errorf("in 20 s the address was renewed %d times", n)
		}
		w.mustReload(c, strings.Replace(voted, "51", "51, interval: 4s", 1))
		w.quiet()
		time.Sleep(10 * time.Second)
		if n := w.renewals("renew 192.0.2.100 for 17s"); n < 4 {
			t.Errorf("in 10 s the address was renewed %d times", n)
		}
		b.become(false, nil)
		w.quiet()
		time.Sleep(10 * time.Second)
		w.expect()
		b.become(true, nil)
		w.quiet()
		time.Sleep(10 * time.Second)
		if n := w.renewals("renew 192.0.2.100 for 17s"); n < 4 {
			t.Errorf("in 10 s the address was renewed %d times", n)
		}
		w.mustReload(c, web)
		w.quiet()
		time.Sleep(10 * time.Second)
		w.expect()
		if err := stop(); err != nil {
			t.Fatal(err)
		}
	})
}

// TestElectionWaits: a balancer that goes on with a data plane takes no part in the election before it knows the flows
// of others, and has answers that bear out its old verdicts, where another one has taken the VIPs meanwhile; where it
// holds them still, it goes on.
func TestElectionWaits(t *testing.T) {
	for _, holds := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w, joined := newWorld(t), make(chan struct{}, 1)
			c, asked := watched(w, "vrrp: {id: 51}\n"+checkedWeb)
			b := &ballot{role: role{holds: holds, changes: make(chan struct{}, 1)}, keeping: holds}
			c.opt.Election, c.opt.Joined, c.opt.TakesOver = b, joined, true
			c = New(c.opt, c.view.Config)
			asked.starts(c, lb.Verdict{State: lb.Healthy, Weight: 100, Unconfirmed: true})
			stop := w.run(c)
			out := func(when, want string) {
				t.Helper()
				time.Sleep(2 * settleDelay)
				synctest.Wait()
				b.mu.Lock()
				defer b.mu.Unlock()
				if b.wanted.Out != want {
					t.Errorf("%s, it is out of the election because %q, want %q", when, b.wanted.Out, want)
				}
			}
			if holds {
				out("holding the VIPs", "")
			} else {
				out("at first", awaitsFlows)
				joined <- struct{}{}
				out("with the flows of others", awaitsVerdicts)
				asked.say(t, c, healthy(), "web01", "web02")
				out("with answers", "")
			}
			if err := stop(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestAnnouncedAgain: VIPs are announced again when the election says so, at once and a few times more, at most once a
// second, however often it says so; not by a balancer that does not hold them.
func TestAnnouncedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		c, b := votes(w, voted, false)
		stop := w.run(c)
		w.quiet()
		announced := func(during time.Duration) (n int) {
			time.Sleep(during)
			synctest.Wait()
			for _, line := range w.done() {
				if line == "announce 192.0.2.100 on eth9" {
					n++
				}
			}
			return n
		}
		if n := announced(time.Minute); n != 0 {
			t.Errorf("announced %d times without a reason", n)
		}
		b.announce()
		if n := announced(settleDelay); n != 1 {
			t.Errorf("announced %d times at once", n)
		}
		if n := announced(time.Minute); n != len(vips.AnnounceAt)-1 {
			t.Errorf("announced %d times more within a minute", n)
		}
		n := 0
		for range 100 {
			b.announce()
			n += announced(100 * time.Millisecond)
		}
		if n < 10 || n > 11 {
			t.Errorf("announced %d times in ten seconds of asking ten times a second", n)
		}
		b.become(false, nil)
		w.quiet()
		b.announce()
		if n := announced(time.Minute); n != 0 {
			t.Errorf("the backup has announced %d times", n)
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
	})
}

// TestKeptAddressesAreQuiet: addresses that a killed process left are held, and announced only once they are known to
// be this balancer's.
func TestKeptAddressesAreQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, holds := range []bool{true, false} {
			w := newWorld(t)
			c, b := votes(w, voted, true)
			stop := w.run(c)
			w.expect("watch 192.0.2.1 192.0.2.2", "apply web: web01=- web02=-", "add 192.0.2.100",
				"renew 192.0.2.100 for 6s")
			time.Sleep(time.Second)
			w.expect()
			b.mu.Lock()
			b.holds = holds
			b.mu.Unlock()
			b.settle()
			time.Sleep(settleDelay)
			if holds {
				w.expect("announce 192.0.2.100 on eth9")
			} else {
				w.expect("remove 192.0.2.100")
			}
			if err := stop(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// bystander is a data plane that notes whether it is to leave packets for the VIPs to the kernel.
type bystander struct{ *world }

func (b bystander) Standby(on bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.note("standby %t", on)
}

// TestBackupBalancesForAWhile: packets for the VIPs are balanced before these are held, and after another balancer has
// taken them for as long as that one announces it; from the start, a backup balances none, unless the previous process
// has left a data plane that packets may come to.
func TestBackupBalancesForAWhile(t *testing.T) {
	for _, takesOver := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			c, b := votes(w, voted, false)
			b.holds = false
			c.opt.DataPlane, c.opt.TakesOver = bystander{w}, takesOver
			c = New(c.opt, c.view.Config)
			changed := func(d time.Duration, when string, want ...string) {
				t.Helper()
				time.Sleep(d)
				synctest.Wait()
				var some []string
				for _, line := range w.done() {
					if what, _, _ := strings.Cut(line, " "); what == "standby" || what == "add" || what == "remove" {
						some = append(some, line)
					}
				}
				if !slices.Equal(some, want) {
					t.Errorf("left by another process: %t; %s: %q, want %q", takesOver, when, some, want)
				}
			}
			stop := w.run(c)
			if takesOver {
				changed(standbyDelay-time.Second, "within the time", []string(nil)...)
				changed(2*time.Second, "after it", "standby true")
			} else {
				changed(time.Second, "from the start", "standby true")
			}
			b.become(true, nil)
			changed(10*time.Minute, "active", "standby false", "add 192.0.2.100")
			b.become(false, nil)
			changed(standbyDelay-time.Second, "within the time after the role has gone", "remove 192.0.2.100")
			b.become(true, nil)
			changed(time.Hour, "active again", "standby false", "add 192.0.2.100")
			b.become(false, nil)
			changed(standbyDelay+time.Second, "after the time", "remove 192.0.2.100", "standby true")
			w.mustReload(c, strings.Replace(voted, "id: 51", "id: 51, priority: 120", 1))
			changed(time.Hour, "after a reload")
			if err := stop(); err != nil {
				t.Fatal(err)
			}
		})
	}
}
