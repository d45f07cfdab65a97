// SPDX-License-Identifier: Apache-2.0

package control

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
)

// announcer keeps the routes that routers are to have.
type announcer struct {
	w     *world
	found []netip.Addr
	last  ops.Routes
	asked int
}

func (a *announcer) PreviouslyAnnounced() []netip.Addr { return slices.Clone(a.found) }

func (a *announcer) SetDesired(r ops.Routes) {
	a.w.mu.Lock()
	defer a.w.mu.Unlock()
	a.last = r
	a.asked++
	a.w.note("routes %s", a.text())
}

func (a *announcer) WaitAnnounced(time.Duration) {}

func (a *announcer) FillStatus(to *ops.BGP) {
	to.SpeakerPID = 7
	to.Peers = []ops.BGPPeer{{Address: "192.0.2.254", ASN: 64513, State: "active", Reason: "it does not answer"}}
}

func (a *announcer) text() string {
	var text []string
	for _, vip := range a.last.VIPs {
		text = append(text, vip.String())
	}
	for _, address := range a.last.Pool {
		text = append(text, "own "+address.String())
	}
	for _, address := range a.last.Backup {
		text = append(text, "backup "+address.String())
	}
	if a.last.Draining {
		text = append(text, "draining")
	}
	if a.last.BGP.ASN == 0 {
		text = append(text, "no BGP")
	}
	return strings.Join(text, " ")
}

func (a *announcer) expect(t *testing.T, when, want string) {
	t.Helper()
	synctest.Wait()
	a.w.mu.Lock()
	defer a.w.mu.Unlock()
	if got := a.text(); got != want {
		t.Errorf("%s, routers are told of %q, expected %q", when, got, want)
	}
}

const announcedWeb = `
interface: eth9
bgp:
  asn: 64512
  router_id: 192.0.2.10
  drain_pause: 30s
  peers: [{address: 192.0.2.254, asn: 64513}]
services:
  - name: web
    vip: 192.0.2.100
    port: 80
    check: {type: tcp, via: address}
    announce_minimum: 2
    backends:
      - {name: web01, address: 192.0.2.1}
      - {name: web02, address: 192.0.2.2}
  - name: tls
    vip: 192.0.2.100
    port: 443
    check: {type: tcp, via: address}
    backends:
      - {name: tls03, address: 192.0.2.3}
  - name: hidden
    vip: 192.0.2.101
    port: 80
    announce: false
    backends:
      - {name: hd04, address: 192.0.2.4}
`

// runningRoutes is a controller that announces VIPs to routers.
func runningRoutes(t *testing.T, memory *noted, change func(*Controller, *announcer)) (w *world, c *Controller,
	asked *checks, told *announcer, stop func() error) {
	t.Helper()
	w = newWorld(t)
	c, asked = watched(w, announcedWeb)
	told = &announcer{w: w}
	c.opt.Routes, c.opt.Drained = told, memory
	if change != nil {
		change(c, told)
	}
	stop = w.run(c)
	w.quiet()
	return w, c, asked, told, stop
}

