// SPDX-License-Identifier: Apache-2.0

package live

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jeoul/jeoul/internal/test/testenv"
)

// freePorts returns the first of n consecutive ports that are free for TCP and UDP, and that no kernel assigns by
// itself: another program that connects in the meantime gets none of them (ip_local_port_range is 32768 to 60999).
func freePorts(t *testing.T, n int) int {
	t.Helper()
	free := func(first int) bool {
		for port := first; port < first+n; port++ {
			at := fmt.Sprintf(":%d", port)
			listener, err := net.Listen("tcp4", at)
			if err != nil {
				return false
			}
			listener.Close()
			packets, err := net.ListenPacket("udp4", at)
			if err != nil {
				return false
			}
			packets.Close()
		}
		return true
	}
	for range 1000 {
		if first := 10_000 + rand.IntN(20_000); free(first) {
			return first
		}
	}
	t.Fatalf("no %d ports in a row are free", n)
	return 0
}

// serve runs a server and returns its address.
func serve(t *testing.T, name string) netip.AddrPort {
	t.Helper()
	at := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), testenv.Port(t))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- Server{Name: name, Port: at.Port()}.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("%s: %v", name, err)
		}
	})
	testenv.Eventually(t, bound, "a server", func() bool {
		conn, err := net.Dial("tcp4", at.String())
		return err == nil && conn.Close() == nil
	})
	return at
}

// relay is a simple balancer. It forwards one request and its answer at a time, and breaks connections between them
// when asked, so that no outstanding request can be lost instead.
type relay struct {
	listener net.Listener
	// to is the destination of new connections.
	to netip.AddrPort
	// deaf drops requests.
	deaf  atomic.Bool
	mu    sync.Mutex
	conns []*relayed
}

type relayed struct {
	client net.Conn
	mu     sync.Mutex
	server net.Conn
}

func startRelay(t *testing.T, to netip.AddrPort) *relay {
	t.Helper()
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{listener: listener, to: to}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			r.pass(client)
		}
	}()
	return r
}

func (r *relay) target() netip.AddrPort { return netip.MustParseAddrPort(r.listener.Addr().String()) }

func (r *relay) pass(client net.Conn) {
	r.mu.Lock()
	to := r.to
	r.mu.Unlock()
	server, err := net.Dial("tcp4", to.String())
	if err != nil {
		client.Close()
		return
	}
	c := &relayed{client: client, server: server}
	r.mu.Lock()
	r.conns = append(r.conns, c)
	r.mu.Unlock()
	go func() {
		for r.request(c) == nil {
		}
		c.client.Close()
		c.current().Close()
	}()
}

func (c *relayed) current() net.Conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.server
}

