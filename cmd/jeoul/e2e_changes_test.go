// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"

	"github.com/jeoul/jeoul/cmd/jeoul/e2e"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/test/testenv"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// TestLeaksAroundChanges checks every packet that reaches a client while backends and the balancer stop and start, in
// the middle of transfers.
func TestLeaksAroundChanges(t *testing.T) {
	testenv.Target(t, matrixTarget)
	t.Parallel()
	forAHook(t, func(t *testing.T, hook lb.Hook) {
		s := newStage(t, hook, 1, bulk)
		t.Run("backend taken away", func(t *testing.T) { s.removeBackends(t) })
		t.Run("balancer started again", func(t *testing.T) { s.restartBalancer(t) })
	})
}

// removeBackends removes a backend by a reload in the middle of transfers from all of them: it continues to send to
// clients that it does not know.
func (s *stage) removeBackends(t *testing.T) {
	w := s.checkPackets(t, s.Clients[0])
	defer w.stop(t)
	s.whileFetching(t, w, func() {
		all := s.Servers
		for _, servers := range [][]*lab.Host{all[:2], all} {
			s.Servers = servers
			s.configure(t, s.hook, s.configuration())
			s.sendSIGHUP(t)
			s.eventually(t, fmt.Sprintf("%d backends are up", len(servers)), func(status *ops.Status) bool {
				return allUp(status) && !slices.ContainsFunc(status.Services, func(service ops.Service) bool {
					return len(service.Backends) != len(servers)
				})
			})
			if len(servers) < len(all) {
				s.awaitRetransmissions(t, w, func() error { return nil })
			} else {
				w.awaitMore(t)
			}
		}
	})
}

// restartBalancer restarts the balancer so that the next process continues its work, in the middle of transfers. (After
// a permanent stop, the next process does not have the flows, nor does it know that packets that backends still send
// belong to any.)
func (s *stage) restartBalancer(t *testing.T) {
	w := s.checkPackets(t, s.Clients[0])
	defer w.stop(t)
	s.whileFetching(t, w, func() {
		leave(t, s.daemon)
		s.start(t)
		w.awaitMore(t)
	})
}

// awaitMore waits until the client has received many more packets.
func (w *packetChecker) awaitMore(t *testing.T) {
	t.Helper()
	before := w.Packets()
	testenv.Eventually(t, e2e.WaitLimit, "transfers go on", func() bool { return w.Packets() >= before+packetsAfterChange })
}

// packetsAfterChange is the number of packets that are checked after a change, beyond those under way.
const packetsAfterChange = 5000

// whileFetching runs do while the client downloads files, slowly, from every backend that translates, and no faster
// than the packets are checked. The end of the downloads does not matter.
func (s *stage) whileFetching(t *testing.T, w *packetChecker, do func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	defer group.Wait()
	defer cancel()
	for _, p := range paths() {
		if !p.mode.Translates() {
			continue
		}
		for range 3 * len(s.Servers) {
			group.Go(func() {
				for w.AwaitReader(ctx) {
					e2e.NewBrowser(s.Clients[0]).Download(ctx, netip.AddrPortFrom(p.vip, otherWebPort), s.files, bulk)
				}
			})
		}
	}
	do()
}