func TestVIPsAreAnnounced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c, asked, told, stop := runningRoutes(t, &noted{}, nil)
		told.expect(t, "at first", "192.0.2.100")
		status := statusOf(t, c)
		if v := status.BGP.VIPs; len(v) != 2 || !v[0].Announced || v[1].Announced ||
			v[1].Reason != "no service of it is to be announced" {
			t.Errorf("the status has VIPs %+v", v)
		}
		if !slices.Contains(status.Problems, "BGP peer 192.0.2.254 (AS 64513) has no session: it does not answer") {
			t.Errorf("the status has problems %q", status.Problems)
		}
		asked.say(t, c, failing("refuses connections"), "web02")
		time.Sleep(settleDelay)
		told.expect(t, "with one of two services that has its minimum", "192.0.2.100")
		// Failing backends are used for lack of others, and count for nothing.
		asked.say(t, c, failing("refuses connections"), "tls03")
		time.Sleep(settleDelay)
		told.expect(t, "with none", "")
		w.expectLog("WARN", "192.0.2.100 is withdrawn from routers: no service of it has enough backends that serve")
		asked.say(t, c, healthy(), "tls03")
		time.Sleep(settleDelay)
		told.expect(t, "with one again", "192.0.2.100")
		w.expectLog("INFO", "announced to routers: 192.0.2.100")

		// A VIP that goes is withdrawn before it is taken off the interface, and one that comes is announced last.
		w.done()
		w.mustReload(c, strings.ReplaceAll(announcedWeb, "192.0.2.100", "192.0.2.102"))
		did := w.done()
		at := func(what string) int { return slices.Index(did, what) }
		if at("routes ") < 0 || at("routes ") > at("add 192.0.2.102") ||
			at("routes 192.0.2.102") < at("add 192.0.2.102") {
			t.Errorf("for another VIP, it did %q", did)
		}
		without := strings.ReplaceAll(announcedWeb,
			announcedWeb[strings.Index(announcedWeb, "bgp:"):strings.Index(announcedWeb, "services:")], "")
		w.mustReload(c, without)
		told.expect(t, "without bgp", "no BGP")
		if statusOf(t, c).BGP != nil {
			t.Error("the status has BGP that is not configured")
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestBalancerIsDrained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := &noted{}
		_, c, _, told, stop := runningRoutes(t, memory, nil)
		drain := func(on bool) error {
			_, err := c.Drain(context.Background(), on, "kim")
			return err
		}
		if err := drain(false); !errors.Is(err, ops.ErrRefused) {
			t.Errorf("undrain what is not drained: %v", err)
		}
		if err := drain(true); err != nil {
			t.Fatal(err)
		}
		told.expect(t, "when drained", "192.0.2.100 draining")
		if d := statusOf(t, c).BGP.Drained; d == nil || d.By != "kim" || d.Withdrawn.Sub(d.At) != 30*time.Second {
			t.Errorf("the status has drained %+v", d)
		}
		if err := drain(true); !errors.Is(err, ops.ErrRefused) {
			t.Errorf("drain twice: %v", err)
		}
		time.Sleep(31 * time.Second)
		told.expect(t, "after the pause", "draining")
		if v := statusOf(t, c).BGP.VIPs[0]; v.Announced || v.Reason != "the balancer is drained" {
			t.Errorf("the status has %+v", v)
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		// The next process is drained, too.
		_, c, _, told, stop = runningRoutes(t, memory, nil)
		told.expect(t, "after a restart", "draining")
		if err := drain(false); err != nil {
			t.Fatal(err)
		}
		told.expect(t, "when undrained", "192.0.2.100")
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		_, _, _, told, stop = runningRoutes(t, memory, nil)
		told.expect(t, "after another restart", "192.0.2.100")
		if err := stop(); err != nil {
			t.Fatal(err)
		}
	})
}

// TestDrainPauseChanges: a reload that changes drain_pause moves the withdrawal of a drain in progress.
func TestDrainPauseChanges(t *testing.T) {
	for pause, moments := range map[string][]time.Duration{
		"2m":  {31 * time.Second, 121 * time.Second},
		"20s": {19 * time.Second, 21 * time.Second},
		"10s": {11 * time.Second, 12 * time.Second},
	} {
		t.Run(pause, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, c, _, told, stop := runningRoutes(t, &noted{}, nil)
				if _, err := c.Drain(t.Context(), true, "kim"); err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				time.Sleep(11 * time.Second)
				w.mustReload(c, strings.Replace(announcedWeb, "drain_pause: 30s", "drain_pause: "+pause, 1))
				for i, want := range []string{"192.0.2.100 draining", "draining"} {
					if pause == "10s" {
						want = "draining" // at once
					}
					time.Sleep(time.Until(began.Add(moments[i])))
					told.expect(t, "after "+moments[i].String(), want)
				}
				if err := stop(); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}

// TestTakeoverOfDrained: a drain does not prolong the time for which inherited routes are kept.
func TestTakeoverOfDrained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		c, _ := watched(w, announcedWeb)
		for _, last := range []string{"1", "2", "3", "4"} {
			w.found("192.0.2."+last, 0)
		}
		told := &announcer{w: w, found: []netip.Addr{netip.MustParseAddr("192.0.2.100")}}
		c.opt.Routes, c.opt.TakesOver, c.opt.Memory = told, true, &noted{}
		stop := w.run(c)
		if _, err := c.Drain(t.Context(), true, "kim"); err != nil {
			t.Fatal(err)
		}
		told.expect(t, "when drained", "192.0.2.100 draining")
		time.Sleep(takeoverHold + time.Second)
		told.expect(t, "without a backend that is found", "draining")
		if err := stop(); err != nil {
			t.Fatal(err)
		}
	})
}

