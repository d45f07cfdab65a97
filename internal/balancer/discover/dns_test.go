// SPDX-License-Identifier: Apache-2.0

package discover

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/miekg/dns"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// fakeZone answers for name servers.
type fakeZone struct {
	mu sync.Mutex
	// records are the zone's records, by name and type, as in "web. A"; a name without any does not exist.
	records map[string][]string
	// fails says why a server does not answer, and small that answers over UDP are cut off.
	fails   map[string]error
	small   bool
	queries []string
	// after changes the zone once it has answered for a name and type.
	after map[string]func()
}

func (z *fakeZone) set(key string, records ...string) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.records[key] = records
}

// times returns how often was asked since the last call.
func (z *fakeZone) times() int {
	z.mu.Lock()
	defer z.mu.Unlock()
	n := len(z.queries)
	z.queries = nil
	return n
}

func (z *fakeZone) exchange(_ context.Context, network, server string, ask *dns.Msg) (*dns.Msg, error) {
	z.mu.Lock()
	defer z.mu.Unlock()
	q := ask.Question[0]
	z.queries = append(z.queries, fmt.Sprintf("%s %s %s %s", network, server, q.Name, dns.TypeToString[q.Qtype]))
	if err := z.fails[server]; err != nil {
		return nil, err
	}
	answer := new(dns.Msg).SetReply(ask)
	if z.small && network == "udp" {
		answer.Truncated = true
		return answer, nil
	}
	exists := false
	for key, records := range z.records {
		name, kind, _ := strings.Cut(key, " ")
		if !strings.EqualFold(name, q.Name) {
			continue
		}
		exists = true
		if kind != dns.TypeToString[q.Qtype] {
			continue
		}
		for _, text := range records {
			record, err := dns.NewRR(text)
			if err != nil {
				return nil, err
			}
			answer.Answer = append(answer.Answer, record)
		}
	}
	if !exists {
		answer.Rcode = dns.RcodeNameError
	}
	if change := z.after[q.Name+" "+dns.TypeToString[q.Qtype]]; change != nil {
		change()
	}
	return answer, nil
}

func newZone() *fakeZone { return &fakeZone{records: map[string][]string{}, fails: map[string]error{}} }

