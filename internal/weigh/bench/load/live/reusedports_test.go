// SPDX-License-Identifier: Apache-2.0

package live

import (
	"context"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// newReusingClient returns a client that reuses ports.
func newReusingClient(t *testing.T, target netip.AddrPort, ports int, also func(*Load)) *loadClient {
	t.Helper()
	load := Load{Target: target, Timeout: 5 * time.Second, UDPTimeout: 5 * time.Second,
		ReusedPorts: ReusedPorts{First: freePorts(t, ports), Ports: ports, Pace: 10 * time.Millisecond}}
	if also != nil {
		also(&load)
	}
	ctx, cancel := context.WithCancel(context.Background())
	h := newLoadClient(ctx, load)
	t.Cleanup(func() { cancel(); h.group.Wait() })
	h.background()
	return h
}

// TestPortsAreReused proves that every ending of a connection leaves its port free for the next one.
func TestPortsAreReused(t *testing.T) {
	const ports = 10
	h := newReusingClient(t, serve(t, "a"), ports, func(l *Load) { l.ReusedPorts.UDP = 5 })
	awaited(t, h, "several connections of each port", func(c Counts) bool {
		return c.ReusedAnswered >= uint64(4*len(closeModes)*ports) && c.Queries >= 4
	})
	c := settled(t, h)
	// Another program may use some of the ports.
	if len(c.ReusedLostAt) != 0 || len(c.LostSYNs) != 0 || c.Unanswered != 0 || c.PortsInUse > c.ReusedAnswered/2 {
		t.Errorf("of %d connections %d were lost, %d SYNs; %d could not be tried", c.ReusedAnswered, len(c.ReusedLostAt),
			len(c.LostSYNs), c.PortsInUse)
	}
}

// TestServersEndConnectionsAsAsked proves that servers end connections by a reset or a FIN, as requested.
func TestServersEndConnectionsAsAsked(t *testing.T) {
	at := serve(t, "a")
	for how, want := range map[closeMode]Cause{closeByReset: Reset, closeByFIN: Closed} {
		conn, err := net.Dial("tcp4", at.String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		l := &clientConn{conn: conn, flow: 1, number: how.numbered(3)}
		if from, err := l.ask(bound); err != nil || from.Server != "a" {
			t.Fatalf("ending %d: answered by %v, %v", how, from, err)
		}
		if err := how.confirmAnswer(conn); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Read(make([]byte, 1)); causeOf(err) != want {
			t.Errorf("ending %d: %v, want it %s", how, err, want)
		}
	}
}

// backlogged returns a port that accepts no more connections until free is called.
func backlogged(t *testing.T) (at netip.AddrPort, free func()) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(fd), "listener")
	defer file.Close()
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	// A backlog of 0 has room for one connection.
	if err := unix.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	listener, err := net.FileListener(file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	at = netip.MustParseAddrPort(listener.Addr().String())
	filler, err := net.Dial("tcp4", at.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { filler.Close() })
	return at, func() {
		conn, err := listener.Accept()
		if err != nil {
			t.Error(err)
			return
		}
		conn.Close()
	}
}

// TestLostSYNsAreCounted proves that a SYN that found a full backlog counts as lost, whether or not a later one
// succeeded.
func TestLostSYNsAreCounted(t *testing.T) {
	t.Parallel()
	// SYNs are sent again after 1, 3 and 7 s (RFC 6298, section 5.5). The socket ends with the timeout, and a process
	// that was stopped for some seconds before it has not seen all of them.
	for name, timeout := range map[string]time.Duration{"in vain": 6 * time.Second, "in the end": bound} {
		t.Run(name, func(t *testing.T) {
			at, free := backlogged(t)
			h := newLoadClient(t.Context(), Load{Target: at, Timeout: timeout})
			began := time.Now()
			if timeout == bound {
				// Between the first SYN and the second.
				time.AfterFunc(firstPoll, free)
			}
			conn, lost, err := h.dialFrom(0)
			if conn != nil {
				conn.Close()
			}
			if (err == nil) != (timeout == bound) {
				t.Fatal(err)
			}
			if len(lost) == 0 || lost[0].Before(began) || len(lost) < 2 && err != nil {
				t.Errorf("%d SYNs are lost: %v; the connection: %v", len(lost), lost, err)
			}
			for i := range lost[1:] {
				if lost[i+1].Before(lost[i]) {
					t.Errorf("lost at %v", lost)
				}
			}
		})
	}
}

func TestSYNWatchTakesTheEarliestTimes(t *testing.T) {
	at := func(seconds int) time.Time { return time.Unix(int64(seconds), 0) }
	w := &synWatch{sent: at(1), polledAt: at(1)}
	w.note(0, at(3)) // nothing yet
	w.note(1, at(4)) // the second was sent between 3 and 4
	w.note(3, at(9)) // two more since
	for i, want := range []time.Time{at(1), at(3), at(4)} {
		if i >= len(w.lost) || !w.lost[i].Equal(want) {
			t.Fatalf("lost at %v", w.lost)
		}
	}
	if !w.sent.Equal(at(4)) || len(w.lost) != 3 {
		t.Errorf("the last was sent at %v, and %d are lost", w.sent, len(w.lost))
	}
}

// open returns the ports with a connection that stays open.
func (l *openReused) open() []int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Sorted(maps.Keys(l.serverByPort))
}

