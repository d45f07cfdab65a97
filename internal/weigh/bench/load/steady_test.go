// SPDX-License-Identifier: Apache-2.0

package load

import (
	"bytes"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jeoul/jeoul/internal/test/testenv"
)

const steadyFile = 128

// serve answers with the file. fault may do something else instead.
func serve(t *testing.T, fault func(n int64, w http.ResponseWriter) (done bool)) netip.AddrPort {
	t.Helper()
	var count atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if !fault(count.Add(1), w) {
			w.Write(bytes.Repeat([]byte{'x'}, steadyFile))
		}
	}))
	t.Cleanup(server.Close)
	return netip.MustParseAddrPort(server.Listener.Addr().String())
}

func steadyOf(target netip.AddrPort) Steady {
	return Steady{
		Target: target, Path: "/dummy_file", FileBytes: steadyFile, Connections: 5,
		Every: 20 * time.Millisecond, New: 50,
		Phases: []Phase{{"", 50 * time.Millisecond}, {"quiet", 200 * time.Millisecond},
			{"flood", 100 * time.Millisecond}},
	}
}

// runAndRead runs a client and reads its output.
func (s Steady) runAndRead(t *testing.T) *SteadyReport {
	t.Helper()
	var out bytes.Buffer
	report, err := s.Run(t.Context(), &out, nil)
	if err != nil {
		t.Fatal(err)
	}
	if !SteadyOpened(out.Bytes()) {
		t.Errorf("its first line is %q", out.String())
	}
	text, err := json.Marshal(report)
	if err != nil {
		t.Fatal(err)
	}
	read, err := ParseSteady(append(out.Bytes(), text...))
	if err != nil {
		t.Fatal(err)
	}
	return read
}

func TestSteady(t *testing.T) {
	s := steadyOf(serve(t, func(int64, http.ResponseWriter) bool { return false }))
	r := s.runAndRead(t)
	for name, want := range map[string][2]uint64{"quiet": {50, 10}, "flood": {25, 5}} {
		p := r.Phase(name)
		// The phase of a request on the boundary depends on rounding.
		if p.Answered < want[0]-1 || p.Answered > want[0]+1 || p.Opened < want[1]-1 || p.Opened > want[1]+1 ||
			p.Unanswered+p.NotOpened+p.Lost() != 0 || len(p.Why) > 0 {
			t.Errorf("%s: %+v, want %d requests answered and %d connections opened", name, p, want[0], want[1])
		}
		if p.Latency.Count() != int64(p.Answered) || p.NewLatency.Count() != int64(p.Opened) || p.Latency.Ms(50) <= 0 ||
			p.Latency.MaxMs() < p.Latency.MinMs() {
			t.Errorf("%s: latencies of %d requests and %d connections", name, p.Latency.Count(), p.NewLatency.Count())
		}
	}
	var total uint64
	for _, p := range r.Phases {
		total += p.Answered
	}
	// 350 ms, in which 5 connections send a request every 20 ms.
	if total < 87 || total > 88 {
		t.Errorf("%d requests in all, want 87 or 88", total)
	}
}

// lines receives the lines that a client writes.
type lines chan string

func (l lines) Write(text []byte) (int, error) {
	l <- string(text)
	return len(text), nil
}

// TestSteadyIsTold ends phases by signals, and counts their requests.
func TestSteadyIsTold(t *testing.T) {
	var requests atomic.Int64
	s := steadyOf(serve(t, func(n int64, _ http.ResponseWriter) bool {
		requests.Store(n)
		return false
	}))
	s.New = 0
	next, written := make(chan os.Signal), make(lines, 1+len(s.Phases))
	type result struct {
		report *SteadyReport
		err    error
	}
	ended := make(chan result, 1)
	go func() {
		report, err := s.Run(t.Context(), written, next)
		ended <- result{report, err}
	}()
	printed := <-written
	if !SteadyOpened([]byte(printed)) {
		t.Fatalf("its first line is %q", printed)
	}
	for i := range s.Phases {
		before := requests.Load()
		testenv.Eventually(t, testenv.WaitLimit, "ten requests are made", func() bool { return requests.Load() >= before+10 })
		next <- os.Interrupt
		select {
		case line := <-written:
			printed += line
		case <-time.After(testenv.WaitLimit):
		}
		if SteadyEnded([]byte(printed)) != i+1 {
			t.Fatalf("after %d phases it has written %q", i+1, printed)
		}
	}
	r := <-ended
	if r.err != nil {
		t.Fatal(r.err)
	}
	text, err := json.Marshal(r.report)
	if err != nil {
		t.Fatal(err)
	}
	if read, err := ParseSteady(append([]byte(printed), text...)); err != nil || len(read.Phases) != len(s.Phases) {
		t.Errorf("what it has printed is read as %+v, %v", read, err)
	}
	var answered uint64
	for _, p := range r.report.Phases {
		answered += p.Answered
		if p.Answered < 5 || p.Lost()+p.Unanswered > 0 || p.Seconds <= 0 {
			t.Errorf("phase %q: %+v", p.Name, p)
		}
	}
	// The first request of each connection belongs to no phase.
	if want := uint64(requests.Load()) - uint64(s.Connections); answered != want {
		t.Errorf("%d requests answered, want %d", answered, want)
	}
}

