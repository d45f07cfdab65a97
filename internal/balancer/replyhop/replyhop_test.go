// SPDX-License-Identifier: Apache-2.0

package replyhop

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/host/neigh"
)

var (
	router = lb.ReplyHop{Interface: 2, Address: netip.MustParseAddr("192.0.2.254"), Router: true}
	client = lb.ReplyHop{Interface: 2, Address: netip.MustParseAddr("192.0.2.7")}
	other  = lb.ReplyHop{Interface: 3, Address: netip.MustParseAddr("fe80::7")}

	macA, macB = net.HardwareAddr{2, 0, 0, 0, 0, 0xa}, net.HardwareAddr{2, 0, 0, 0, 0, 0xb}
)

// fakeNetwork is a data plane, the kernel's neighbours, and a log.
type fakeNetwork struct {
	sync.Mutex
	hops    []lb.ReplyHop
	err     error
	entries map[netip.Addr]neigh.Entry
	absent  map[int]bool                   // interfaces that are not there
	watched map[int][]netip.Addr           // by interface; of none that was closed
	refused func(addrs []netip.Addr) error // nil: nothing
	lines   []string
}

func (w *fakeNetwork) ReplyHops(time.Duration) ([]lb.ReplyHop, error) {
	w.Lock()
	defer w.Unlock()
	return slices.Clone(w.hops), w.err
}

func (w *fakeNetwork) Write(line []byte) (int, error) {
	w.Lock()
	defer w.Unlock()
	w.lines = append(w.lines, strings.TrimSpace(string(line)))
	return len(line), nil
}

// logged returns the lines logged since the last call.
func (w *fakeNetwork) logged() []string {
	w.Lock()
	defer w.Unlock()
	lines := w.lines
	w.lines = nil
	return lines
}

func (w *fakeNetwork) set(do func()) {
	w.Lock()
	defer w.Unlock()
	do()
}

// setNeighbour has the kernel say something of a neighbour.
func (w *fakeNetwork) setNeighbour(h lb.ReplyHop, state string, mac net.HardwareAddr) {
	w.set(func() {
		e := neigh.Entry{Address: h.Address, State: state, MAC: mac}
		if mac == nil {
			e.Reason = "does not answer"
		}
		w.entries[h.Address] = e
	})
}

// watching returns the addresses watched on an interface; nil if nothing looks for neighbours there.
func (w *fakeNetwork) watching(index int) []netip.Addr {
	w.Lock()
	defer w.Unlock()
	return w.watched[index]
}

type fakeResolver struct {
	w     *fakeNetwork
	index int
}

func (r fakeResolver) SetAddresses(addrs []netip.Addr) error {
	r.w.Lock()
	defer r.w.Unlock()
	if r.w.refused != nil {
		if err := r.w.refused(addrs); err != nil {
			return err
		}
	}
	r.w.watched[r.index] = slices.Clone(addrs)
	return nil
}

func (r fakeResolver) Known(addrs []netip.Addr) ([]netip.Addr, error) {
	r.w.Lock()
	defer r.w.Unlock()
	return slices.DeleteFunc(slices.Clone(addrs), func(a netip.Addr) bool { return r.w.entries[a].State == "" }), nil
}

func (r fakeResolver) Entries() map[netip.Addr]neigh.Entry {
	r.w.Lock()
	defer r.w.Unlock()
	entries := map[netip.Addr]neigh.Entry{}
	for _, addr := range r.w.watched[r.index] {
		entries[addr] = r.w.entries[addr]
	}
	return entries
}

func (r fakeResolver) Close() error {
	r.w.Lock()
	defer r.w.Unlock()
	delete(r.w.watched, r.index)
	return nil
}

// confirm runs a test beside a Confirmer, in a bubble of its own time.
func confirm(t *testing.T, test func(w *fakeNetwork, c *Confirmer)) {
	synctest.Test(t, func(t *testing.T) {
		w := &fakeNetwork{entries: map[netip.Addr]neigh.Entry{}, absent: map[int]bool{},
			watched: map[int][]netip.Addr{}}
		log := slog.New(slog.NewTextHandler(w,
			&slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
				if a.Key == slog.MessageKey || a.Key == slog.LevelKey {
					return a
				}
				return slog.Attr{}
			}}))
		c := newConfirmer(w, log, func(_ context.Context, index int) (string, resolver, error) {
			w.Lock()
			defer w.Unlock()
			if w.absent[index] {
				return "", nil, fmt.Errorf("no interface %d", index)
			}
			w.watched[index] = []netip.Addr{}
			return fmt.Sprintf("eth%d", index), fakeResolver{w, index}, nil
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); c.Run(ctx) }()
		test(w, c)
		cancel()
		<-ended
		if len(w.watched) != 0 {
			t.Errorf("still watched at the end: %v", w.watched)
		}
	})
}

