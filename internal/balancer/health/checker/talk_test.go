// SPDX-License-Identifier: Apache-2.0

package checker

import (
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"testing"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/health"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// grpcServer answers health checks as handle does, by HTTP/2 with prior knowledge.
func grpcServer(t *testing.T, handle http.HandlerFunc) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: handle, ErrorLog: log.New(io.Discard, "", 0), Protocols: new(http.Protocols)}
	s.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(func() { s.Close() })
	go s.Serve(l)
	return l.Addr().(*net.TCPAddr).AddrPort()
}

func TestGRPC(t *testing.T) {
	to := grpcServer(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/grpc")
		w.Header().Set("Trailer", "Grpc-Status")
		if r.Method != "POST" || r.URL.Path != "/grpc.health.v1.Health/Check" || r.Header.Get("Te") != "trailers" ||
			len(body) < 5 {
			http.Error(w, "no", http.StatusBadRequest)
			return
		}
		status := map[string]byte{"": 1, "\n\x05great": 1, "\n\x04poor": 2}
		message := string(body[5:])
		switch message {
		case "\n\x04odd!":
			w.Header().Set("Grpc-Status", "0")
			w.Write([]byte("no frame"))
		case "\n\x04none":
		case "\n\x04html":
			http.Error(w, "no", http.StatusBadGateway)
		default:
			if s, ok := status[message]; ok {
				w.Write(frame([]byte{1 << 3, s}))
				w.Header().Set("Grpc-Status", "0")
			} else {
				w.Header().Set("Grpc-Status", "5")
			}
		}
	})
	for _, c := range []struct {
		service string
		outcome health.Outcome
		words   string
	}{
		{"", health.Passed, "SERVING"},
		{"great", health.Passed, "SERVING"},
		{"poor", health.Failed, "says that its service poor is NOT_SERVING"},
		{"other", health.Failed, "answers the gRPC call with NOT_FOUND"},
		{"odd!", health.Failed, "does not speak gRPC"},
		{"none", health.Failed, "does not speak gRPC: its response has no grpc-status"},
		{"html", health.Failed, "answers the gRPC call with HTTP status 502"},
	} {
		t.Run(c.service, func(t *testing.T) {
			expect(t, check(t, to, lb.Check{Type: lb.CheckGRPC, Timeout: patiently,
				GRPC: &lb.GRPCCheck{Service: c.service}}), c.outcome, c.words)
		})
	}
	endless := grpcServer(t, func(w http.ResponseWriter, r *http.Request) {
		for {
			if _, err := w.Write(make([]byte, 1<<16)); err != nil {
				return
			}
		}
	})
	expect(t, check(t, endless, lb.Check{Type: lb.CheckGRPC, Timeout: patiently}), health.Failed, "does not speak gRPC")
}

func TestAgent(t *testing.T) {
	for _, c := range []struct {
		line string
		want health.Answer
	}{
		{"up\n", health.Answer{Outcome: health.Passed, Final: true, Text: "up"}},
		{"75%\r\n", health.Answer{Outcome: health.Passed, Final: true, Text: "75%", Weighs: true, Weight: 75}},
		{"ready up 100% # all is well\n", health.Answer{Outcome: health.Passed, Final: true, Text: "ready up 100%",
			Weighs: true, Weight: 100, Drains: true}},
		{"drain, 50%", health.Answer{Outcome: health.Passed, Final: true, Text: "drain 50%", Weighs: true, Weight: 50,
			Drains: true, Drain: true}},
		{"down # disk is full\n", health.Answer{Outcome: health.Failed, Final: true, Text: "down",
			Reason: "says that it is down: disk is full"}},
		{"fail out of memory\n", health.Answer{Outcome: health.Failed, Final: true, Text: "fail out of memory",
			Reason: "says that it is failing: out of memory"}},
		{"down overloaded\n", health.Answer{Outcome: health.Failed, Final: true, Text: "down overloaded",
			Reason: "says that it is down: overloaded"}},
		{"maint\n", health.Answer{Outcome: health.Failed, Final: true, Text: "maint",
			Reason: "says that it is under maintenance"}},
		{"stopped\nup\n", health.Answer{Outcome: health.Failed, Final: true, Text: "stopped",
			Reason: "says that it is stopped"}},
		{"maxconn:30 up\n", health.Answer{Outcome: health.Passed, Final: true, Text: "maxconn:30 up"}},
		{"hello\n", health.Fail("no agent", `answers with "hello", in which no word is an agent's`)},
		{"99999%\n", health.Fail("no agent", `answers with "99999%", in which no word is an agent's`)},
		{"", health.Fail("no agent", `answers with "", in which no word is an agent's`)},
	} {
		t.Run(c.line, func(t *testing.T) {
			ended := make(chan error, 1)
			to := serve(t, "127.0.0.1:0", func(conn net.Conn) {
				io.WriteString(conn, c.line)
				closeWrite(conn)
				_, err := conn.Read(make([]byte, 1))
				ended <- err
			})
			if got := check(t, to, lb.Check{Type: lb.CheckAgent, Timeout: patiently}); got != c.want {
				t.Errorf("got %+v,\nexpected %+v", got, c.want)
			}
			if err := <-ended; !errors.Is(err, io.EOF) {
				t.Errorf("the agent read %v, expected the end of the stream", err)
			}
		})
	}
	endless := serve(t, "127.0.0.1:0", func(c net.Conn) {
		for {
			if _, err := c.Write(make([]byte, 0xff)); err != nil {
				return
			}
		}
	})
	expect(t, check(t, endless, lb.Check{Type: lb.CheckAgent, Timeout: patiently}), health.Failed,
		"no word is an agent's")
	silent := serve(t, "127.0.0.1:0", func(c net.Conn) { c.Read(make([]byte, 1)) })
	expect(t, check(t, silent, lb.Check{Type: lb.CheckAgent, Timeout: 200 * time.Millisecond}), health.Failed,
		"does not answer within 200ms")
}