// TestSteadyLosses lets the server break connections, and counts them.
func TestSteadyLosses(t *testing.T) {
	hijack := func(w http.ResponseWriter) *net.TCPConn {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
		}
		return conn.(*net.TCPConn)
	}
	for name, c := range map[string]struct {
		fault func(w http.ResponseWriter)
		lost  func(p PhaseReport) uint64
	}{
		"closed": {func(w http.ResponseWriter) { hijack(w).Close() }, func(p PhaseReport) uint64 { return p.Closed }},
		"reset": {func(w http.ResponseWriter) {
			conn := hijack(w)
			conn.SetLinger(0)
			conn.Close()
		}, func(p PhaseReport) uint64 { return p.Reset }},
		"status": {func(w http.ResponseWriter) {
			w.WriteHeader(http.StatusBadGateway)
			w.Write(bytes.Repeat([]byte{'x'}, steadyFile))
		}, func(p PhaseReport) uint64 { return p.Wrong }},
	} {
		t.Run(name, func(t *testing.T) {
			s := steadyOf(netip.AddrPort{})
			s.New = 0
			const after = 20
			s.Target = serve(t, func(n int64, w http.ResponseWriter) bool {
				if n == after {
					c.fault(w)
				}
				return n == after
			})
			var lost, all, answered, unanswered uint64
			for _, p := range s.runAndRead(t).Phases {
				lost += c.lost(p)
				all += p.Lost()
				answered += p.Answered
				unanswered += p.Unanswered
			}
			if lost != 1 || all != 1 {
				t.Errorf("%d connections lost so, %d in all; want 1", lost, all)
			}
			// Requests that the lost connection had yet to send are counted, too.
			if unanswered == 0 || answered+unanswered < 87 || answered+unanswered > 88 {
				t.Errorf("%d requests answered and %d not, want 87 or 88", answered, unanswered)
			}
		})
	}
}

func TestSteadyCannotBegin(t *testing.T) {
	s := steadyOf(serve(t, func(int64, http.ResponseWriter) bool { return false }))
	unserved := s
	unserved.Target = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), testenv.Port(t))
	if _, err := unserved.Run(t.Context(), &bytes.Buffer{}, nil); !errors.Is(err, ErrSteady) {
		t.Errorf("no server listens: got %v, want ErrSteady", err)
	}
	wrong := s
	wrong.FileBytes++
	if _, err := wrong.Run(t.Context(), &bytes.Buffer{}, nil); !errors.Is(err, ErrSteady) {
		t.Errorf("another file: got %v, want ErrSteady", err)
	}
	for name, change := range map[string]func(*Steady){
		"no target":     func(s *Steady) { s.Target = netip.AddrPort{} },
		"no connection": func(s *Steady) { s.Connections = 0 },
		"too often":     func(s *Steady) { s.Every = time.Microsecond },
		"no phases":     func(s *Steady) { s.Phases = nil },
		"large file":    func(s *Steady) { s.FileBytes = SteadyMaxFile + 1 },
		"too many requests": func(s *Steady) {
			s.Phases = []Phase{{"quiet", time.Minute}}
			s.Every = time.Millisecond
		},
		"less than none":     func(s *Steady) { s.New = -1 },
		"before it is asked": func(s *Steady) { s.Timeout = -1 },
		"for ever":           func(s *Steady) { s.Timeout = SteadyMaxTimeout + 1 },
	} {
		bad := s
		change(&bad)
		if _, err := bad.Run(t.Context(), &bytes.Buffer{}, nil); err == nil || errors.Is(err, ErrSteady) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestParseSteady(t *testing.T) {
	for name, text := range map[string]string{
		"nothing": "", "one line": "12345", "no report": "12345\n", "nonsense": "12345\n{]",
		"no latencies": "1\n" + `{"phases":[{"name":"quiet"}]}`,
		"no histogram": "1\n" + `{"phases":[{"name":"quiet","latency":{"histogram":"AAAA"},"new_latency":{}}]}`,
		"upside down": "1\n" + `{"phases":[{"name":"quiet","latency":{"min_us":2,"max_us":1},"new_latency":{}}]}` +
			strings.Repeat(" ", 3) + "x",
	} {
		if _, err := ParseSteady([]byte(text)); !errors.Is(err, ErrOutput) {
			t.Errorf("%s: got %v, want ErrOutput", name, err)
		}
	}
}
