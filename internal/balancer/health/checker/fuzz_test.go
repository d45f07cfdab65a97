// SPDX-License-Identifier: Apache-2.0

package checker

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/jeoul/jeoul/internal/balancer/health"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// checkAnswer fails unless the answer is one that a log and a terminal can bear, and judges the endpoint: bytes that an
// endpoint sends are never this host's trouble.
func checkAnswer(t *testing.T, a health.Answer) {
	t.Helper()
	if a.Outcome == health.NoEvidence {
		t.Errorf("no evidence: %+v", a)
	}
	if (a.Outcome == health.Failed) != (a.Reason != "") {
		t.Errorf("a reason that does not fit the outcome: %+v", a)
	}
	const most = 1000
	for _, text := range []string{a.Text, a.Reason} {
		if len(text) > most || strings.ContainsFunc(text, func(r rune) bool {
			return r < ' ' || r == 0x7f || r == '\uFFFD'
		}) {
			t.Errorf("%d bytes, or not to be printed: %q", len(text), text)
		}
	}
}

func FuzzAgent(f *testing.F) {
	for _, line := range []string{"up\n", "75%", "drain # 1\n", "down out of disk", "maxconn:1 ready 10%\r\n", "\x00",
		"%", "-1%", strings.Repeat("a", 3000)} {
		f.Add([]byte(line))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		line, err := readLine(bytes.NewReader(data))
		if err != nil || len(line) > lineBytes {
			t.Fatalf("%d bytes, %v", len(line), err)
		}
		a := evaluateAgent(line)
		checkAnswer(t, a)
		if a.Weighs && a.Weight > 25600 {
			t.Errorf("a share of %d %%", a.Weight)
		}
	})
}

func FuzzUDP(f *testing.F) {
	f.Add([]byte("pong"), []byte("po"))
	f.Add([]byte(nil), []byte("\xff\x00"))
	f.Fuzz(func(t *testing.T, data, expect []byte) {
		a := evaluateDatagram(data, expect)
		checkAnswer(t, a)
		if (a.Outcome == health.Passed) != strings.HasPrefix(string(data), string(expect)) {
			t.Errorf("%+v", a)
		}
	})
}

func FuzzDNS(f *testing.F) {
	query := new(dns.Msg)
	query.SetQuestion("www.example.com.", dns.TypeA)
	query.Id = 0x3a3a
	answer := new(dns.Msg)
	answer.SetReply(query)
	for _, text := range []string{"www.example.com. 60 IN A 192.0.2.1", `www.example.com. 60 IN TXT "a\255\000"`,
		"www.example.com. 60 IN CNAME example.net."} {
		record, err := dns.NewRR(text)
		if err != nil {
			f.Fatal(err)
		}
		answer.Answer = append(answer.Answer, record)
		packed, _ := answer.Pack()
		f.Add(packed)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		response := responseTo(query, data)
		if response == nil {
			return
		}
		checkAnswer(t, evaluateDNS(response, &lb.DNSCheck{Name: "www.example.com", Type: "A"}))
		checkAnswer(t, evaluateDNS(response, &lb.DNSCheck{Name: "www.example.com", Type: "A", Answer: "192.0.2.1"}))
	})
}

func FuzzGRPC(f *testing.F) {
	f.Add(frame([]byte{8, 1}), "0", 200)
	f.Add(frame(nil), "12", 200)
	f.Add([]byte{1, 0, 0, 0, 2, 8, 1}, "", 404)
	f.Add(frame([]byte{8, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f}), "\n", 200)
	f.Fuzz(func(t *testing.T, body []byte, code string, status int) {
		response := &http.Response{StatusCode: status, Trailer: http.Header{"Grpc-Status": {code}}}
		for _, service := range []string{"", "a service\n"} {
			a := evaluateGRPC(response, body, service)
			checkAnswer(t, a)
			if a.Outcome == health.Passed && (status != 200 || code != "0" || !bytes.HasPrefix(body, []byte{0})) {
				t.Errorf("%+v", a)
			}
		}
	})
}

// wire is a connection on which data has come.
type wire struct{ io.Reader }

func (wire) Write(b []byte) (int, error)      { return len(b), nil }
func (wire) Close() error                     { return nil }
func (wire) LocalAddr() net.Addr              { return nil }
func (wire) RemoteAddr() net.Addr             { return nil }
func (wire) SetDeadline(time.Time) error      { return nil }
func (wire) SetReadDeadline(time.Time) error  { return nil }
func (wire) SetWriteDeadline(time.Time) error { return nil }

func FuzzHTTP(f *testing.F) {
	for _, text := range []string{
		"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", "HTTP/1.1 103 Early\r\n\r\nHTTP/1.0 503 No\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n", "HTTP/1.1 999999 X\r\n\r\n",
		"SSH-2.0-x\r\n", "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
	} {
		f.Add([]byte(text))
	}
	pattern, err := patterns.get("ok")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		a := &ask{ctx: t.Context(), check: &lb.Check{Timeout: time.Second}}
		request, err := a.request(&lb.HTTPCheck{Path: "/", Host: "example.com"})
		if err != nil {
			t.Fatal(err)
		}
		response, end, err := a.exchange(wire{bytes.NewReader(data)}, request, false)
		if err != nil {
			checkAnswer(t, a.evaluateHTTP(err))
			return
		}
		defer end()
		checkAnswer(t, a.evaluateResponse(request, response, nil, pattern))
	})
}
