// SPDX-License-Identifier: Apache-2.0

package control

import (
	"context"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/host/clock"
)

// noted keeps operations as a file does.
type noted struct{ data []byte }

func (n *noted) Load() ([]byte, error) { return n.data, nil }
func (n *noted) Save(data []byte) error {
	n.data = slices.Clone(data)
	return nil
}

// follows is a controller that goes on where another has left.
func (w *world) follows(file string, memory *noted) *Controller {
	c := w.controller(file)
	c.opt.TakesOver, c.opt.Memory = true, memory
	return c
}

// TestTakeOver: a data plane that forwards gets its first state when the backends were looked for, with the operations
// on them, and the VIPs that are no more in the configuration go.
func TestTakeOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := &noted{}
		w := newWorld(t)
		w.found("192.0.2.1", 1)
		w.found("192.0.2.2", 2)
		first := w.controller(web)
		first.opt.Memory = memory
		stop := w.run(first)
		w.quiet()
		must(t, first, "drain web/web01 1h", "weight web/web02 7")
		if err := stop(); err != nil {
			t.Fatal(err)
		}

		w = newWorld(t)
		gone := netip.MustParsePrefix("192.0.2.77/32")
		w.changeLink(func() { w.links[0].Addresses = append(w.links[0].Addresses, gone) })
		next := w.follows(web, memory)
		go func() {
			time.Sleep(time.Second)
			w.found("192.0.2.1", 1)
			time.Sleep(time.Second)
			w.found("192.0.2.2", 2)
		}()
		stop = w.run(next)
		w.expect("watch 192.0.2.1 192.0.2.2", "apply web: web01=1~ web02=2*7", "add 192.0.2.100", "remove 192.0.2.77",
			"announce 192.0.2.100 on eth9")
		wantOperations(t, next, "web/web01 drain=true by kim deadline", "web/web02 weight=7 by kim")
		if err := stop(); err != nil {
			t.Fatal(err)
		}
	})
}

// TestOperationsEndWithDataPlane: operations of a process whose data plane the next one could not take over do not come
// back with the one after that.
func TestOperationsEndWithDataPlane(t *testing.T) {
	for name, damaged := range map[string]string{"saved": "", "unreadable": "{"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				memory := &noted{}
				begin := func(takesOver bool) (*world, *Controller, func() error) {
					w := newWorld(t)
					w.answer("192.0.2.1", "192.0.2.2")
					c := w.controller(web)
					c.opt.Memory, c.opt.TakesOver = memory, takesOver
					return w, c, w.run(c)
				}
				_, c, stop := begin(false)
				must(t, c, "drain web/web01 1h")
				if err := stop(); err != nil {
					t.Fatal(err)
				}
				if damaged != "" {
					memory.data = []byte(damaged)
				}
				w, c, stop := begin(false)
				wantOperations(t, c)
				if damaged == "" {
					w.expectLog("WARN", "what operations had changed has ended", "backends: 1")
				}
				if err := stop(); err != nil {
					t.Fatal(err)
				}
				if len(memory.data) > 0 {
					t.Errorf("the operations are still saved: %s", memory.data)
				}
				w, c, stop = begin(true)
				wantOperations(t, c)
				if w.logged("operations") {
					t.Errorf("logged:\n%s", w.log.String())
				}
				if err := stop(); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}

// TestDeadlineOverRestart: a drain's deadline passes when it is due after a restart, too, however the
// wall clock was set between the processes.
func TestDeadlineOverRestart(t *testing.T) {
	for _, set := range []time.Duration{0, time.Hour, -time.Hour} {
		t.Run(set.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				memory, boot := &noted{}, time.Now()
				clocks := func(behind time.Duration) func() clock.Reading {
					return func() clock.Reading {
						r := clock.At(time.Now(), "boot", time.Since(boot))
						r.Wall = r.Wall.Add(-behind)
						return r
					}
				}
				w := newWorld(t)
				w.found("192.0.2.1", 1)
				w.found("192.0.2.2", 2)
				first := w.controller(web)
				first.opt.Memory, first.opt.Clock = memory, clocks(set)
				stop := w.run(first)
				must(t, first, "drain web/web01 30m")
				if err := stop(); err != nil {
					t.Fatal(err)
				}
				time.Sleep(10 * time.Minute)
				next := w.follows(web, memory)
				next.opt.Clock = clocks(0)
				stop = w.run(next)
				for _, step := range []struct {
					after time.Duration
					out   bool
				}{{19 * time.Minute, false}, {2 * time.Minute, true}} {
					time.Sleep(step.after)
					synctest.Wait()
					all, err := next.Operations()
					if err != nil || len(all.InForce) != 1 || all.InForce[0].Drain.Out != step.out {
						t.Errorf("%v later: %+v, %v; want out %t", step.after, all, err, step.out)
					}
				}
				if err := stop(); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}

// TestTakeOverWaitsForSomeTime: a backend that is not found holds nothing up for longer than a
// reload waits.
func TestTakeOverWaitsForSomeTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, began := newWorld(t), time.Now()
		w.found("192.0.2.1", 1)
		stop := w.run(w.follows(web, &noted{}))
		if waited := time.Since(began); waited != resolveBound {
			t.Errorf("it waited for %v", waited)
		}
		w.expect("watch 192.0.2.1 192.0.2.2", "apply web: web01=1 web02=-", "add 192.0.2.100",
			"announce 192.0.2.100 on eth9")
		if err := stop(); err != nil {
			t.Fatal(err)
		}
	})
}

// TestLeaving says nothing of operations that end where another process goes on with them.
func TestLeaving(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, cause := range []error{ErrLeaving, context.Canceled} {
			w := newWorld(t)
			c := w.controller(web)
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancelCause(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- c.Run(ctx) }()
			must(t, c, "weight web/web02 7")
			cancel(cause)
			if err := <-ended; err != nil {
				t.Fatal(err)
			}
			if logged := w.logged("what operations have changed ends now"); logged != (cause != ErrLeaving) {
				t.Errorf("%v: logged that operations end: %v", cause, logged)
			}
		}
	})
}

// TestForceOverRestart: a backend that was enabled by force stays so.
func TestForceOverRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := &noted{}
		begin := func() (*Controller, func() error) {
			w := newWorld(t)
			w.found("192.0.2.1", 1)
			w.found("192.0.2.2", 2)
			c, asked := watched(w, checkedWeb)
			c.opt.TakesOver, c.opt.Memory = true, memory
			stop := w.run(c)
			asked.say(t, c, failing("answers 500"), "web01")
			time.Sleep(settleDelay)
			synctest.Wait()
			return c, stop
		}
		c, stop := begin()
		if _, err := c.Operate(t.Context(), ops.Order{Verb: ops.Enable, Service: "web", Backend: "web01", Force: true,
			By: "kim"}); err != nil {
			t.Fatal(err)
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		c, stop = begin()
		if b := stateOf(t, c, "web", "web01"); b.State != lb.Up || b.Forced == nil || b.Forced.By != "kim" {
			t.Errorf("status %+v", b)
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
	})
}
