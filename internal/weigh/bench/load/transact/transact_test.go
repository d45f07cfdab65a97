// SPDX-License-Identifier: Apache-2.0

package transact

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/jeoul/jeoul/internal/test/testenv"
	"github.com/jeoul/jeoul/internal/weigh/bench/load"
	"github.com/jeoul/jeoul/internal/weigh/bench/load/epoll"
	"github.com/jeoul/jeoul/internal/weigh/bench/probe"
)

// freePort returns a port of the loopback address that only servers of the test listen at.
func freePort(t *testing.T) netip.AddrPort {
	t.Helper()
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), testenv.Port(t))
}

// serve runs a server until the test ends.
func serve(t *testing.T) Server {
	t.Helper()
	s := Server{Closing: freePort(t), Keeping: freePort(t)}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	for deadline := time.Now().Add(10 * time.Second); ; {
		conn, err := net.Dial("tcp", s.Keeping.String())
		if err == nil {
			conn.Close()
			// The other port may have been opened after this one.
			if conn, err = net.Dial("tcp", s.Closing.String()); err == nil {
				conn.Close()
				return s
			}
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

func (s Server) of(test Test) netip.AddrPort {
	if test == CRR {
		return s.Closing
	}
	return s.Keeping
}

func TestTransactions(t *testing.T) {
	s := serve(t)
	for _, test := range []Test{CRR, RR} {
		for _, connections := range []int{1, 20} {
			o, outcome := enough(t, Options{Test: test, Target: s.of(test), Connections: connections})
			if outcome.Requests < uint64(connections) || outcome.Failed != 0 || outcome.Taken < o.Duration ||
				len(outcome.Problems) > 0 ||
				(connections > 1) != (outcome.Drained > 0) ||
				outcome.Latency.Count() != int64(outcome.Requests) || outcome.Latency.MinMs() <= 0 {
				t.Errorf("%s, %d: %+v", test, connections, outcome)
			}
		}
	}
}

// enough repeats a test with longer durations until there is a transaction on each connection, on however busy a
// machine.
func enough(t *testing.T, o Options) (Options, *load.Outcome) {
	t.Helper()
	for o.Duration = 100 * time.Millisecond; ; o.Duration *= 2 {
		report, err := o.Run(t.Context())
		if err != nil {
			t.Fatalf("%s, %d: %v", o.Test, o.Connections, err)
		}
		text, err := json.Marshal(report)
		if err != nil {
			t.Fatal(err)
		}
		outcome, err := Kind{Test: o.Test}.Parse(load.Share{}, text)
		if err != nil {
			t.Fatal(err)
		}
		if outcome.Requests >= uint64(o.Connections) || o.Duration > 20*time.Second {
			return o, outcome
		}
	}
}

// TestServerCloses checks which side closes: TCP_CRR's server closes at once, and TCP_RR's server does not.
func TestServerCloses(t *testing.T) {
	s := serve(t)
	for _, test := range []Test{CRR, RR} {
		conn, err := net.Dial("tcp", s.of(test).String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if err := conn.SetDeadline(time.Now().Add(testenv.WaitLimit)); err != nil {
			t.Fatal(err)
		}
		for _, asked := range []string{"a", "b"} {
			if _, err := io.WriteString(conn, asked); err != nil {
				t.Fatal(err)
			}
			answer := make([]byte, 2)
			if n, err := conn.Read(answer); err != nil || string(answer[:n]) != asked {
				t.Errorf("%s answered %q, %v; want %q", test, answer[:n], err, asked)
			}
			if test == CRR {
				if n, err := conn.Read(answer); n != 0 || !errors.Is(err, io.EOF) {
					t.Errorf("%s sent %d bytes behind the answer, %v; want its end", test, n, err)
				}
				break
			}
		}
	}
}

// TestServerMisbehaves lets a server break the protocol.
func TestServerMisbehaves(t *testing.T) {
	for name, tc := range map[string]struct {
		test   Test
		answer string
		says   string
	}{
		"closes early":      {CRR, "", epoll.ErrEarly.Error()},
		"says too much":     {CRR, "??", errMore.Error()},
		"closes a kept one": {RR, "?", epoll.ErrEarly.Error()},
	} {
		for _, connections := range []int{1, 3} {
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer listener.Close()
			go func() {
				for {
					conn, err := listener.Accept()
					if err != nil {
						return
					}
					conn.Read(make([]byte, 1))
					io.WriteString(conn, tc.answer)
					conn.Close()
				}
			}()
			o := Options{Test: tc.test, Target: netip.MustParseAddrPort(listener.Addr().String()),
				Connections: connections}
			var outcome *load.Outcome
			// The time may be over before a client that was stopped has made a second transaction.
			for o.Duration = 20 * time.Millisecond; ; o.Duration *= 2 {
				report, err := o.Run(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				text, _ := json.Marshal(report)
				if outcome, err = (Kind{Test: tc.test}).Parse(load.Share{}, text); err != nil {
					t.Fatal(err)
				}
				if outcome.Failed > 0 || o.Duration > 20*time.Second {
					break
				}
			}
			// Which end of a broken connection is noticed first depends on timing.
			if outcome.Failed == 0 || len(outcome.Problems) != 1 ||
				!strings.Contains(outcome.Problems[0], tc.says) && !strings.Contains(outcome.Problems[0], "reset") {
				t.Errorf("%s, %d connections: %+v; want it to say %s", name, connections, outcome, tc.says)
			}
		}
	}
}

func TestNoServerListens(t *testing.T) {
	for _, test := range []Test{CRR, RR} {
		for _, connections := range []int{1, 3} {
			report, err := Options{Test: test, Target: freePort(t), Connections: connections,
				Duration: 10 * time.Millisecond}.Run(t.Context())
			if test == RR {
				if err == nil {
					t.Errorf("%s began although no server listens", test)
				}
				continue
			}
			if err != nil || report.Failed == 0 || report.Transactions != 0 {
				t.Errorf("%s, %d connections: %+v, %v", test, connections, report, err)
			}
		}
	}
}

func TestCanceled(t *testing.T) {
	s := serve(t)
	for _, connections := range []int{1, 3} {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		_, err := Options{Test: RR, Target: s.Keeping, Connections: connections, Duration: time.Minute}.Run(ctx)
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%d connections: %v", connections, err)
		}
	}
}

func TestCheck(t *testing.T) {
	good := Options{Test: CRR, Target: netip.MustParseAddrPort("127.0.0.1:7"), Connections: 1, Duration: time.Second}
	if err := good.Check(); err != nil {
		t.Error(err)
	}
	for says, change := range map[string]func(*Options){
		"is not a test":      func(o *Options) { o.Test = "udp_rr" },
		"an address":         func(o *Options) { o.Target = netip.AddrPort{} },
		"0 connections":      func(o *Options) { o.Connections = 0 },
		"1ms is not":         func(o *Options) { o.Duration = time.Millisecond },
		"use 10ms to 1h0m0s": func(o *Options) { o.Duration = 24 * time.Hour },
	} {
		bad := good
		change(&bad)
		if err := bad.Check(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%+v: %v, want it to say %s", bad, err, says)
		}
		if _, err := bad.Run(t.Context()); err == nil {
			t.Errorf("%+v ran", bad)
		}
	}
}

func TestSkipReason(t *testing.T) {
	limits := probe.Limits{OpenFiles: 100, LocalPorts: 50}
	for connections, says := range map[int]string{10: "", 60: "50 local ports", 90: "122 open files"} {
		got := Kind{Test: RR}.SkipReason(load.Share{Concurrency: connections}, limits)
		if !strings.Contains(got, says) || (says == "") != (got == "") {
			t.Errorf("%d connections: %q, want %q", connections, got, says)
		}
	}
}

func FuzzParse(f *testing.F) {
	report := Report{Latency: load.NewLatency(), Seconds: 1}
	report.ended(time.Millisecond)
	text, err := json.Marshal(report)
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range []string{string(text), "", "{}", `{"transactions":1,"seconds":1,"latency":{}}`,
		`{"seconds":-1,"latency":{}}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := Parse(text)
		if err != nil {
			if !errors.Is(err, load.ErrOutput) {
				t.Errorf("%v does not say that it is no report", err)
			}
			return
		}
		if r.Seconds <= 0 || uint64(r.Latency.Count()) != r.Transactions {
			t.Errorf("accepted %+v", r)
		}
	})
}