// provider returns the provider that follows a name of the zone, for a service of an IPv4 VIP.
func (z *fakeZone) provider(t *testing.T, d lb.DNSOrigin) dnsProvider {
	t.Helper()
	n := newDNSProvider(lb.Service{VIP: netip.MustParseAddr("192.0.2.100"), Mode: lb.NAT,
		Discovery: lb.Discovery{DNS: d}})
	n.exchange = z.exchange
	n.conf = filepath.Join(t.TempDir(), "resolv.conf")
	if err := os.WriteFile(n.conf,
		[]byte("nameserver 192.0.2.53\nnameserver 192.0.2.54\nsearch example.com example.net\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	return n
}

// resolveText returns the records of a name, as "name@address:port*weight" each.
func resolveText(t *testing.T, n dnsProvider) (string, records, error) {
	t.Helper()
	got, err := n.resolve(t.Context())
	var words []string
	for _, f := range got.found {
		word := fmt.Sprintf("%s@%s*%d", f.Name, netip.AddrPortFrom(f.Address, f.Port), f.Weight)
		if f.Backup {
			word += "^"
		}
		words = append(words, word)
	}
	slices.Sort(words)
	return strings.Join(words, " "), got, err
}

// TestDNS: the backends and errors that follow from the answers to a name.
func TestDNS(t *testing.T) {
	tests := map[string]struct {
		origin lb.DNSOrigin
		change func(*fakeZone)
		want   string
		ttl    time.Duration
		why    string
	}{
		"addresses": {lb.DNSOrigin{Name: "web.example.org."}, func(z *fakeZone) {
			z.set("web.example.org. A", "web.example.org. 30 IN A 192.0.2.2", "web.example.org. 20 IN A 192.0.2.1",
				"other. 1 IN A 192.0.2.3")
			z.set("web.example.org. AAAA", "web.example.org. 5 IN AAAA 2001:db8::1")
		}, "192.0.2.1@192.0.2.1:0*1 192.0.2.2@192.0.2.2:0*1", 20 * time.Second, ""},
		"IPv6": {lb.DNSOrigin{Name: "web.example.org.", Type: "AAAA"}, func(z *fakeZone) {
			z.set("web.example.org. AAAA", "web.example.org. 5 IN AAAA 2001:db8::1")
		}, "2001:db8::1@[2001:db8::1]:0*1", 5 * time.Second, ""},
		"alias": {lb.DNSOrigin{Name: "web.example.org."}, func(z *fakeZone) {
			z.set("web.example.org. A", "web.example.org. 3 IN CNAME WEB1.example.org.",
				"web1.example.org. 20 IN A 192.0.2.1")
		}, "192.0.2.1@192.0.2.1:0*1", 3 * time.Second, ""},
		"aliases in a circle": {lb.DNSOrigin{Name: "a."}, func(z *fakeZone) {
			z.set("a. A", "a. 3 IN CNAME b.", "b. 3 IN CNAME a.")
		}, "", minTTL, "a. has no record of type A"},
		"search": {lb.DNSOrigin{Name: "web"}, func(z *fakeZone) {
			z.set("web.example.net. A", "web.example.net. 9 IN A 192.0.2.9")
		}, "192.0.2.9@192.0.2.9:0*1", 9 * time.Second, ""},
		"gone": {lb.DNSOrigin{Name: "web.example.org."}, func(*fakeZone) {}, "", minTTL,
			"web.example.org. does not exist (NXDOMAIN)"},
		"over TCP": {lb.DNSOrigin{Name: "web.example.org."}, func(z *fakeZone) {
			z.small = true
			z.set("web.example.org. A", "web.example.org. 30 IN A 192.0.2.2")
		}, "192.0.2.2@192.0.2.2:0*1", 30 * time.Second, ""},
		"second server": {lb.DNSOrigin{Name: "web.example.org."}, func(z *fakeZone) {
			z.fails["192.0.2.53:53"] = errors.New("no answer")
			z.set("web.example.org. A", "web.example.org. 30 IN A 192.0.2.2")
		}, "192.0.2.2@192.0.2.2:0*1", 30 * time.Second, ""},
		"own server": {lb.DNSOrigin{Name: "web.example.org.",
			Servers: []netip.AddrPort{netip.MustParseAddrPort("192.0.2.55:5353")}}, func(z *fakeZone) {
			z.fails["192.0.2.53:53"], z.fails["192.0.2.54:53"] = errors.New("not to be asked"),
				errors.New("not to be asked")
			z.set("web.example.org. A", "web.example.org. 30 IN A 192.0.2.2")
		}, "192.0.2.2@192.0.2.2:0*1", 30 * time.Second, ""},
		"services": {lb.DNSOrigin{Name: "_http._tcp.example.org.", Type: "SRV"}, func(z *fakeZone) {
			z.set("_http._tcp.example.org. SRV", "_http._tcp.example.org. 60 IN SRV 10 5 8080 a.example.org.",
				"_http._tcp.example.org. 60 IN SRV 10 0 8081 b.example.org.",
				"_http._tcp.example.org. 60 IN SRV 20 1 8080 c.example.org.",
				"_http._tcp.example.org. 60 IN SRV 1 1 1 .")
			z.set("a.example.org. A", "a.example.org. 50 IN A 192.0.2.1", "a.example.org. 50 IN A 192.0.2.2")
			z.set("b.example.org. A", "b.example.org. 40 IN A 192.0.2.3")
			z.set("c.example.org. A", "c.example.org. 70 IN A 192.0.2.4")
		},
			"a.example.org-192.0.2.1:8080@192.0.2.1:8080*5 a.example.org-192.0.2.2:8080@192.0.2.2:8080*5 b.example.org@192.0.2.3:8081*1 c.example.org@192.0.2.4:8080*1^", 40 * time.Second, ""},
		"targets without addresses": {lb.DNSOrigin{Name: "s.", Type: "SRV"}, func(z *fakeZone) {
			z.set("s. SRV", "s. 60 IN SRV 10 5 8080 a.example.org.")
		}, "", minTTL, "no target of s. has an address"},
	}
	for title, test := range tests {
		t.Run(title, func(t *testing.T) {
			z := newZone()
			test.change(z)
			got, all, err := resolveText(t, z.provider(t, test.origin))
			if err != nil || got != test.want || all.ttl != test.ttl || len(all.found) == 0 &&
				all.emptyReason != test.why {
				t.Errorf("%q for %s (%s), %v; want %q for %s (%s)", got, all.ttl, all.emptyReason, err, test.want,
					test.ttl, test.why)
			}
		})
	}
}

// TestDNSOfTwoFamilies: the shorter of both families' TTLs holds, and 0 is the shortest.
func TestDNSOfTwoFamilies(t *testing.T) {
	for _, ttls := range [][2]int{{0, 300}, {300, 0}, {20, 30}, {30, 20}} {
		z := newZone()
		z.set("web. A", fmt.Sprintf("web. %d IN A 192.0.2.1", ttls[0]))
		z.set("web. AAAA", fmt.Sprintf("web. %d IN AAAA 2001:db8::1", ttls[1]))
		n := z.provider(t, lb.DNSOrigin{Name: "web."})
		n.types = []uint16{dns.TypeA, dns.TypeAAAA}
		got, all, err := resolveText(t, n)
		if err != nil || got != "192.0.2.1@192.0.2.1:0*1 2001:db8::1@[2001:db8::1]:0*1" ||
			all.ttl != time.Duration(min(ttls[0], ttls[1]))*time.Second {
			t.Errorf("TTLs of %d s: %q for %s, %v", ttls, got, all.ttl, err)
		}
	}
}

// TestDNSChangesBetweenQuestions: where a zone changes after its SRV records were read, and a target has no address any
// more, the records are read again before that is believed, and no more often than it takes.
func TestDNSChangesBetweenQuestions(t *testing.T) {
	// generation is a zone whose record names a target of this number, which alone has an address.
	generation := func(n int) map[string][]string {
		return map[string][]string{"s. SRV": {fmt.Sprintf("s. 60 IN SRV 1 5 80 t%d.", n), "s. 60 IN SRV 1 5 80 kept."},
			fmt.Sprintf("t%d. A", n): {fmt.Sprintf("t%d. 50 IN A 192.0.2.1",
				n)}, "kept. A": {"kept. 50 IN A 192.0.2.2"}}
	}
	for title, test := range map[string]struct {
		changes int // after as many answers about s.
		want    string
		asked   int
	}{
		"no change":        {0, "kept@192.0.2.2:80*5 t0@192.0.2.1:80*5", 3},
		"a target renamed": {1, "kept@192.0.2.2:80*5 t1@192.0.2.1:80*5", 6},
		"twice":            {2, "kept@192.0.2.2:80*5 t2@192.0.2.1:80*5", 9},
		"without end":      {1000, "kept@192.0.2.2:80*5", 3 * maxReadings},
	} {
		t.Run(title, func(t *testing.T) {
			z, now := newZone(), 0
			z.records = generation(now)
			z.after = map[string]func(){"s. SRV": func() {
				if now < test.changes {
					now++
					z.records = generation(now)
				}
			}}
			got, _, err := resolveText(t, z.provider(t, lb.DNSOrigin{Name: "s.", Type: "SRV"}))
			if queried := z.times(); err != nil || got != test.want || queried != test.asked {
				t.Errorf("%q, %v, after %d questions; want %q after %d", got, err, queried, test.want, test.asked)
			}
		})
	}
	exchanged := newZone()
	exchanged.set("s. SRV", "s. 60 IN SRV 1 5 80 a.", "s. 60 IN SRV 1 5 80 b.")
	exchanged.set("a. A", "a. 50 IN A 192.0.2.1")
	exchanged.set("b. A", "b. 50 IN A 192.0.2.2")
	exchanged.after = map[string]func(){"a. A": func() {
		exchanged.records["a. A"] = []string{"a. 50 IN A 192.0.2.2"}
		exchanged.records["b. A"] = []string{"b. 50 IN A 192.0.2.1"}
	}}
	if got, _, err := resolveText(t, exchanged.provider(t, lb.DNSOrigin{Name: "s.", Type: "SRV"})); err != nil ||
		got != "a@192.0.2.2:80*5 b@192.0.2.1:80*5" || exchanged.times() != 6 {
		t.Errorf("two targets that exchange their addresses between questions: %q after %d questions, %v", got,
			exchanged.times(), err)
	}
	z := newZone()
	z.set("s. SRV", "s. 60 IN SRV 1 5 80 gone.")
	if got, all, err := resolveText(t, z.provider(t, lb.DNSOrigin{Name: "s.", Type: "SRV"})); err != nil || got != "" ||
		z.times() != 3 || all.emptyReason != "no target of s. has an address" {
		t.Errorf("a target that has no address twice: %q (%s), %v", got, all.emptyReason, err)
	}
}

// TestDNSFails: an answer that is none is an error with its cause, and names the server.
func TestDNSFails(t *testing.T) {
	z := newZone()
	z.set("web. A", "web. 30 IN A 192.0.2.2")
	reply := func(change func(*dns.Msg)) func(context.Context, string, string, *dns.Msg) (*dns.Msg, error) {
		return func(_ context.Context, _, _ string, ask *dns.Msg) (*dns.Msg, error) {
			answer := new(dns.Msg).SetReply(ask)
			change(answer)
			return answer, nil
		}
	}
	for want, change := range map[string]func(*dns.Msg){
		"SERVFAIL":         func(m *dns.Msg) { m.Rcode = dns.RcodeServerFailure },
		"REFUSED":          func(m *dns.Msg) { m.Rcode = dns.RcodeRefused },
		"another question": func(m *dns.Msg) { m.Question[0].Name = "other." },
		"cut off over TCP": func(m *dns.Msg) { m.Truncated = true },
	} {
		n := z.provider(t, lb.DNSOrigin{Name: "web."})
		n.exchange = reply(change)
		if _, _, err := resolveText(t, n); err == nil || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), "192.0.2.54:53") {
			t.Errorf("%s: %v", want, err)
		}
	}
	n := z.provider(t, lb.DNSOrigin{Name: "web."})
	n.conf = filepath.Join(t.TempDir(), "none")
	if _, _, err := resolveText(t, n); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("without a resolver: %v", err)
	}
	n.Servers = []netip.AddrPort{netip.MustParseAddrPort("192.0.2.1:53")}
	if got, _, err := resolveText(t, n); err != nil || got == "" {
		t.Errorf("with a server of its own: %q, %v", got, err)
	}
}