// advance lets time go by, in the middle between two polls.
func advance(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func expect(t *testing.T, what string, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
		cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// TestWatches: next hops of replies are watched within a second, on each interface, and some time after the last reply
// no more; those without a kernel entry are not.
func TestWatches(t *testing.T) {
	confirm(t, func(w *fakeNetwork, c *Confirmer) {
		advance(500 * time.Millisecond)
		w.setNeighbour(router, neigh.Stale, macA)
		w.setNeighbour(client, neigh.Reachable, macA)
		torn := client
		torn.Address = netip.MustParseAddr("192.0.2.77")
		w.set(func() { w.hops = []lb.ReplyHop{router, client, other, torn} })
		advance(pollInterval)
		expect(t, "on eth2", w.watching(2), []netip.Addr{client.Address, router.Address})
		w.setNeighbour(other, neigh.Stale, macA)
		w.set(func() { w.hops = []lb.ReplyHop{client, other} })
		advance(idleTimeout)
		expect(t, "on eth3", w.watching(3), []netip.Addr{other.Address})
		expect(t, "within the time that connections pause", w.watching(2), []netip.Addr{client.Address, router.Address})
		advance(2 * pollInterval)
		expect(t, "after the last reply", w.watching(2), []netip.Addr{client.Address})
		w.set(func() { w.hops = []lb.ReplyHop{client} })
		advance(idleTimeout + 2*pollInterval)
		if got := w.watching(3); got != nil {
			t.Errorf("an interface without replies is watched: %v", got)
		}
	})
}

// TestRouterMoves: another MAC address is said, also where the router seemed to be gone for a moment.
func TestRouterMoves(t *testing.T) {
	confirm(t, func(w *fakeNetwork, c *Confirmer) {
		advance(500 * time.Millisecond)
		w.set(func() { w.hops = []lb.ReplyHop{router} })
		w.setNeighbour(router, neigh.Reachable, macA)
		advance(2 * pollInterval)
		expect(t, "log at first", w.logged(), []string{})
		w.setNeighbour(router, neigh.Failed, nil)
		advance(pollInterval)
		w.setNeighbour(router, neigh.Reachable, macB)
		advance(pollInterval)
		expect(t, "log", w.logged(), []string{
			`level=INFO msg="the router 192.0.2.254 on eth2 has another MAC address, to which replies go now: 02:00:00:00:00:0a → 02:00:00:00:00:0b"`})
		expect(t, "problems", c.Problems(), []string{})
	})
}

// TestSilent: a router that does not answer is a problem, said once, until it answers; clients are named together.
func TestSilent(t *testing.T) {
	confirm(t, func(w *fakeNetwork, c *Confirmer) {
		advance(500 * time.Millisecond)
		hops := []lb.ReplyHop{router}
		for i := range byte(7) {
			hops = append(hops, lb.ReplyHop{Interface: 2, Address: netip.AddrFrom4([4]byte{192, 0, 2, i + 1})})
		}
		w.set(func() { w.hops = hops })
		for _, h := range hops {
			w.setNeighbour(h, neigh.Reachable, macA)
		}
		advance(2 * pollInterval)
		w.setNeighbour(router, neigh.Failed, nil)
		advance(4 * pollInterval)
		gone := "the router 192.0.2.254 on eth2 does not answer: replies (modes nat and fullnat) to clients behind it are lost"
		expect(t, "problems", c.Problems(), []string{gone})
		expect(t, "log", w.logged(), []string{`level=WARN msg="` + gone + `"`})
		for _, h := range hops[1:] {
			w.setNeighbour(h, neigh.Failed, nil)
		}
		advance(4 * pollInterval)
		clients := "replies (modes nat and fullnat) to 7 clients on eth2 are lost, for they do not answer ARP requests or neighbour solicitations: 192.0.2.1, 192.0.2.2, 192.0.2.3, 192.0.2.4, 192.0.2.5, and 2 more"
		expect(t, "problems", c.Problems(), []string{clients, gone})
		expect(t, "log", w.logged(), []string{`level=INFO msg="` + clients + `"`})
		// An announcement is not yet an answer.
		w.setNeighbour(router, neigh.Stale, macB)
		advance(pollInterval)
		expect(t, "problems", c.Problems(), []string{clients, gone})
		w.setNeighbour(router, neigh.Reachable, macB)
		w.set(func() { w.hops = hops[:1] })
		advance(idleTimeout + 2*pollInterval)
		expect(t, "problems at last", c.Problems(), []string{})
		expect(t, "log", w.logged(),
			[]string{`level=INFO msg="the router 192.0.2.254 on eth2 answers again, with the MAC address 02:00:00:00:00:0b"`})
	})
}

// TestFaults: a failed step is logged once, keeps no other from being done, and is tried again.
func TestFaults(t *testing.T) {
	confirm(t, func(w *fakeNetwork, c *Confirmer) {
		advance(500 * time.Millisecond)
		w.setNeighbour(other, neigh.Reachable, macA)
		w.setNeighbour(client, neigh.Reachable, macA)
		w.set(func() { w.hops, w.absent[2] = []lb.ReplyHop{client, other}, true })
		advance(3 * pollInterval)
		expect(t, "log without an interface", w.logged(),
			[]string{`level=WARN msg="next hops of replies are not confirmed: no interface 2"`})
		expect(t, "the other interface", w.watching(3), []netip.Addr{other.Address})
		w.set(func() {
			w.absent[2], w.refused = false, func(addrs []netip.Addr) error {
				if slices.Contains(addrs, client.Address) {
					return errors.New("refused")
				}
				return nil
			}
		})
		advance(3 * pollInterval)
		expect(t, "log when refused", w.logged(),
			[]string{`level=WARN msg="next hops of replies are not confirmed: refused"`})
		w.set(func() { w.refused, w.err = nil, errors.New("no data plane") })
		advance(3 * pollInterval)
		expect(t, "log without a data plane", w.logged(),
			[]string{`level=WARN msg="next hops of replies are not confirmed: no data plane"`})
		w.set(func() { w.err = nil })
		advance(2 * pollInterval)
		expect(t, "log", w.logged(), []string{})
		expect(t, "in the end", w.watching(2), []netip.Addr{client.Address})
	})
}