// request forwards a connection's next request, its answer, and its end if the request asks the server for one.
func (r *relay) request(c *relayed) error {
	var request [requestBytes]byte
	if _, err := io.ReadFull(c.client, request[:]); err != nil || r.deaf.Load() {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, err := c.server.Write(request[:]); err != nil {
		return err
	}
	if _, err := io.CopyN(c.client, c.server, answerBytes); err != nil {
		return err
	}
	switch closeMode(request[endingAt]) {
	case closeByReset: // the client confirms the answer
		if _, err := io.CopyN(c.server, c.client, 1); err != nil {
			return err
		}
		_, err := c.server.Read(request[:])
		return errors.Join(err, c.client.(*net.TCPConn).SetLinger(0))
	case closeByFIN:
		_, err := c.server.Read(request[:])
		return err
	}
	return nil
}

// reset resets the clients' side of some connections.
func (r *relay) reset(t *testing.T, n int) {
	for _, c := range r.take(n) {
		if err := c.client.(*net.TCPConn).SetLinger(0); err != nil {
			t.Error(err)
		}
		c.client.Close()
	}
}

// turn moves some open connections to another server.
func (r *relay) turn(t *testing.T, n int, to netip.AddrPort) {
	for _, c := range r.take(n) {
		server, err := net.Dial("tcp4", to.String())
		if err != nil {
			t.Error(err)
			return
		}
		c.mu.Lock()
		c.server.Close()
		c.server = server
		c.mu.Unlock()
	}
}

// take returns the first connections, and removes them from the relay.
func (r *relay) take(n int) []*relayed {
	r.mu.Lock()
	defer r.mu.Unlock()
	taken := r.conns[:n]
	r.conns = r.conns[n:]
	return taken
}

const testConnections = 20

// holding returns a client that holds connections to target.
func holding(t *testing.T, target netip.AddrPort, also func(*Load)) *loadClient {
	t.Helper()
	load := Load{Target: target, Connections: testConnections, Pace: 20 * time.Millisecond, Timeout: 5 * time.Second,
		UDPPace: 20 * time.Millisecond, UDPTimeout: 5 * time.Second}
	if also != nil {
		also(&load)
	}
	var h *loadClient
	// A timeout of less than a second may be over before a process that was stopped has read the answer.
	testenv.Eventually(t, bound, "connections are held", func() bool {
		ctx, cancel := context.WithCancel(context.Background())
		opening := newLoadClient(ctx, load)
		err := opening.open(t.Context())
		if h = opening; err == nil {
			t.Cleanup(func() { cancel(); opening.group.Wait() })
			return true
		}
		cancel()
		opening.group.Wait()
		if causeOf(err) != Silent {
			t.Fatal(err)
		}
		return false
	})
	return h
}

// settled returns the counts once the effects of everything before have shown.
func settled(t *testing.T, h *loadClient) Counts {
	t.Helper()
	r, err := h.execute(t.Context(), order{Settle: bound})
	if err != nil {
		t.Fatal(err)
	}
	return *r.Counts
}

// bound is the time limit for everything in these tests.
const bound = 20 * time.Second

// awaited waits until a client's counts satisfy ok.
func awaited(t *testing.T, h *loadClient, what string, ok func(Counts) bool) {
	t.Helper()
	testenv.Eventually(t, bound, what, func() bool {
		c, err := h.counter.snapshot()
		return err == nil && ok(c)
	})
}

func TestNothingBreaksWhereNothingHappens(t *testing.T) {
	h := holding(t, serve(t, "a"), func(l *Load) { l.NewPerSecond, l.UDPPerSecond, l.UDPFlows = 100, 100, 3 })
	awaited(t, h, "answers", func(c Counts) bool { return c.Opened > 0 && c.Queries >= 20 })
	c := settled(t, h)
	if len(c.Broken) != 0 || len(c.Failed) != 0 || c.Unanswered != 0 || len(c.UDPMoved) != 0 {
		t.Errorf("got %+v, want nothing broken", c)
	}
	if c.Held["a"] != testConnections || c.Requests < testConnections || c.Latency == nil {
		t.Errorf("%d connections of %d held, %d requests", c.Held["a"], testConnections, c.Requests)
	}
}

func TestBreaksAreCountedByServerAndCause(t *testing.T) {
	a, b := serve(t, "a"), serve(t, "b")
	for name, tc := range map[string]struct {
		harm  func(*relay)
		cause Cause
		n     uint64
	}{
		"reset":                                 {func(r *relay) { r.reset(t, 3) }, Reset, 3},
		"moved":                                 {func(r *relay) { r.turn(t, 4, b) }, Moved, 4},
		"another connection of the same server": {func(r *relay) { r.turn(t, 2, a) }, Moved, 2},
	} {
		t.Run(name, func(t *testing.T) {
			r := startRelay(t, a)
			h := holding(t, r.target(), nil)
			h.counter.begin()
			tc.harm(r)
			c := settled(t, h)
			if got := c.Broken["a"][tc.cause]; got != tc.n {
				t.Errorf("%d broke by %s, want %d: %v", got, tc.cause, tc.n, c.Broken)
			}
			// Each broken connection has been replaced by another one.
			if c.Held["a"] != testConnections || c.Opened != tc.n || c.Late["a"]+c.Late["b"] > tc.n {
				t.Errorf("%v held, %d opened, late %v", c.Held, c.Opened, c.Late)
			}
			h.counter.begin()
			if c := settled(t, h); len(c.Broken) != 0 {
				t.Errorf("afterwards broke %v", c.Broken)
			}
		})
	}
}

func TestSilenceIsABreak(t *testing.T) {
	t.Parallel()
	r := startRelay(t, serve(t, "a"))
	h := holding(t, r.target(), func(l *Load) { l.Timeout = 300 * time.Millisecond })
	r.deaf.Store(true)
	// More may have broken before, if this process was stopped for as long as the timeout.
	awaited(t, h, "silence", func(c Counts) bool {
		return c.Broken["a"][Silent] >= testConnections && c.Held["a"] == 0 && c.Failed[Silent] > 0
	})
	if _, err := h.execute(t.Context(), order{Settle: 10 * time.Millisecond}); err == nil ||
		!strings.Contains(err.Error(), "opened again") {
		t.Errorf("settled although nothing is held: %v", err)
	}
	r.deaf.Store(false)
	awaited(t, h, "the connections again", func(c Counts) bool { return c.Held["a"] == testConnections })
}

func TestUDPFlowsThatTurnAreCounted(t *testing.T) {
	t.Parallel()
	a, b := serve(t, "a"), serve(t, "b")
	front, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { front.Close() })
	var to atomic.Value
	to.Store(a)
	go relayQueries(front, &to)
	load := Load{Target: netip.MustParseAddrPort(front.LocalAddr().String()), UDPFlows: 1,
		UDPPace: 10 * time.Millisecond, UDPTimeout: time.Second}
	ctx, cancel := context.WithCancel(context.Background())
	h := newLoadClient(ctx, load)
	t.Cleanup(func() { cancel(); h.group.Wait() })
	h.background()
	awaited(t, h, "answers", func(c Counts) bool { return c.Queries > 3 })
	to.Store(b)
	awaited(t, h, "a turn", func(c Counts) bool { return c.UDPMoved["a"] == 1 })
	to.Store(netip.AddrPort{})
	awaited(t, h, "silence", func(c Counts) bool { return c.Unanswered > 0 })
}