// lead moves the last connections from some ports to the front, so that they are harmed first, and sends new
// connections to a server.
func (r *relay) lead(ports []int, to netip.AddrPort) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.to = to
	last := map[int]*relayed{}
	for _, c := range r.conns {
		last[c.client.RemoteAddr().(*net.TCPAddr).Port] = c
	}
	r.conns = nil
	for _, port := range ports {
		r.conns = append(r.conns, last[port])
	}
}

// TestComingAgainIsCounted proves that connections that stay open are counted if clients open them again after their
// server has reset them.
func TestComingAgainIsCounted(t *testing.T) {
	t.Parallel()
	const ports = 6
	a, b := serve(t, "a"), serve(t, "b")
	r := startRelay(t, a)
	h := newReusingClient(t, r.target(), ports, nil)
	stay := func() map[string]uint64 {
		got, err := h.execute(t.Context(), order{Stay: bound})
		if err != nil {
			t.Fatal(err)
		}
		return got.Stay
	}
	if by := stay(); by["a"] != ports {
		t.Fatalf("open are %v", by)
	}
	h.counter.begin()
	r.lead(h.openReused.open()[:2], b)
	r.reset(t, 2)
	awaited(t, h, "two that came again", func(c Counts) bool { return c.Reconnected["b"] == 2 })
	if by := stay(); by["a"] != ports-2 || by["b"] != 2 {
		t.Errorf("open are %v", by)
	}
	if _, err := h.execute(t.Context(), order{Go: true}); err != nil {
		t.Fatal(err)
	}
	awaited(t, h, "connections of each port", func(c Counts) bool { return c.ReusedAnswered > 3*ports })
	if c := settled(t, h); total(c.Reconnected) != 2 {
		t.Errorf("again came %v", c.Reconnected)
	}
}

func TestCountsOfReusedPortsAddUp(t *testing.T) {
	var sum Counts
	one := Counts{ReusedAnswered: 1, PortsInUse: 2, ReusedLostAt: Timestamps{3}, LostSYNs: Timestamps{4, 5},
		LostQueries: Timestamps{6}, Reconnected: map[string]uint64{"a": 7}}
	sum.Add(one)
	sum.Add(one)
	if sum.ReusedAnswered != 2 || sum.PortsInUse != 4 || len(sum.ReusedLostAt) != 2 || len(sum.LostSYNs) != 4 ||
		len(sum.LostQueries) != 2 || sum.Reconnected["a"] != 14 {
		t.Errorf("got %+v", sum)
	}
	if n := (Timestamps{1_000_000, 2_000_000, 3_000_000}).Before(time.Unix(2, 0)); n != 1 {
		t.Errorf("%d of three are before, want 1", n)
	}
	if s := request.bytes(request{1, closeByReset.numbered(5)}); closeMode(s[endingAt]) != closeByReset ||
		!strings.HasSuffix(string(s), "\x05") {
		t.Errorf("a request is % x", s)
	}
}
