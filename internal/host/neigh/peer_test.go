// SPDX-License-Identifier: Apache-2.0

package neigh

import (
	"net"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
)

var (
	macA = net.HardwareAddr{2, 0, 0, 0, 0, 0xa}
	macB = net.HardwareAddr{2, 0, 0, 0, 0, 0xb}
)

// TestUpdate: a peer's entry after each event of the kernel.
func TestUpdate(t *testing.T) {
	type step struct {
		state   int
		mac     net.HardwareAddr
		want    string
		wantMAC net.HardwareAddr
		changed bool
	}
	for name, steps := range map[string][]step{
		"answers, and again when it is verified": {
			{0, nil, Unknown, nil, false},
			{netlink.NUD_INCOMPLETE, nil, Unknown, nil, false},
			{netlink.NUD_REACHABLE, macA, Reachable, macA, true},
			{netlink.NUD_PROBE, macA, Reachable, macA, false},
			{netlink.NUD_REACHABLE, macA, Reachable, macA, false},
		},
		"goes and returns elsewhere": {
			{netlink.NUD_REACHABLE, macA, Reachable, macA, true},
			{netlink.NUD_PROBE, macA, Reachable, macA, false},
			{netlink.NUD_FAILED, nil, Failed, nil, true},
			{netlink.NUD_INCOMPLETE, nil, Failed, nil, false},
			{netlink.NUD_FAILED, nil, Failed, nil, false},
			{0, nil, Failed, nil, false},
			{netlink.NUD_REACHABLE, macB, Reachable, macB, true},
		},
		"announces itself elsewhere": {
			{netlink.NUD_REACHABLE, macA, Reachable, macA, true},
			{netlink.NUD_STALE, macB, Stale, macB, true},
			{netlink.NUD_DELAY, macB, Probing, macB, true},
			{netlink.NUD_PROBE, macB, Probing, macB, false},
			{netlink.NUD_REACHABLE, macB, Reachable, macB, true},
		},
		"its MAC address changes while it is verified": {
			{netlink.NUD_REACHABLE, macA, Reachable, macA, true},
			{netlink.NUD_PROBE, macB, Probing, macB, true},
		},
		"its entry is pushed out": {
			{netlink.NUD_REACHABLE, macA, Reachable, macA, true},
			{0, nil, Probing, macA, true},
			{netlink.NUD_INCOMPLETE, nil, Probing, macA, false},
			{netlink.NUD_FAILED, nil, Failed, nil, true},
		},
		"its entry is deleted, which shows as failed first": {
			{netlink.NUD_STALE, macA, Stale, macA, true},
			{netlink.NUD_FAILED, nil, Probing, macA, true},
			{0, nil, Probing, macA, false},
			{netlink.NUD_REACHABLE, macA, Reachable, macA, true},
		},
		"has an unusable address": {
			{netlink.NUD_REACHABLE, broadcast, Failed, nil, true},
			{netlink.NUD_REACHABLE, make(net.HardwareAddr, 6), Failed, nil, false},
			{netlink.NUD_REACHABLE, macA, Reachable, macA, true},
			{netlink.NUD_STALE, net.HardwareAddr{1, 0, 0x5e, 0, 0, 1}, Failed, nil, true},
			{netlink.NUD_STALE, net.HardwareAddr{2, 0, 0, 1}, Failed, nil, false},
		},
		"is configured": {
			{netlink.NUD_PERMANENT, macA, Reachable, macA, true},
			{netlink.NUD_NOARP, macB, Reachable, macB, true},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPeer(peer4)
			for i, s := range steps {
				changed := p.update(netlink.Neigh{State: s.state, HardwareAddr: s.mac}, time.Now(), defaultTiming)
				got := []any{p.entry.State, p.entry.MAC, changed, p.entry.Reason == ""}
				want := []any{s.want, s.wantMAC, s.changed, s.wantMAC != nil}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Fatalf("step %d: state, MAC, changed, no reason (-want +got):\n%s", i+1, diff)
				}
			}
		})
	}
}

// TestUpdateLeavesEntriesAlone: an entry that was returned to a caller does not change afterwards.
func TestUpdateLeavesEntriesAlone(t *testing.T) {
	p := newPeer(peer4)
	event := netlink.Neigh{State: netlink.NUD_REACHABLE, HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0, 0xa}}
	p.update(event, time.Now(), defaultTiming)
	given := p.entry
	copy(event.HardwareAddr, macB)
	p.update(netlink.Neigh{State: netlink.NUD_REACHABLE, HardwareAddr: macB}, time.Now(), defaultTiming)
	if diff := cmp.Diff(macA, given.MAC); diff != "" {
		t.Error(diff)
	}
}

// TestSchedule: no matter how often announcements arrive, a peer is probed no earlier and no later than the intervals
// say.
func TestSchedule(t *testing.T) {
	now := time.Now()
	p := newPeer(peer4)
	at := func(state int, mac net.HardwareAddr) time.Duration {
		p.update(netlink.Neigh{State: state, HardwareAddr: mac}, now, defaultTiming)
		return p.nextProbe.Sub(now)
	}
	p.nextProbe = now
	if got := at(netlink.NUD_REACHABLE, macA); got < defaultTiming.verify*3/4 || got > defaultTiming.verify {
		t.Errorf("reachable: next in %v", got)
	}
	if got := at(netlink.NUD_STALE, macB); got != defaultTiming.verifyNew {
		t.Errorf("announced: next in %v", got)
	}
	if got := at(netlink.NUD_PROBE, macB); got != defaultTiming.verify {
		t.Errorf("probed: next in %v", got)
	}
	if got := at(netlink.NUD_FAILED, nil); got != 0 {
		t.Errorf("lost: next in %v", got)
	}
	var waits []time.Duration
	for range 4 {
		p.probeSent(now, defaultTiming)
		waits = append(waits, at(netlink.NUD_FAILED, nil))
	}
	want := []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 4 * time.Second}
	if diff := cmp.Diff(want, waits); diff != "" {
		t.Errorf("times between requests (-want +got):\n%s", diff)
	}
}

// TestConfirmPace: probes of many peers are far enough apart to be no load. With few peers they are so close that a
// change is detected sooner than by the kernel: 5 s of delay and three requests, a second apart.
func TestConfirmPace(t *testing.T) {
	const kernel = 8 * time.Second
	for _, peers := range []int{1, 100, 200} {
		if got := confirmTiming.forPeers(peers).verify + 3*time.Second; got >= kernel {
			t.Errorf("%d peers: a change is found after up to %v", peers, got)
		}
	}
	if got := time.Second / (confirmTiming.forPeers(1024).verify / 1024); got > 50 {
		t.Errorf("1024 peers are probed %d times a second", got)
	}
	if got := defaultTiming.forPeers(100000); got != defaultTiming {
		t.Errorf("the pace for backends becomes %+v", got)
	}
}
