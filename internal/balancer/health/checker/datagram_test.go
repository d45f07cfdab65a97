// SPDX-License-Identifier: Apache-2.0

package checker

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/jeoul/jeoul/internal/balancer/health"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/test/testenv"
)

// serveUDP answers each datagram with the datagrams that answer returns (nil: none).
func serveUDP(t *testing.T, address string, answer func([]byte) [][]byte) netip.AddrPort {
	t.Helper()
	c, err := net.ListenPacket("udp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	go func() {
		buffer := make([]byte, 1<<16)
		for {
			n, from, err := c.ReadFrom(buffer)
			if err != nil {
				return
			}
			for _, a := range answer(buffer[:n]) {
				c.WriteTo(a, from)
			}
		}
	}()
	return c.LocalAddr().(*net.UDPAddr).AddrPort()
}

func echoBack(b []byte) [][]byte { return [][]byte{b} }

func TestUDP(t *testing.T) {
	t.Parallel()
	for _, address := range loopbacks(t) {
		back := serveUDP(t, address, echoBack)
		mute := serveUDP(t, address, func([]byte) [][]byte { return nil })
		gone, err := net.ListenPacket("udp", address)
		if err != nil {
			t.Fatal(err)
		}
		nothing := gone.LocalAddr().(*net.UDPAddr).AddrPort()
		gone.Close()
		const short = 200 * time.Millisecond
		for _, c := range []struct {
			name    string
			to      netip.AddrPort
			timeout time.Duration
			want    lb.UDPCheck
			outcome health.Outcome
			words   string
		}{
			{"answers", back, patiently, lb.UDPCheck{Send: []byte("ping"), Expect: []byte("pi")}, health.Passed,
				"4 bytes"},
			{"answers anything", back, patiently, lb.UDPCheck{Send: []byte("ping")}, health.Passed, "4 bytes"},
			{"answers other", back, patiently, lb.UDPCheck{Send: []byte("ping"), Expect: []byte("pong")}, health.Failed,
				`answers with "ping", not with "pong"`},
			{"answers with an empty datagram", back, patiently, lb.UDPCheck{}, health.Passed, "0 bytes"},
			{"is silent", mute, short, lb.UDPCheck{Send: []byte("ping"), Expect: []byte("pong")}, health.Failed,
				"does not answer within 200ms"},
			{"is silent, and any answer passes", mute, short, lb.UDPCheck{Send: []byte("ping")}, health.Failed,
				"does not answer within 200ms"},
			{"is sent nothing", mute, short, lb.UDPCheck{}, health.Passed, "no ICMP error"},
			{"has no server", nothing, patiently, lb.UDPCheck{Send: []byte("ping")}, health.Failed,
				"has no server on the port (ICMP port unreachable)"},
		} {
			t.Run(address+"/"+c.name, func(t *testing.T) {
				ask := check
				if c.outcome == health.Passed {
					ask = checkInTime
				}
				expect(t, ask(t, c.to, lb.Check{Type: lb.CheckUDP, Timeout: c.timeout, UDP: &c.want}), c.outcome,
					c.words)
			})
		}
	}
}

// nameserver answers over UDP and TCP on one port; stray datagrams come before its answers.
func nameserver(t *testing.T) netip.AddrPort {
	t.Helper()
	answer := func(query []byte) []byte {
		q := new(dns.Msg)
		if q.Unpack(query) != nil {
			return nil
		}
		r := new(dns.Msg)
		r.SetReply(q)
		switch name := q.Question[0].Name; {
		case name == "nothing.example.com.":
			r.Rcode = dns.RcodeNameError
		case name == "empty.example.com.":
		case q.Question[0].Qtype == dns.TypeTXT:
			record, _ := dns.NewRR(name + ` 60 IN TXT "some text"`)
			r.Answer = []dns.RR{record}
		default:
			for i := range 4 {
				record, _ := dns.NewRR(fmt.Sprintf("%s 60 IN A 192.0.2.%d", name, i+1))
				r.Answer = append(r.Answer, record)
			}
		}
		packed, _ := r.Pack()
		return packed
	}
	// One port by both protocols: at an address that is this process's, nobody has the other one of it.
	pid := os.Getpid()
	to := serveUDP(t, fmt.Sprintf("127.53.%d.%d:0", pid>>8&0xff, pid&0xff), func(query []byte) [][]byte {
		stray := append([]byte{}, answer(query)...)
		stray[0] ^= 0xff
		return [][]byte{[]byte("no DNS"), stray, answer(query)}
	})
	serve(t, to.String(), func(c net.Conn) {
		framed := &dns.Conn{Conn: c}
		query := make([]byte, dns.MaxMsgSize)
		n, err := framed.Read(query)
		if err == nil {
			framed.Write(answer(query[:n]))
		}
	})
	return to
}