// TestDNSFailsAlike: a server that is away is the same trouble at each retry, whatever the port of the query.
func TestDNSFailsAlike(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newZone().provider(t, lb.DNSOrigin{Name: "web."})
		queries := 0
		n.exchange = func(_ context.Context, network, server string, _ *dns.Msg) (*dns.Msg, error) {
			queries++
			return nil, &net.OpError{Op: "read", Net: network, Err: os.ErrDeadlineExceeded,
				Source: &net.UDPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 40000 + queries},
				Addr:   net.UDPAddrFromAddrPort(netip.MustParseAddrPort(server))}
		}
		texts := map[string]int{}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		n.Watch(ctx, func(a Answer) { texts[a.Err.Error()]++ })
		if want := "web. A of 192.0.2.54:53: read: i/o timeout"; len(texts) != 1 || texts[want] < 2 {
			t.Errorf("the errors are %v, want several of %q", texts, want)
		}
	})
}

// TestDNSTimes: a name is asked for by its TTL, within bounds, and after failures ever more seldom.
func TestDNSTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		z := newZone()
		n := z.provider(t, lb.DNSOrigin{Name: "web."})
		z.set("web. A", "web. 10 IN A 192.0.2.1")
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		var last Answer
		go func() {
			defer close(done)
			n.Watch(ctx, func(a Answer) { last = a })
		}()
		pass := func(d time.Duration, least, most int) {
			t.Helper()
			time.Sleep(d)
			synctest.Wait()
			if got := z.times(); got < least || got > most {
				t.Errorf("asked %d times within %s, not %d to %d", got, d, least, most)
			}
		}
		pass(100*time.Second+time.Millisecond, 11, 11)
		z.set("web. A", "web. 0 IN A 192.0.2.1")
		pass(10*time.Second, 1, 2) // until it is asked for again
		pass(100*time.Second, 99, 101)
		z.set("web. A", "web. 604800 IN A 192.0.2.1")
		pass(2*time.Second, 1, 2)
		pass(10*time.Hour, 9, 10)
		z.set("web. A", "web. 1 IN A 192.0.2.1")
		pass(time.Hour, 1, 3601)
		z.mu.Lock()
		z.fails["192.0.2.53:53"], z.fails["192.0.2.54:53"] = errors.New("away"), errors.New("away")
		z.mu.Unlock()
		pass(2*time.Second, 2, 8)
		if last.Err == nil {
			t.Error("a failure is not told")
		}
		pass(time.Hour, 2*100, 2*130)
		cancel()
		<-done
	})
}

