// SPDX-License-Identifier: Apache-2.0

package live

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"golang.org/x/sys/unix"
)

// Cause is how a connection broke, or why a new one failed.
type Cause string

// The causes.
const (
	// Reset: a TCP reset arrived.
	Reset Cause = "reset"
	// Closed: the other side closed the connection.
	Closed Cause = "closed"
	// Silent: no answer arrived within the client's timeout.
	Silent Cause = "silent"
	// Moved: another server answered, or the same server over another connection.
	Moved Cause = "moved"
	// Wrong: the answer did not belong to its request.
	Wrong Cause = "wrong"
	// Refused: a new connection was refused.
	Refused Cause = "refused"
	// Other: none of these.
	Other Cause = "other"
)

var errMoved = errors.New("another backend answered")

// causeOf returns the cause for an error of a connection.
func causeOf(err error) Cause {
	var timeout net.Error
	switch {
	case errors.Is(err, errMoved):
		return Moved
	case errors.Is(err, errWrong):
		return Wrong
	case errors.Is(err, unix.ECONNRESET), errors.Is(err, unix.EPIPE):
		return Reset
	case errors.Is(err, unix.ECONNREFUSED):
		return Refused
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return Closed
	case errors.As(err, &timeout) && timeout.Timeout():
		return Silent
	}
	return Other
}

// Counts has the events of a client's connections and queries since the last reset of the counts, and the connections
// that the client holds now.
type Counts struct {
	// Held counts the open connections that had an answer, by server.
	Held map[string]uint64
	// Broken counts the broken connections, by their server and the cause.
	Broken map[string]map[Cause]uint64
	// Requests counts the correctly answered requests over held connections.
	Requests uint64
	// Opened counts new connections that were answered correctly, Failed those that were not. Late counts those of
	// Opened that began after the last Settle, by server.
	Opened uint64
	Failed map[Cause]uint64
	// LostNew are the times when the connections of Failed began.
	LostNew Timestamps `json:",omitempty"`
	Late    map[string]uint64
	// Queries counts the UDP queries, Unanswered those without an answer. Turned counts answers to a UDP flow from
	// another server than the previous one, by the previous server.
	Queries, Unanswered uint64
	UDPMoved            map[string]uint64
	// LostQueries are the times when the queries of Unanswered were sent.
	LostQueries Timestamps `json:",omitempty"`
	// ReusedAnswered counts the answered connections from reused ports. ReusedLostAt are the times when the unanswered
	// ones began. PortsInUse counts those that could not be tried, because the port was still in use. LostSYNs are the
	// times of the SYNs, first ones and others, after which the kernel had to send another.
	ReusedAnswered, PortsInUse uint64     `json:",omitempty"`
	ReusedLostAt, LostSYNs     Timestamps `json:",omitempty"`
	// ReusedFailed counts ReusedLostAt by cause.
	ReusedFailed map[Cause]uint64 `json:",omitempty"`
	// Reconnected counts connections that were opened again from the same port after their server had ended the one
	// before while it was in use, by the server that answered.
	Reconnected map[string]uint64 `json:",omitempty"`
	// Breaks are the connections of Broken.
	Breaks []Break `json:",omitempty"`
	// Latency is the histogram of the latencies of all requests over connections, in microseconds, as package
	// hdrhistogram encodes it; nil if there were none.
	Latency []byte `json:",omitempty"`
	// Percentiles are those of the latencies of all clients together, which ClientGroup computes; nil if there were
	// none.
	Percentiles *Percentiles `json:"-"`
}

// Timestamps are times, in microseconds since 1970. Clients and the bench share one clock.
type Timestamps []int64

func (m *Timestamps) add(at time.Time) { *m = append(*m, at.UnixMicro()) }

// Before counts the moments before a time.
func (m Timestamps) Before(at time.Time) (n int) {
	for _, one := range m {
		if one < at.UnixMicro() {
			n++
		}
	}
	return n
}

// Last returns the latest moment; false if there are none.
func (m Timestamps) Last() (time.Time, bool) {
	if len(m) == 0 {
		return time.Time{}, false
	}
	return time.UnixMicro(slices.Max(m)), true
}

// Break is a broken connection.
type Break struct {
	// Local is the client's address and port of the connection.
	Local  netip.AddrPort
	Server string
	Cause  Cause
	// Age is how long the connection had been open.
	Age time.Duration
	// At is when the client found the connection broken. Clients and the bench share one clock.
	At time.Time
}

// String returns "198.18.1.2:40000 of web03, reset when it was 3.2s old".
func (b Break) String() string {
	return fmt.Sprintf("%s of %s, %s when it was %v old", b.Local, b.Server, b.Cause, b.Age.Round(100*time.Millisecond))
}

// Percentiles are latencies in milliseconds.
type Percentiles struct{ P50, P99, Max float64 }