func TestDNS(t *testing.T) {
	to := nameserver(t)
	for _, tcp := range []bool{false, true} {
		for _, c := range []struct {
			want    lb.DNSCheck
			outcome health.Outcome
			words   string
		}{
			{lb.DNSCheck{Name: "www.example.com", Type: "A", Code: "NOERROR"}, health.Passed, "NOERROR, 4 records"},
			{lb.DNSCheck{Name: "www.example.com", Type: "A"}, health.Passed, "NOERROR, 4 records"},
			{lb.DNSCheck{Name: "www.example.com", Type: "A", Answer: "192.0.2.2"}, health.Passed, "192.0.2.2"},
			{lb.DNSCheck{Name: "www.example.com", Type: "TXT", Answer: "some text"}, health.Passed, "some text"},
			{lb.DNSCheck{Name: "www.example.com", Type: "A", Answer: "192.0.2.9"}, health.Failed,
				"answers A www.example.com with 192.0.2.1, 192.0.2.2, 192.0.2.3, 1 others, not 192.0.2.9"},
			{lb.DNSCheck{Name: "empty.example.com", Type: "A", Answer: "192.0.2.9"}, health.Failed,
				"answers A empty.example.com with no record, not 192.0.2.9"},
			{lb.DNSCheck{Name: "nothing.example.com", Type: "A"}, health.Failed,
				"answers A nothing.example.com with NXDOMAIN, not NOERROR"},
			{lb.DNSCheck{Name: "nothing.example.com", Type: "A", Code: "NXDOMAIN"}, health.Passed, "NXDOMAIN"},
			{lb.DNSCheck{Name: "www.example.com", Type: "NONE-SUCH"}, health.NoEvidence, "no type"},
		} {
			c.want.TCP = tcp
			expect(t, check(t, to, lb.Check{Type: lb.CheckDNS, Timeout: patiently, DNS: &c.want}), c.outcome, c.words)
		}
	}
}

func TestDNSBadServers(t *testing.T) {
	want := lb.Check{Type: lb.CheckDNS, Timeout: patiently, DNS: &lb.DNSCheck{Name: "www.example.com", Type: "A"}}
	flood := serveUDP(t, "127.0.0.1:0", func(query []byte) [][]byte { return make([][]byte, 2*maxStrayAnswers) })
	expect(t, check(t, flood, want), health.Failed, "no response to the query")
	want.DNS = &lb.DNSCheck{Name: "www.example.com", Type: "A", TCP: true}
	short := serve(t, "127.0.0.1:0", func(c net.Conn) { c.Read(make([]byte, 512)); c.Write([]byte{0, 20, 1}) })
	expect(t, check(t, short, want), health.Failed, "closes the connection before it answers")
	other := serve(t, "127.0.0.1:0", func(c net.Conn) { c.Read(make([]byte, 512)); c.Write([]byte{0, 2, 1, 2}) })
	expect(t, check(t, other, want), health.Failed, "no response to the query")
	want.Timeout = 200 * time.Millisecond
	drip := serve(t, "127.0.0.1:0", func(c net.Conn) {
		c.Write([]byte{0xff, 0xff})
		c.Read(make([]byte, 512))
		c.Read(make([]byte, 1))
	})
	expect(t, check(t, drip, want), health.Failed, "does not answer within 200ms")
}

func TestICMP(t *testing.T) {
	testenv.Root(t)
	for _, address := range loopbacks(t) {
		to := netip.AddrPortFrom(netip.MustParseAddrPort(address).Addr(), 80)
		expect(t, check(t, to, lb.Check{Type: lb.CheckICMP, Timeout: patiently}), health.Passed, "echo reply")
		// Where the group may not, a raw socket can.
		a := &ask{ctx: t.Context(), check: &lb.Check{},
			endpoint: health.Endpoint{Address: to.Addr()}}
		conn, err := connect(a.ctx, "raw", netip.Addr{}, netip.AddrPortFrom(to.Addr(), 0))
		if err != nil {
			t.Fatal(err)
		}
		expect(t, a.ping(conn), health.Passed, "echo reply")
	}
}