// TestDNSMany: a name with a thousand addresses.
func TestDNSMany(t *testing.T) {
	z := newZone()
	var all []string
	for i := range 1000 {
		all = append(all, fmt.Sprintf("web. 30 IN A 198.18.%d.%d", i/250, i%250+1))
	}
	z.set("web. A", all...)
	if _, got, err := resolveText(t, z.provider(t, lb.DNSOrigin{Name: "web."})); err != nil || len(got.found) != 1000 {
		t.Errorf("%d addresses, %v", len(got.found), err)
	}
	var services []string
	for i := range 1000 {
		services = append(services, fmt.Sprintf("s. 30 IN SRV 0 1 80 h%d.", i))
	}
	z.set("s. SRV", services...)
	z.times()
	const most = 2 + 21 // the records twice, as no target has an address, and one target more than are taken
	if _, _, err := resolveText(t,
		z.provider(t, lb.DNSOrigin{Name: "s.", Type: "SRV", OriginLimits: lb.OriginLimits{Max: 20}})); err != nil ||
		z.times() > most {
		t.Errorf("of 1,000 targets, where 20 backends are taken, more were asked for; %v", err)
	}
}

// FuzzDNS: whatever an answer has becomes addresses of the type that was asked for.
func FuzzDNS(f *testing.F) {
	answer := new(dns.Msg).SetQuestion("web.", dns.TypeA)
	for _, text := range []string{"web. 30 IN CNAME a.", "a. 5 IN A 192.0.2.1", "web. 30 IN SRV 1 2 80 a.",
		"a. 5 IN AAAA ::ffff:192.0.2.1"} {
		record, err := dns.NewRR(text)
		if err != nil {
			f.Fatal(err)
		}
		answer.Answer = append(answer.Answer, record)
	}
	packed, err := answer.Pack()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(packed)
	f.Fuzz(func(t *testing.T, packed []byte) {
		var answer dns.Msg
		if answer.Unpack(packed) != nil {
			return
		}
		for _, kind := range []uint16{dns.TypeA, dns.TypeAAAA} {
			addrs, ttl := addressesOf(&answer, "web.", kind)
			for _, addr := range addrs {
				if !addr.IsValid() || addr.Is4() != (kind == dns.TypeA) {
					t.Errorf("address %v of type %d", addr, kind)
				}
			}
			if ttl > maxTTL || ttl < 0 || negativeTTL(&answer) > maxNegativeTTL {
				t.Errorf("TTL %s", ttl)
			}
		}
		list, _ := servicesOf(&answer, "web.")
		var found []Found
		for _, r := range list {
			found = append(found, Found{Target: r.Target, Backend: lb.Backend{Port: r.Port}})
		}
		nameTargets(found)
		for _, f := range found {
			if f.Name != backendName(f.Name) || f.Port == 0 {
				t.Errorf("backend %+v", f)
			}
		}
	})
}
