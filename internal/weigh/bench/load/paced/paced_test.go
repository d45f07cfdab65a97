// SPDX-License-Identifier: Apache-2.0

package paced

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jeoul/jeoul/internal/test/testenv"
	"github.com/jeoul/jeoul/internal/weigh/bench/load"
	"github.com/jeoul/jeoul/internal/weigh/bench/probe"
)

const fileBytes = 70_000 // more than a read takes

// serve answers with the file. fault may do something else instead.
func serve(t *testing.T, fault func(n int64, w http.ResponseWriter) (done bool)) (netip.AddrPort, *atomic.Int64) {
	t.Helper()
	var requests, connections atomic.Int64
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if fault == nil || !fault(requests.Add(1), w) {
			w.Header().Set("Content-Length", fmt.Sprint(fileBytes))
			w.Write(bytes.Repeat([]byte{'x'}, fileBytes))
		}
	}))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	server.Start()
	t.Cleanup(server.Close)
	return netip.MustParseAddrPort(server.Listener.Addr().String()), &connections
}

func optionsOf(target netip.AddrPort) Options {
	return Options{Target: target, Path: "/dummy_file", FileBytes: fileBytes, Rate: 200,
		Duration: 250 * time.Millisecond, Connections: 50}
}

// ask runs a client and reads its output.
func (o Options) ask(t *testing.T) (*Report, *load.Outcome) {
	t.Helper()
	report, err := o.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(report)
	if err != nil {
		t.Fatal(err)
	}
	outcome, err := Kind{Bound: o.Bound}.Parse(load.Share{}, text)
	if err != nil {
		t.Fatal(err)
	}
	return report, outcome
}

func TestPaced(t *testing.T) {
	target, connections := serve(t, nil)
	for _, keep := range []bool{false, true} {
		connections.Store(0)
		o := optionsOf(target)
		o.Keep, o.Delay = keep, 2*time.Millisecond
		if keep { // fewer than requests: a client that was stopped sends all that are due at once
			o.Connections = 10
		}
		report, outcome := o.ask(t)
		// 200 per second for 248 ms.
		if report.Due != 49 || report.Answered != 49 || outcome.Requests != 49 || outcome.Failed != 0 ||
			len(outcome.Problems) > 0 {
			t.Errorf("keep %v: %+v, %+v", keep, report, outcome)
		}
		// The last request is due 240 ms after the first.
		if outcome.Taken < 242*time.Millisecond || report.Latency.MinMs() <= 0 {
			t.Errorf("keep %v: it took %v, least latency %g ms", keep, outcome.Taken, report.Latency.MinMs())
		}
		if n := connections.Load(); (n == 49) == keep {
			t.Errorf("keep %v: %d connections", keep, n)
		}
	}
}

// TestNothingIsOmitted stalls the server once. All requests that were due during the stall must show it, although there
// is only one connection.
func TestNothingIsOmitted(t *testing.T) {
	const stall = 150 * time.Millisecond
	var began sync.Once
	target, _ := serve(t, func(n int64, _ http.ResponseWriter) bool {
		if n == 5 {
			began.Do(func() { <-time.After(stall) })
		}
		return false
	})
	o := optionsOf(target)
	o.Keep, o.Connections = true, 1
	report, outcome := o.ask(t)
	if report.Answered != report.Due || report.Due != 50 {
		t.Fatalf("%+v", report)
	}
	// 30 requests were due in the stall, the first one at its beginning. At 200 per second, half of them waited for
	// half of the stall or more.
	if p80 := report.Latency.Ms(80); p80 < 40 || report.Latency.MaxMs() < 150 {
		t.Errorf("a fifth of the requests waited %g ms or more, the longest %g ms", p80, report.Latency.MaxMs())
	}
	if report.Waited < 20 || len(outcome.Notes) != 1 || !strings.Contains(outcome.Notes[0], "had to wait") {
		t.Errorf("%d requests waited for a connection; notes %q", report.Waited, outcome.Notes)
	}
}

// TestGiveUp checks that a client ends early if the bound cannot be kept.
func TestGiveUp(t *testing.T) {
	target, _ := serve(t, func(int64, http.ResponseWriter) bool {
		<-time.After(100 * time.Millisecond)
		return false
	})
	o := optionsOf(target)
	o.Bound, o.Duration = 20*time.Millisecond, time.Minute
	report, outcome := o.ask(t)
	if !report.GaveUp || report.Answered+report.Failed != report.Due || len(outcome.Problems) != 1 ||
		!strings.Contains(outcome.Problems[0], "more than 1 % of the requests took longer than 20ms") {
		t.Errorf("%+v, %+v", report, outcome)
	}
}

// TestServerEndsConnections lets the server close kept connections, after announcing that in a header.
func TestServerEndsConnections(t *testing.T) {
	target, connections := serve(t, func(n int64, w http.ResponseWriter) bool {
		if n%5 == 0 {
			w.Header().Set("Connection", "close")
		}
		return false
	})
	o := optionsOf(target)
	o.Keep, o.Connections = true, 3
	report, _ := o.ask(t)
	if report.Answered != 50 || connections.Load() < 10 {
		t.Errorf("%+v over %d connections", report, connections.Load())
	}
}

