// SPDX-License-Identifier: Apache-2.0

package control

import (
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/control/view"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/host/clock"
)

// savedBefore is the file that version 0.4.0 (27c6e1a) saved after "drain web/web01 1h", "weight web/web01 9" and
// "weight web/web02 7".
const savedBefore = `[{"backend":` + savedKey1 + `,` +
	`"drain":{"on":true,"by":"kim","at":"2000-01-01T00:00:00Z","deadline":"2000-01-01T01:00:00Z","out":false},` +
	`"weight":{"value":9,"configured":1,"by":"kim","at":"2000-01-01T00:00:00Z"},` + savedClock +
	`},{"backend":` + savedKey2 + `,"weight":{"value":7,"configured":1,"by":"kim","at":"2000-01-01T00:00:00Z"},` +
	savedClock + `}]`

const (
	savedService = `"Service":{"VIP":"192.0.2.100","Port":80,"Protocol":"tcp","Hairpin":false}`
	savedKey1    = `{` + savedService + `,"Address":"192.0.2.1","Port":80}`
	savedKey2    = `{` + savedService + `,"Address":"192.0.2.2","Port":80}`
	savedClock   = `"clock":{"wall":"2000-01-01T00:00:00Z","boot":"00000000-0000-4000-8000-000000000000","up_ns":2907431070121}`
)

// TestSavedByAddress: operations that an older version saved by address go to the names that have these addresses at
// the start, and stay with them from there on.
func TestSavedByAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := &noted{data: []byte(savedBefore)}
		w := newWorld(t)
		w.answer("192.0.2.1", "192.0.2.2")
		c := w.follows(web, memory)
		stop := w.run(c)
		w.expectApplied("apply web: web01=1~*9 web02=2*7")
		wantOperations(t, c, "web/web01 drain=true by kim deadline weight=9 by kim", "web/web02 weight=7 by kim")
		w.mustReload(c, swapped(web, "192.0.2.1}", "192.0.2.2}"))
		w.expectApplied("apply web: web01=2~*9 web02=1*7")
		stop()
	})
}

// TestSavedForBefore: an older version finds operations that this one saves by the addresses, so that a downgrade keeps
// them.
func TestSavedForBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := &noted{}
		w := newWorld(t)
		w.answer("192.0.2.1", "192.0.2.2")
		c := w.controller(web)
		c.opt.Memory = memory
		stop := w.run(c)
		must(t, c, "drain web/web01")
		var saved []struct {
			Backend lb.BackendKey `json:"backend"`
			Drain   struct {
				On bool `json:"on"`
			} `json:"drain"`
		}
		err := json.Unmarshal(memory.data, &saved)
		if err != nil || len(saved) != 1 || saved[0].Backend.Address.String() != "192.0.2.1" || !saved[0].Drain.On {
			t.Errorf("saved %s, %v", memory.data, err)
		}
		stop()
	})
}

// TestReaddressedOverRestart: addresses that are exchanged while no process runs leave operations with the names, and
// so do backends that are discovered and absent at the start, however often the process is restarted meanwhile.
func TestReaddressedOverRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, f, boot := &noted{}, newFinds(), time.Now()
		begin := func(found ...string) (*world, *Controller, func() error) {
			w := newWorld(t)
			w.answer("192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4")
			f.find("", found...)
			opt := w.follows(discovered, memory).opt
			opt.Discovery = f
			opt.Clock = func() clock.Reading { return clock.At(time.Now(), "boot", time.Since(boot)) }
			c := New(opt, parse(t, discovered))
			return w, c, w.run(c)
		}
		_, c, stop := begin("a=192.0.2.2", "b=192.0.2.3")
		must(t, c, "drain web/a", "weight web/b 7", "drain web/own")
		stop()
		w, c, stop := begin("b=192.0.2.2")
		w.expectApplied("apply web: own=1~ b=2*7")
		must(t, c, "enable web/own")
		stop()
		time.Sleep(time.Hour)
		w, c, stop = begin("b=192.0.2.2")
		wantOperations(t, c, "web/b weight=7 by kim", "web/a drain=true by kim")
		w.done()
		w.discover(f, "a=192.0.2.3", "b=192.0.2.2")
		w.expectApplied("apply web: own=1 a=3~ b=2*7")
		w.discover(f, "b=192.0.2.2")
		stop()
		time.Sleep(view.AbsentFor)
		_, c, stop = begin("b=192.0.2.2")
		time.Sleep(time.Second)
		synctest.Wait()
		wantOperations(t, c, "web/b weight=7 by kim")
		stop()
	})
}