// Add adds the counts of another client, without latencies.
func (c *Counts) Add(other Counts) {
	c.Held = sum(c.Held, other.Held)
	c.Late = sum(c.Late, other.Late)
	c.UDPMoved = sum(c.UDPMoved, other.UDPMoved)
	c.Failed = sum(c.Failed, other.Failed)
	for server, broken := range other.Broken {
		if c.Broken == nil {
			c.Broken = map[string]map[Cause]uint64{}
		}
		c.Broken[server] = sum(c.Broken[server], broken)
	}
	c.Breaks = append(c.Breaks, other.Breaks...)
	c.Requests += other.Requests
	c.Opened += other.Opened
	c.Queries += other.Queries
	c.Unanswered += other.Unanswered
	c.LostQueries = append(c.LostQueries, other.LostQueries...)
	c.ReusedAnswered += other.ReusedAnswered
	c.PortsInUse += other.PortsInUse
	c.LostNew = append(c.LostNew, other.LostNew...)
	c.ReusedLostAt = append(c.ReusedLostAt, other.ReusedLostAt...)
	c.LostSYNs = append(c.LostSYNs, other.LostSYNs...)
	if len(other.ReusedFailed) > 0 {
		c.ReusedFailed = sum(c.ReusedFailed, other.ReusedFailed)
	}
	if len(other.Reconnected) > 0 {
		c.Reconnected = sum(c.Reconnected, other.Reconnected)
	}
}

// sum adds the second of two maps of counts to the first, which may be nil.
func sum[K comparable](a, b map[K]uint64) map[K]uint64 {
	if a == nil {
		a = map[K]uint64{}
	}
	for key, n := range b {
		a[key] += n
	}
	return a
}

// maxLatency is the largest latency that is recorded, in microseconds.
const maxLatency = int64(time.Minute / time.Microsecond)

// counter counts for a client. The zero value is not ready; see newCounter.
type counter struct {
	mu      sync.Mutex
	held    map[string]uint64
	counts  Counts
	latency *hdrhistogram.Histogram
}

func newCounter() *counter {
	c := &counter{held: map[string]uint64{}, latency: hdrhistogram.New(1, maxLatency, 3)}
	c.begin()
	return c
}

// begin resets all counts but those of held connections.
func (c *counter) begin() {
	c.change(func() {
		c.counts = Counts{Broken: map[string]map[Cause]uint64{}, Failed: map[Cause]uint64{},
			Late: map[string]uint64{}, UDPMoved: map[string]uint64{}, Reconnected: map[string]uint64{}}
		c.latency.Reset()
	})
}

// change runs f while no other goroutine counts.
func (c *counter) change(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

// addHeld counts a held connection of a server.
func (c *counter) addHeld(server string) {
	c.change(func() { c.held[server]++ })
}

// addAnswered counts a request and its latency.
func (c *counter) addAnswered(took time.Duration) {
	c.change(func() {
		c.counts.Requests++
		// The value is in range, so RecordValue cannot fail.
		_ = c.latency.RecordValue(min(max(took.Microseconds(), 1), maxLatency))
	})
}

// addBroken counts a broken connection.
func (c *counter) addBroken(b Break) {
	c.change(func() {
		c.held[b.Server]--
		if c.counts.Broken[b.Server] == nil {
			c.counts.Broken[b.Server] = map[Cause]uint64{}
		}
		c.counts.Broken[b.Server][b.Cause]++
		c.counts.Breaks = append(c.counts.Breaks, b)
	})
}

// reuseResult is the result of a connection from a reused port.
type reuseResult struct {
	began time.Time
	from  peer
	lost  []time.Time
	// again means that its server ended the previous one.
	again bool
	err   error
}

// addReused counts a connection from a reused port; late means that it began after the last settle.
func (c *counter) addReused(l reuseResult, late bool) {
	c.change(func() {
		for _, at := range l.lost {
			c.counts.LostSYNs.add(at)
		}
		if l.err != nil {
			c.counts.ReusedLostAt.add(l.began)
			c.counts.ReusedFailed = sum(c.counts.ReusedFailed, map[Cause]uint64{causeOf(l.err): 1})
			return
		}
		c.counts.ReusedAnswered++
		if late {
			c.counts.Late[l.from.Server]++
		}
		if l.again {
			c.counts.Reconnected[l.from.Server]++
		}
	})
}

// snapshot returns the counts until now.
func (c *counter) snapshot() (counts Counts, err error) {
	c.change(func() {
		counts = Counts{}
		counts.Add(c.counts)
		counts.Held = sum(nil, c.held)
		if c.latency.TotalCount() > 0 {
			counts.Latency, err = c.latency.Encode(hdrhistogram.V2CompressedEncodingCookieBase)
		}
	})
	return counts, err
}