// TestRoutesAreTakenOver: routes that the previous process announced are withdrawn only after there was time to find
// the backends again.
func TestRoutesAreTakenOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		c, _ := watched(w, announcedWeb)
		for _, last := range []string{"1", "2", "3", "4"} {
			w.found("192.0.2."+last, 0)
		}
		told := &announcer{w: w, found: []netip.Addr{netip.MustParseAddr("192.0.2.100"),
			netip.MustParseAddr("192.0.2.99")}}
		c.opt.Routes, c.opt.TakesOver, c.opt.Memory = told, true, &noted{}
		stop := w.run(c)
		told.expect(t, "at once", "192.0.2.100")
		time.Sleep(takeoverHold - time.Second)
		told.expect(t, "before it is trusted", "192.0.2.100")
		time.Sleep(2 * time.Second)
		told.expect(t, "without a backend that is found", "")
		if err := stop(); err != nil {
			t.Fatal(err)
		}
	})
}

// TestSpeakerIsEnded: a start without bgp ends the speaker that the previous process has left, whether its data plane
// is taken over or not, and whatever it announces.
func TestSpeakerIsEnded(t *testing.T) {
	before, rest, _ := strings.Cut(announcedWeb, "bgp:")
	_, services, _ := strings.Cut(rest, "services:")
	for _, takesOver := range []bool{false, true} {
		for _, found := range [][]netip.Addr{nil, {netip.MustParseAddr("192.0.2.100")}} {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				c, _ := watched(w, before+"services:"+strings.ReplaceAll(services, "    announce_minimum: 2\n", ""))
				told := &announcer{w: w, found: found}
				c.opt.Routes, c.opt.TakesOver, c.opt.Memory = told, takesOver, &noted{}
				stop := w.run(c)
				told.expect(t, "without bgp", "no BGP")
				if told.asked == 0 {
					t.Errorf("taken over: %v, announced: %v: the speaker stays", takesOver, found)
				}
				if err := stop(); err != nil {
					t.Fatal(err)
				}
			})
		}
	}
}

