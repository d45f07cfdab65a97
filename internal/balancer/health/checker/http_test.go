// SPDX-License-Identifier: Apache-2.0

package checker

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/health"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/test/testcert"
)

func httpCheck(want lb.HTTPCheck) lb.Check {
	return lb.Check{Type: lb.CheckHTTP, Via: lb.ViaAddress, Timeout: patiently, HTTP: &want}
}

// website is a handler with an answer for each of the tests' paths.
func website(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/healthz":
		fmt.Fprintf(w, "%s %s %s probe=%s\n", r.Method, r.Host, r.Proto, r.Header.Get("X-Probe"))
	case "/loop":
		http.Redirect(w, r, "/loop", http.StatusFound)
	case "/big":
		for range 1 << 14 { // 1 GiB
			if _, err := w.Write(make([]byte, 1<<16)); err != nil {
				return
			}
		}
	case "/hints":
		for range 3 {
			w.WriteHeader(http.StatusEarlyHints)
		}
		w.WriteHeader(http.StatusNoContent)
	case "/weight":
		if r.URL.RawQuery != "none" {
			w.Header().Set("X-Weight", r.URL.RawQuery)
		}
	case "/explode":
		w.Write(bytes.Repeat([]byte("a"), 1<<15))
	default:
		http.Error(w, "no", http.StatusServiceUnavailable)
	}
}

// web serves the website on loopback; with certificate (nil: none) over TLS. Both speak HTTP/1 and HTTP/2.
func web(t *testing.T, address string, secure *testcert.Authority) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: http.HandlerFunc(website), ErrorLog: log.New(io.Discard, "", 0),
		Protocols: new(http.Protocols)}
	s.Protocols.SetHTTP1(true)
	s.Protocols.SetHTTP2(true)
	s.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(func() { s.Close() })
	if secure != nil {
		s.TLSConfig = secure.Config(t, "www.example.com", time.Hour*24*90)
		go s.ServeTLS(l, "", "")
	} else {
		go s.Serve(l)
	}
	return l.Addr().(*net.TCPAddr).AddrPort()
}

func TestHTTP(t *testing.T) {
	for _, address := range loopbacks(t) {
		plainly := web(t, address, nil)
		for _, h2 := range []bool{false, true} {
			for _, c := range []struct {
				name    string
				check   lb.HTTPCheck
				outcome health.Outcome
				words   string
			}{
				{"usual", lb.HTTPCheck{Path: "/healthz"}, health.Passed, "status 200"},
				{"status", lb.HTTPCheck{Path: "/other"}, health.Failed,
					"answers GET /other with status 503, not 200..399"},
				{"status wanted",
					lb.HTTPCheck{Path: "/other", Status: []lb.StatusRange{{First: 204, Last: 204},
						{First: 500, Last: 599}}}, health.Passed, "status 503"},
				{"status of two",
					lb.HTTPCheck{Path: "/healthz", Status: []lb.StatusRange{{First: 204, Last: 204},
						{First: 500, Last: 599}}}, health.Failed, "with status 200, not 204 or 500..599"},
				{"method", lb.HTTPCheck{Method: "HEAD", Path: "/healthz"}, health.Passed, "status 200"},
				{"host and header", lb.HTTPCheck{Path: "/healthz", Host: "www.example.com",
					Headers: []lb.Header{{Name: "X-Probe", Value: "1"}},
					Body:    `^GET www\.example\.com HTTP/[12]\.\d probe=1\n$`}, health.Passed, "status 200"},
				{"body", lb.HTTPCheck{Path: "/healthz", Body: "^nothing$"}, health.Failed,
					`answers GET /healthz with a body that does not match "^nothing$"`},
				{"redirect loop", lb.HTTPCheck{Path: "/loop"}, health.Passed, "status 302"},
				{"big", lb.HTTPCheck{Path: "/big"}, health.Passed, "status 200"},
				{"big, with a pattern", lb.HTTPCheck{Path: "/big", Body: "x"}, health.Failed, "does not match"},
				{"informational", lb.HTTPCheck{Path: "/hints"}, health.Passed, "status 204"},
				{"expression that explodes elsewhere", lb.HTTPCheck{Path: "/explode", Body: "^(a+)+$"}, health.Passed,
					"status 200"},
				{"expression that explodes elsewhere and fails", lb.HTTPCheck{Path: "/explode", Body: "^(a|a|aa)*b$"},
					health.Failed, "does not match"},
				{"no expression", lb.HTTPCheck{Path: "/healthz", Body: "("}, health.NoEvidence, "pattern"},
				{"no path", lb.HTTPCheck{Path: "healthz"}, health.NoEvidence, "path"},
			} {
				t.Run(fmt.Sprintf("%s/h2=%t/%s", address, h2, c.name), func(t *testing.T) {
					c.check.HTTP2 = h2
					expect(t, check(t, plainly, httpCheck(c.check)), c.outcome, c.words)
				})
			}
		}
	}
}

