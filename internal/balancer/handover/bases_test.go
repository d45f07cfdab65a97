// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// TestBasesSentAgain: a peer is sent a base that has changed, also where the change was undone within a second and
// moves its end by less, and not more often than flows are looked at; not of one that only ages.
func TestBasesSentAgain(t *testing.T) {
	b := prepare(t, "a", nil)
	t.Cleanup(func() { b.options.Listener.Close() })
	s := newSender(b.Exchange, lb.Peer{Name: "b"}, func() {})
	s.state.Connected = true
	b.senders["b"] = s
	begun := time.Now()
	base := lb.Base{Service: lb.ServiceKey{VIP: netip.MustParseAddr("198.18.0.1"), Port: 80, Protocol: lb.TCP},
		Scheduler: lb.Maglev, Size: 251, Moved: 1,
		Backends: []lb.BaseBackend{{Identity: netip.MustParseAddrPort("198.18.2.1:80"),
			Endpoint: netip.MustParseAddrPort("198.18.2.1:80"), Share: 1, Weight: 1}}}
	const window = time.Minute
	changed := time.Duration(0)
	for _, step := range []struct {
		what   string
		at     time.Duration
		change func()
		// unchanged: the table does not change, so that the window does not begin again.
		unchanged, sent bool
	}{
		{"it is new", 0, func() {}, false, true},
		{"it ages", 2 * time.Second, func() {}, true, false},
		{"other slots have changed hands", 3 * time.Second, func() { base.Moved = 2 }, false, true},
		{"that is taken back at once", 3100 * time.Millisecond, func() { base.Beyond = true }, false, false},
		{"half a second has passed", 3500 * time.Millisecond, func() {}, true, true},
		{"it ages again", 4500 * time.Millisecond, func() {}, true, false},
		{"a change that leaves it as it was, soon", 5 * time.Second, func() {}, false, true},
		{"the same backends elsewhere in memory", 6 * time.Second, func() {
			base.Backends = slices.Clone(base.Backends)
		}, true, false},
		{"another share", 7 * time.Second, func() {
			base.Backends = slices.Clone(base.Backends)
			base.Backends[0].Share++
		}, true, true},
	} {
		step.change()
		if !step.unchanged {
			changed = step.at
		}
		base.Age, base.Left = step.at, changed+window-step.at
		b.memory.bases = []lb.Base{base}
		if err := b.sendBases(begun.Add(step.at), b.options.ScanPeriod); err != nil {
			t.Fatal(err)
		}
		if sent := len(s.queue) > 0; sent != step.sent {
			t.Errorf("%s: the base is sent: %v, want %v", step.what, sent, step.sent)
		}
		if len(s.queue) > 0 {
			_, body, err := readMessage(bytes.NewReader(s.queue))
			var got lb.Base
			if err == nil {
				err = json.Unmarshal(body, &got)
			}
			if err != nil || !isSame(&got, &base) || got.Left != base.Left {
				t.Errorf("%s: sent was %+v, %v, want %+v", step.what, got, err, base)
			}
		}
		s.queue = nil
	}
	// Before packets go elsewhere, nothing waits.
	for _, moved := range []uint64{3, 4} {
		base.Moved = moved
		b.memory.bases = []lb.Base{base}
		if err := b.sendAllFlows(begun.Add(8 * time.Second)); err != nil || len(s.queue) == 0 {
			t.Errorf("a flush tells of it: %v, %v", len(s.queue) > 0, err)
		}
		s.queue = nil
	}
}