// TestRoutesWaitForFlows: a balancer that starts is announced once it knows which flows others remember; one that goes
// on with the data plane of the previous process at once, if routers send to it. If none knows of it, because the
// speaker has ended, too, others had its packets meanwhile; then its routers are sent nothing before, because they may
// have kept its routes.
func TestRoutesWaitForFlows(t *testing.T) {
	for name, test := range map[string]struct{ takesOver, found bool }{
		"a start": {}, "it goes on": {true, true}, "it goes on without a speaker": {true, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			joined := make(chan struct{}, 1)
			w, c, _, told, stop := runningRoutes(t, &noted{}, func(c *Controller, a *announcer) {
				if test.found {
					a.found = []netip.Addr{netip.MustParseAddr("192.0.2.100")}
				}
				c.opt.Joined, c.opt.TakesOver = joined, test.takesOver
				c.gate.awaitFlows()
			})
			if test.found {
				told.expect(t, name, "192.0.2.100")
			} else {
				text := ""
				if test.takesOver {
					w.mustReload(c, announcedWeb)
					time.Sleep(settleDelay)
					text = "no BGP"
				}
				told.expect(t, name+", before it knows the flows of others", text)
				if test.takesOver && told.asked != 0 {
					t.Errorf("%s: something was asked for before the flows of others are known", name)
				}
				if v := statusOf(t, c).BGP.VIPs[0]; v.Announced || v.Reason != awaitsFlows {
					t.Errorf("the status has %+v", v)
				}
				joined <- struct{}{}
				synctest.Wait()
				time.Sleep(settleDelay)
				told.expect(t, "with the flows of others", "192.0.2.100")
			}
			if err := stop(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestRoutesWaitForVerdicts: a balancer that starts beside others is announced once its checks have a verdict on each
// backend, by a table that no transition has begun for, or after some time; one that goes on with a data plane at once,
// if routers send to it. If no speaker announces it any more, it waits for answers that bear its old verdicts out, too.
func TestRoutesWaitForVerdicts(t *testing.T) {
	file := strings.Replace(announcedWeb, "    announce: false\n", "    check: {type: tcp, via: address}\n", 1)
	begin := func(t *testing.T, takesOver bool, found ...string) (*world, *Controller, *checks, *announcer,
		func() error) {
		w := newWorld(t)
		c, asked := watched(w, file)
		told := &announcer{w: w}
		for _, vip := range found {
			told.found = append(told.found, netip.MustParseAddr(vip))
		}
		if takesOver {
			asked.starts(c, lb.Verdict{State: lb.Healthy, Weight: 100, Unconfirmed: true})
		}
		c.opt.Routes, c.opt.TakesOver, c.opt.Drained = told, takesOver, &noted{}
		stop := w.run(c)
		synctest.Wait()
		return w, c, asked, told, stop
	}
	// awaitAnnounced expects that only before is announced until each backend has an answer.
	awaitAnnounced := func(t *testing.T, c *Controller, asked *checks, told *announcer, before string) {
		t.Helper()
		told.expect(t, "without answers", before)
		if v := statusOf(t, c).BGP.VIPs[0]; v.Announced || v.Reason != awaitsVerdicts {
			t.Errorf("the status has %+v", v)
		}
		asked.say(t, c, healthy(), "web01", "web02", "tls03")
		time.Sleep(2 * settleDelay)
		told.expect(t, "without one answer", before)
		asked.say(t, c, failing("refused"), "hd04")
		time.Sleep(2 * settleDelay)
		told.expect(t, "with all answers", "192.0.2.100")
	}
	fresh := func(w *world) bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.state.Fresh
	}
	for name, test := range map[string]func(t *testing.T){
		"with all verdicts": func(t *testing.T) {
			w, c, asked, told, stop := begin(t, false)
			awaitAnnounced(t, c, asked, told, "")
			if !fresh(w) {
				t.Error("the table before is one to go on from")
			}
			asked.say(t, c, healthy(), "hd04")
			time.Sleep(2 * settleDelay)
			told.expect(t, "with another verdict", "192.0.2.100 192.0.2.101")
			if fresh(w) {
				t.Error("a change while the VIPs are announced begins no transition")
			}
			if err := stop(); err != nil {
				t.Fatal(err)
			}
		},
		"with none in time": func(t *testing.T) {
			_, _, _, told, stop := begin(t, false)
			time.Sleep(verdictsBound - time.Second)
			told.expect(t, "without verdicts", "")
			time.Sleep(2 * time.Second)
			told.expect(t, "after some time", "192.0.2.100 192.0.2.101")
			if err := stop(); err != nil {
				t.Fatal(err)
			}
		},
		"going on": func(t *testing.T) {
			_, _, _, told, stop := begin(t, true, "192.0.2.100", "192.0.2.101")
			told.expect(t, "at once", "192.0.2.100 192.0.2.101")
			if err := stop(); err != nil {
				t.Fatal(err)
			}
		},
		"going on without a speaker": func(t *testing.T) {
			_, c, asked, told, stop := begin(t, true)
			awaitAnnounced(t, c, asked, told, "no BGP")
			if err := stop(); err != nil {
				t.Fatal(err)
			}
		},
		"going on without a speaker, and without answers in time": func(t *testing.T) {
			_, _, _, told, stop := begin(t, true)
			time.Sleep(verdictsBound - time.Second)
			told.expect(t, "by verdicts of the process before", "no BGP")
			time.Sleep(2 * time.Second)
			told.expect(t, "after some time", "192.0.2.100 192.0.2.101")
			if err := stop(); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
	}
}

// TestOthersRequestEarly: other balancers are asked to send flows early when a VIP is announced that was not, or a
// drain is over, and not when a process goes on with the announced routes.
func TestOthersRequestEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0 // by the controller's loop alone
		_, c, checks, told, stop := runningRoutes(t, &noted{}, func(c *Controller, a *announcer) {
			a.found = []netip.Addr{netip.MustParseAddr("192.0.2.100")}
			c.opt.TakesOver, c.opt.RequestEarly = true, func() { asked++ }
		})
		expect := func(when, vips string, want int) {
			t.Helper()
			time.Sleep(takeoverHold + time.Second)
			told.expect(t, when, vips)
			if asked != want {
				t.Errorf("%s, others were asked %d times, want %d", when, asked, want)
			}
		}
		expect("going on", "192.0.2.100", 0)
		checks.say(t, c, failing("refused"), "web01", "tls03")
		expect("without backends", "", 0)
		checks.say(t, c, healthy(), "web01", "tls03")
		expect("with backends again", "192.0.2.100", 1)
		for _, drain := range []bool{true, false} {
			if _, err := c.Drain(t.Context(), drain, "kim"); err != nil {
				t.Fatal(err)
			}
		}
		expect("after a drain", "192.0.2.100", 2)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
	})
}

// TestFirstTableIsWhole: a fresh balancer beside others forwards, and announces VIPs to routers, only when its backends
// are found or for so long not; one by itself serves with those that it has.
func TestFirstTableIsWhole(t *testing.T) {
	beside := strings.Replace(web, "services:",
		"bgp: {asn: 64512, router_id: 192.0.2.10, peers: [{address: 192.0.2.254, asn: 64513}]}\nservices:", 1)
	for name, tc := range map[string]struct {
		file   string
		second time.Duration // until web02 is found
		want   []string
		after  time.Duration
	}{
		"beside others": {beside, 2 * time.Second,
			[]string{"apply web: web01=1 web02=2", "add 192.0.2.100", "routes 192.0.2.100"}, 2 * time.Second},
		"with one that is not found": {beside, time.Hour,
			[]string{"apply web: web01=1 web02=-", "add 192.0.2.100", "routes 192.0.2.100"}, resolveBound},
		"alone": {web, time.Hour,
			[]string{"apply web: web01=- web02=-", "add 192.0.2.100", "routes no BGP"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, began := newWorld(t), time.Now()
				c := w.controller(tc.file)
				c.opt.Routes = &announcer{w: w}
				for addr, after := range map[string]time.Duration{"192.0.2.1": time.Second, "192.0.2.2": tc.second} {
					time.AfterFunc(after, func() { w.answer(addr) })
				}
				stop := w.run(c)
				if waited := time.Since(began); waited != tc.after {
					t.Errorf("it started after %v, expected %v", waited, tc.after)
				}
				synctest.Wait()
				// Announcements to neighbours come beside all else.
				did := slices.DeleteFunc(w.done(), func(one string) bool { return strings.HasPrefix(one, "announce") })
				if want := append([]string{"watch 192.0.2.1 192.0.2.2"}, tc.want...); !slices.Equal(did, want) {
					t.Errorf("did %q, expected %q", did, want)
				}
				if err := stop(); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}

// TestPoolIsAnnounced: all addresses of a divided pool are announced to routers, by each balancer that knows the flows
// there; a drain leaves them, and the interface has this balancer's own alone.
func TestPoolIsAnnounced(t *testing.T) {
	const divided = `
interface: eth9
bgp:
  asn: 64512
  router_id: 192.0.2.10
  drain_pause: 30s
  peers: [{address: 192.0.2.254, asn: 64513}]
members: {listen: "192.0.2.10:7946", peers: [192.0.2.10, 192.0.2.11], key_file: /etc/jeoul/members.key}
fullnat: {addresses: [{address: 192.0.2.201, member: 192.0.2.11}, {address: 192.0.2.202, member: 192.0.2.10}]}
services:
  - name: web
    vip: 192.0.2.100
    port: 80
    mode: fullnat
    backends:
      - {name: web01, address: 192.0.2.1}
`
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		c, _ := watched(w, divided)
		told, joined := &announcer{w: w}, make(chan struct{}, 1)
		c.opt.Routes, c.opt.Drained, c.opt.Joined = told, &noted{}, joined
		c.gate.awaitFlows()
		stop := w.run(c)
		w.quiet()
		told.expect(t, "before it knows the others' flows", "")
		joined <- struct{}{}
		synctest.Wait()
		time.Sleep(settleDelay)
		const pool = "own 192.0.2.202 backup 192.0.2.201"
		told.expect(t, "when it serves", "192.0.2.100 "+pool)
		w.mu.Lock()
		held := slices.Clone(c.vips.Addresses())
		w.mu.Unlock()
		if want := []netip.Addr{netip.MustParseAddr("192.0.2.100"),
			netip.MustParseAddr("192.0.2.202")}; !slices.Equal(held, want) {
			t.Errorf("the interface has %v, want %v", held, want)
		}
		if _, err := c.Drain(context.Background(), true, "a test"); err != nil {
			t.Fatal(err)
		}
		told.expect(t, "while it is drained", "192.0.2.100 "+pool+" draining")
		time.Sleep(31 * time.Second)
		told.expect(t, "when it is drained", pool+" draining")
		if err := stop(); err != nil {
			t.Fatal(err)
		}
	})
}