func TestTrouble(t *testing.T) {
	for name, tc := range map[string]struct {
		fault func(n int64, w http.ResponseWriter) bool
		says  string
	}{
		"error": {func(n int64, w http.ResponseWriter) bool {
			if n == 3 {
				http.Error(w, "no", http.StatusServiceUnavailable)
			}
			return n == 3
		}, "503"},
		"other length": {func(n int64, w http.ResponseWriter) bool {
			if n == 3 {
				io.WriteString(w, "short")
			}
			return n == 3
		}, "its length is 5"},
		"cut off": {func(n int64, w http.ResponseWriter) bool {
			if n == 3 {
				conn, _, err := w.(http.Hijacker).Hijack()
				if err == nil {
					conn.Close()
				}
			}
			return n == 3
		}, ""},
	} {
		for _, keep := range []bool{false, true} {
			target, _ := serve(t, tc.fault)
			o := optionsOf(target)
			o.Keep = keep
			report, outcome := o.ask(t)
			if report.Failed != 1 || report.Answered != 49 || len(outcome.Problems) != 1 ||
				!strings.Contains(outcome.Problems[0], "1 of 50 requests failed") ||
				!strings.Contains(outcome.Problems[0], tc.says) {
				t.Errorf("%s, keep %v: %+v, %q", name, keep, report, outcome.Problems)
			}
		}
	}
}

func TestNoServerListens(t *testing.T) {
	unserved := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), testenv.Port(t))
	report, outcome := optionsOf(unserved).ask(t)
	if report.Failed != 50 || report.Answered != 0 || !strings.Contains(outcome.Problems[0], "refused") {
		t.Errorf("%+v, %+v", report, outcome)
	}
}

func TestCanceled(t *testing.T) {
	target, _ := serve(t, nil)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	o := optionsOf(target)
	o.Duration = time.Minute
	if _, err := o.Run(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

func TestCheck(t *testing.T) {
	good := optionsOf(netip.MustParseAddrPort("127.0.0.1:80"))
	if err := good.Check(); err != nil {
		t.Error(err)
	}
	for says, change := range map[string]func(*Options){
		"an address":             func(o *Options) { o.Target = netip.AddrPort{} },
		"a path":                 func(o *Options) { o.Path = "" },
		"a file of 0":            func(o *Options) { o.FileBytes = 0 },
		"0 requests a second":    func(o *Options) { o.Rate = 0 },
		"2e+06 requests":         func(o *Options) { o.Rate = 2e6 },
		"the first request":      func(o *Options) { o.Delay = time.Hour },
		"0 connections":          func(o *Options) { o.Connections = 0 },
		"is not possible; use u": func(o *Options) { o.Duration = 0 },
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
		got := Kind{}.SkipReason(load.Share{Concurrency: connections}, limits)
		if !strings.Contains(got, says) || (says == "") != (got == "") {
			t.Errorf("%d connections: %q, want %q", connections, got, says)
		}
	}
}

// FuzzAnswer splits answers in two: the position of the split must not matter.
func FuzzAnswer(f *testing.F) {
	f.Add([]byte("HTTP/1.1 200 OK\r\nServer: nginx\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello"), 30)
	f.Add([]byte("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhelloo"), 50)
	f.Add([]byte("HTTP/1.1 404 Not Found\r\n\r\n"), 0)
	f.Add([]byte("HTTP/1.1 200 OK\r\nContent-Length: five\r\n\r\n"), 3)
	f.Fuzz(func(t *testing.T, data []byte, cut int) {
		var whole, parts answer
		errWhole := whole.take(data, 5)
		cut = min(max(cut, 0), len(data))
		errParts := parts.take(data[:cut], 5)
		if errParts == nil && (cut < len(data) || cut == 0) && cut != len(data) {
			errParts = parts.take(data[cut:], 5)
		}
		if (errWhole == nil) != (errParts == nil) || errWhole == nil &&
			(whole.whole != parts.whole || whole.closes != parts.closes) {
			// An overlong head may be complete in time if it arrives in one piece.
			if len(data) <= maxHead {
				t.Errorf("in one piece %v, %+v; cut at %d %v, %+v", errWhole, whole, cut, errParts, parts)
			}
		}
		for _, err := range []error{errWhole, errParts} {
			if err != nil && !errors.Is(err, errAnswer) {
				t.Errorf("%v does not say that it is no answer", err)
			}
		}
	})
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"due":2,"failed":2,"latency":{}}`))
	f.Add([]byte(`{"due":2,"answered":3,"latency":{}}`))
	f.Add([]byte("{}"))
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := Parse(text)
		if err != nil {
			if !errors.Is(err, load.ErrOutput) {
				t.Errorf("%v does not say that it is no report", err)
			}
			return
		}
		if r.Answered+r.Failed != r.Due || uint64(r.Latency.Count()) != r.Answered {
			t.Errorf("accepted %+v", r)
		}
	})
}
