// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"encoding/binary"
	"net"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/tools/doctor/evidence"
	"github.com/jeoul/jeoul/internal/tools/doctor/rules"
)

// segment simulates backends that answer pings to their own address only, behind a queue.
type segment struct {
	listener *listener
	// fails decides for each frame whether the queue takes it.
	fails func(to netip.Addr) error
	// sent are the frames that the queue has taken, by their destination.
	sent map[netip.Addr]int
}

func (s *segment) transmit(frame []byte) error {
	const ip = 14 // the offset of the IPv4 header
	to, _ := netip.AddrFromSlice(frame[ip+16 : ip+20])
	if err := s.fails(to); err != nil {
		return err
	}
	s.sent[to]++
	if to != vip4 {
		s.listener.echoed(to, binary.BigEndian.Uint16(frame[ip+20+6:]))
	}
	return nil
}

// TestFullQueue: a frame that the kernel does not take keeps no other one from being sent, and is no evidence against a
// backend.
func TestFullQueue(t *testing.T) {
	backends := []netip.Addr{there4, netip.MustParseAddr("198.18.0.3")}
	for _, tc := range []struct {
		name    string
		fails   func(attempt int, to netip.Addr) bool
		missing int // the backends that have no VIP according to the findings
		unsent  string
		sent    int // frames to the VIP
	}{
		{"never", func(int, netip.Addr) bool { return false }, 2, "", 2 * rounds},
		{"for a moment", func(attempt int, _ netip.Addr) bool { return attempt == 2 }, 2, "", 2 * rounds},
		{"in one round", func(attempt int, _ netip.Addr) bool { return attempt == 2 || attempt == 3 },
			2, "", 2*rounds - 1},
		{"for the VIP", func(_ int, to netip.Addr) bool { return to == vip4 }, 0,
			"2 of 2 probes were never sent: ask for 198.18.0.100 at 02:00:00:00:00:01: send on eth0: no buffer space", 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			e := &listener{nic: net.Interface{Name: "eth0", HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0, 9}},
				echoes: map[echoKey]int{}, ended: make(chan struct{})}
			close(e.ended)
			attempt := 0
			wire := &segment{listener: e, sent: map[netip.Addr]int{}, fails: func(to netip.Addr) error {
				attempt++
				if tc.fails(attempt, to) {
					return unix.ENOBUFS
				}
				return nil
			}}
			e.transmit = wire.transmit
			s := &survey{listeners: []*listener{e}}
			for i, address := range backends {
				mac := net.HardwareAddr{2, 0, 0, 0, 0, byte(1 + i)}
				s.pings = append(s.pings, ping{listener: e, mac: mac, from: here4,
					echo: evidence.Echo{Backend: "web/" + address.String(), Address: address, VIP: vip4},
					own:  uint16(2 * i), vip: uint16(2*i + 1)})
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			err := s.run(ctx, time.Second)
			if (err == nil) != (tc.unsent == "") || err != nil && !strings.Contains(err.Error(), tc.unsent) {
				t.Errorf("%s: %v, want %q", tc.name, err, tc.unsent)
			}
			found := rules.Findings(&evidence.Evidence{Wire: s.close()})
			missing := 0
			for _, f := range found {
				if f.Kind == "vip-missing" {
					missing += len(f.Seen)
				}
			}
			if missing != tc.missing {
				t.Errorf("%s: found %+v", tc.name, found)
			}
			for _, address := range backends {
				if wire.sent[address] != rounds {
					t.Errorf("%s: %d pings to %s, want %d", tc.name, wire.sent[address], address, rounds)
				}
			}
			if wire.sent[vip4] != tc.sent {
				t.Errorf("%s: %d pings to the VIP, want %d", tc.name, wire.sent[vip4], tc.sent)
			}
		})
	}
}