// TestHTTPWeight: the weight that a response reports.
func TestHTTPWeight(t *testing.T) {
	server := web(t, "127.0.0.1:0", nil)
	for _, c := range []struct {
		query  string
		want   lb.ReportedWeight
		reason string
	}{
		{"7", lb.ReportedWeight{Known: true, Value: 7}, ""},
		{"0", lb.ReportedWeight{Known: true}, ""},
		{"65535", lb.ReportedWeight{Known: true, Value: 65535}, ""},
		{"none", lb.ReportedWeight{}, ""},
		{"65536", lb.ReportedWeight{}, `reports the weight "65536" in X-Weight, not a whole number`},
		{"-1", lb.ReportedWeight{}, `reports the weight "-1"`},
		{"much", lb.ReportedWeight{}, `reports the weight "much"`},
	} {
		asked := httpCheck(lb.HTTPCheck{Path: "/weight?" + c.query, WeightHeader: "X-Weight"})
		got := check(t, server, asked)
		if got.Outcome != health.Passed || !got.Reports || got.Reported != c.want ||
			!strings.Contains(got.Reason, c.reason) || c.reason == "" && got.Reason != "" {
			t.Errorf("%s: %+v, want %+v %s", c.query, got, c.want, c.reason)
		}
		asked.HTTP.WeightHeader = ""
		if got := check(t, server, asked); got.Reports {
			t.Errorf("%s: reports %+v, which no check asked for", c.query, got.Reported)
		}
	}
}

// TestHTTPFinishing: a response that fails the check and reports the weight 0 says that the backend takes no new flow.
func TestHTTPFinishing(t *testing.T) {
	server := web(t, "127.0.0.1:0", nil)
	for _, c := range []struct {
		query  string
		status uint16
		want   health.Outcome
	}{{"0", 204, health.Failed}, {"1", 204, health.Failed}, {"none", 204, health.Failed}, {"0", 200, health.Passed}} {
		asked := httpCheck(lb.HTTPCheck{Path: "/weight?" + c.query, WeightHeader: "X-Weight",
			Status: []lb.StatusRange{{First: c.status, Last: c.status}}})
		got := check(t, server, asked)
		if finishing := c.query == "0" && c.want == health.Failed; got.Outcome != c.want || got.Finishing != finishing {
			t.Errorf("%s, which is to have status %d: %+v", c.query, c.status, got)
		}
	}
}

// TestHTTPBadServers: whatever a server sends, a check ends at its timeout and names the fault.
func TestHTTPBadServers(t *testing.T) {
	t.Parallel()
	drip := func(c net.Conn, text string) {
		c.Write([]byte(text))
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for range tick.C {
			if _, err := c.Write([]byte("x")); err != nil {
				return
			}
		}
	}
	read := func(c net.Conn) { c.Read(make([]byte, 4096)) }
	const short = 300 * time.Millisecond
	for _, c := range []struct {
		name    string
		body    string
		timeout time.Duration
		handle  func(net.Conn)
		words   string
	}{
		{"drips its head", "", short, func(c net.Conn) { drip(c, "HTTP/1.1 200 OK\r\nX-A: ") },
			"does not answer within 300ms"},
		{"drips its body", "end", short, func(c net.Conn) { drip(c, "HTTP/1.1 200 OK\r\n\r\n") },
			"does not end its answer within 300ms"},
		{"is silent", "", short, func(c net.Conn) { io.Copy(io.Discard, c) }, "does not answer within 300ms"},
		{"has an endless head", "", patiently, func(c net.Conn) {
			c.Write([]byte("HTTP/1.1 200 OK\r\n"))
			for i := 0; ; i++ {
				if _, err := fmt.Fprintf(c, "X-%d: %s\r\n", i, strings.Repeat("a", 1000)); err != nil {
					return
				}
			}
		}, "answers with more than 64 KiB before the body"},
		{"has endless informational responses", "", patiently, func(c net.Conn) {
			for {
				if _, err := c.Write([]byte("HTTP/1.1 103 Early Hints\r\n\r\n")); err != nil {
					return
				}
			}
		}, "answers with more than 64 KiB before the body"},
		{"hangs up", "", patiently, read, "closes the connection before it answers"},
		{"speaks SSH", "", patiently, func(c net.Conn) { c.Write([]byte("SSH-2.0-OpenSSH_9.2\r\n")); read(c) },
			"does not speak HTTP"},
		{"resets", "", patiently, func(c net.Conn) { read(c); c.(*net.TCPConn).SetLinger(0) }, "resets the connection"},
	} {
		t.Run(c.name, func(t *testing.T) {
			to := serve(t, "127.0.0.1:0", c.handle)
			want := httpCheck(lb.HTTPCheck{Path: "/", Body: c.body})
			want.Timeout = c.timeout
			ask := check
			if c.body != "" {
				ask = checkInTime
			}
			expect(t, ask(t, to, want), health.Failed, c.words)
		})
	}
	t.Run("does not speak HTTP/2", func(t *testing.T) {
		to := serve(t, "127.0.0.1:0", func(c net.Conn) { read(c); c.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n")) })
		expect(t, check(t, to, httpCheck(lb.HTTPCheck{HTTP2: true})), health.Failed, "")
	})
}

// TestEndsWithoutReset: servers see the end of the stream, not a reset, also where they send more than is asked for.
func TestEndsWithoutReset(t *testing.T) {
	ended := make(chan error, 1)
	to := serve(t, "127.0.0.1:0", func(c net.Conn) {
		c.Read(make([]byte, 4096))
		c.Write([]byte("HTTP/1.1 200 OK\r\nContent-Length: 30000\r\n\r\n"))
		c.Write(make([]byte, 30000))
		_, err := c.Read(make([]byte, 1))
		ended <- err
	})
	expect(t, check(t, to, httpCheck(lb.HTTPCheck{Path: "/"})), health.Passed, "status 200")
	if err := <-ended; !errors.Is(err, io.EOF) {
		t.Errorf("the server read %v, expected the end of the stream", err)
	}
}
