// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/trace"
	"github.com/jeoul/jeoul/internal/test/testenv"
	"github.com/jeoul/jeoul/internal/tools/doctor/evidence"
	"github.com/jeoul/jeoul/internal/tools/doctor/rules"
)

// none returns the path of a socket without a daemon.
func none(t *testing.T) string { return filepath.Join(t.TempDir(), "none.sock") }

// TestImpossibleLooks passes invalid options.
func TestImpossibleLooks(t *testing.T) {
	t.Parallel()
	for _, length := range []time.Duration{0, -time.Second} {
		if _, err := Run(t.Context(), Options{For: length}); !errors.Is(err, ErrOptions) {
			t.Errorf("for %s: %v", length, err)
		}
	}
	p := newPair(t, false)
	examine := func(ctx context.Context, name string, length time.Duration) (err error) {
		testenv.In(t, p.here, func() error {
			_, err = Run(ctx, Options{Interface: name, For: length, Socket: none(t)})
			return nil
		})
		return err
	}
	if err := examine(t.Context(), "eth7", time.Second); !errors.Is(err, ErrNoInterface) ||
		!strings.Contains(err.Error(), "here") {
		t.Errorf("an unknown interface: %v, which should name those that there are", err)
	}
	// The first reading has the interface, and the second does not. A busy machine may delete it only after a short
	// examination has ended.
	for length := 3 * time.Second; ; length *= 5 {
		gone := make(chan error, 1)
		go func() { gone <- p.here.Do(deleteOnceListenedTo) }()
		err := examine(t.Context(), "here", length)
		if deleted := <-gone; deleted != nil {
			t.Fatal(deleted)
		}
		if errors.Is(err, ErrGone) {
			break
		}
		if err != nil || length > time.Minute {
			t.Fatalf("an interface that goes within %v: %v", length, err)
		}
		p = newPair(t, false)
	}
	p = newPair(t, false)
	testenv.In(t, p.here, func() error {
		link, err := netlink.LinkByName("here")
		if err != nil {
			return err
		}
		return netlink.LinkSetDown(link)
	})
	if err := examine(t.Context(), "here", time.Second); !errors.Is(err, ErrDown) {
		t.Errorf("an interface that is down: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := examine(ctx, "", time.Hour); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a look that was broken off: %v", err)
	}
}

// deleteOnceListenedTo deletes the interface "here" once the doctor listens on the segment, which it does after its
// first reading.
func deleteOnceListenedTo() error {
	link, err := netlink.LinkByName("here")
	if err != nil {
		return err
	}
	for deadline := time.Now().Add(time.Minute); ; {
		sockets, err := os.ReadFile("/proc/thread-self/net/packet")
		// The first line is the heading.
		if err == nil && bytes.Count(sockets, []byte("\n")) > 1 {
			return netlink.LinkDel(link)
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the doctor does not listen: %q, %w", sockets, err)
		}
		runtime.Gosched()
	}
}

// TestQuietHost examines a host without faults and without programs: there are no findings, all sources are read, and a
// passive examination sends nothing.
func TestQuietHost(t *testing.T) {
	p := newPair(t, false)
	testenv.In(t, p.here, func() error {
		r, err := Run(t.Context(), Options{For: 300 * time.Millisecond, Socket: none(t), VIPs: []netip.Addr{vip4},
			Passive: true})
		if err != nil {
			return err
		}
		if len(r.Findings) > 0 || len(r.Unread) > 0 || len(r.Evidence.Wire.Claims) > 0 {
			t.Errorf("a quiet host: %+v", r)
		}
		if r.Evidence.Machine || !r.Evidence.Traced || r.Evidence.After.Protocols == nil ||
			len(r.Evidence.After.CPUs) == 0 {
			t.Errorf("what was read: %+v", r.Evidence)
		}
		return nil
	})
}

// TestFollower computes timings from packets as a balancer reports them.
func TestFollower(t *testing.T) {
	f := newFollower()
	start := time.Now()
	packet := func(at time.Duration, backend string, port uint16, flags ...string) {
		f.take(&trace.Packet{Time: start.Add(at), Service: &trace.Service{Name: "web", Protocol: lb.TCP},
			Backend: &trace.Backend{Name: backend},
			Came: &trace.Flow{Source: here4, SourcePort: port, Destination: vip4, DestinationPort: 80,
				Flags: flags}})
	}
	ms := time.Millisecond
	for i := range uint16(6) {
		// Three of a fast backend, three of one that never answers.
		if i%2 == 0 {
			packet(0, "quick", i, "syn")
			packet(1*ms, "quick", i, "ack")
			packet(1*ms, "quick", i, "psh", "ack")
			packet(11*ms, "quick", i, "ack")
			packet(12*ms, "quick", i, "fin", "ack")
			continue
		}
		packet(0, "silent", i, "syn")
		packet(1000*ms, "silent", i, "syn")
	}
	f.take(&trace.Packet{Outcome: "passed_not_ip"})
	got := f.end(start.Add(1100 * ms))
	want := []evidence.BackendTiming{
		{Name: "web/quick", Service: "web", Opened: 3, Answered: 3, Responses: 3, MedianMs: 10},
		{Name: "web/silent", Service: "web", Opened: 3, Silent: 3, Repeats: 1},
	}
	if len(got.Backends) != 2 || got.Backends[0] != want[0] || got.Backends[1] != want[1] {
		t.Errorf("got %+v, want %+v", got.Backends, want)
	}
	e := &evidence.Evidence{Flows: got}
	findings := rules.Findings(e)
	if len(findings) != 1 || findings[0].Kind != "backend-silent" {
		t.Errorf("found %+v, want a silent backend", findings)
	}
}