// relayQueries forwards one query at a time, and drops it if there is no server.
func relayQueries(front net.PacketConn, to *atomic.Value) {
	buffer := make([]byte, 1024)
	for {
		n, from, err := front.ReadFrom(buffer)
		if err != nil {
			return
		}
		at := to.Load().(netip.AddrPort)
		if !at.IsValid() {
			continue
		}
		conn, err := net.Dial("udp4", at.String())
		if err != nil {
			return
		}
		_, _ = conn.Write(buffer[:n])
		_ = conn.SetReadDeadline(time.Now().Add(time.Second))
		if n, err := conn.Read(buffer); err == nil {
			_, _ = front.WriteTo(buffer[:n], from)
		}
		conn.Close()
	}
}

func TestFlowsSayWhoAnswersAtAPort(t *testing.T) {
	h := holding(t, serve(t, "a"), nil)
	first := int(testenv.Port(t))
	for range 2 { // the ports are free again at once
		at, err := h.flows(t.Context(), first, 50)
		if err != nil {
			t.Fatal(err)
		}
		if len(at) < 10 {
			t.Errorf("only %d of 50 ports were tried", len(at))
		}
		for port, server := range at {
			if server != "a" || port < first || port >= first+50 {
				t.Errorf("port %d: %q", port, server)
			}
		}
	}
}

func TestAnswers(t *testing.T) {
	a, err := newAnswerer("web01")
	if err != nil {
		t.Fatal(err)
	}
	r := request{7, 9}
	good := a.answer(nil, r.bytes(), 3)
	if got, err := r.read(good); err != nil || got != (peer{"web01", 3}) {
		t.Errorf("got %+v, %v", got, err)
	}
	for name, answer := range map[string][]byte{
		"short": good[:len(good)-1], "long": append(append([]byte{}, good...), 0), "none": nil,
		"of another request": a.answer(nil, request{7, 8}.bytes(), 3),
	} {
		if _, err := r.read(answer); err == nil {
			t.Errorf("%s: taken for an answer", name)
		}
	}
	for _, name := range []string{"", strings.Repeat("x", nameBytes+1)} {
		if _, err := newAnswerer(name); err == nil {
			t.Errorf("%q is taken for a name", name)
		}
	}
}

func TestCountsAddUp(t *testing.T) {
	var sum Counts
	one := Counts{Held: map[string]uint64{"a": 1}, Broken: map[string]map[Cause]uint64{"a": {Reset: 2}},
		Requests: 3, Opened: 4,
		Failed: map[Cause]uint64{Refused: 5}, Late: map[string]uint64{"a": 6}, Queries: 7, Unanswered: 8,
		UDPMoved: map[string]uint64{"a": 9}}
	sum.Add(one)
	sum.Add(one)
	got, err := json.Marshal(sum)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"Held":{"a":2},"Broken":{"a":{"reset":4}},"Requests":6,"Opened":8,"Failed":{"refused":10},"Late":{"a":12},"Queries":14,"Unanswered":16,"UDPMoved":{"a":18}}`
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if one.Broken["a"][Reset] != 2 {
		t.Error("adding changed what was added")
	}
}

// TestServerAnswersHealthChecks: the server answers them over HTTP, at a port of their own.
func TestServerAnswersHealthChecks(t *testing.T) {
	at := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), testenv.Port(t))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- Server{Name: "web01", Port: testenv.Port(t), Health: at.Port()}.Serve(ctx) }()
	testenv.Eventually(t, bound, "a status", func() bool {
		response, err := http.Get("http://" + at.String() + "/")
		return err == nil && response.Body.Close() == nil && response.StatusCode == http.StatusOK
	})
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestEveryBreakIsKept: the age of each broken connection is known, however many broke.
func TestEveryBreakIsKept(t *testing.T) {
	const broken = 1200
	c := newCounter()
	for range broken {
		c.addHeld("web01")
		c.addBroken(Break{Server: "web01", Cause: Reset})
	}
	counts, err := c.snapshot()
	if err != nil || len(counts.Breaks) != broken || counts.Broken["web01"][Reset] != broken {
		t.Errorf("%d breaks are kept of %d that are counted, %v; want %d", len(counts.Breaks),
			counts.Broken["web01"][Reset], err, broken)
	}
}
