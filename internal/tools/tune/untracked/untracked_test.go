// SPDX-License-Identifier: Apache-2.0

package untracked

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/host/namespace"
	"github.com/jeoul/jeoul/internal/test/testenv"
)

func TestParseService(t *testing.T) {
	for text, want := range map[string]lb.ServiceKey{
		"tcp/192.0.2.1:80":       {VIP: netip.MustParseAddr("192.0.2.1"), Port: 80, Protocol: lb.TCP},
		"udp/[2001:db8::1]:53":   {VIP: netip.MustParseAddr("2001:db8::1"), Port: 53, Protocol: lb.UDP},
		"":                       {},
		"192.0.2.1:80":           {},
		"sctp/192.0.2.1:80":      {},
		"tcp/192.0.2.1":          {},
		"tcp/192.0.2.1:0":        {},
		"tcp/192.0.2.1:65536":    {},
		"tcp/[::ffff:1.2.3.4]:1": {},
		"tcp/[fe80::1%eth0]:80":  {},
		"tcp/web.example:80":     {},
	} {
		got, err := ParseService(text)
		if ok := want.Port != 0; ok != (err == nil) || ok && got != want {
			t.Errorf("%q: %v, %v", text, got, err)
		}
		if err != nil && !strings.Contains(err.Error(), "such as tcp/192.0.2.1:80") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func FuzzParseService(f *testing.F) {
	f.Add("tcp/192.0.2.1:80")
	f.Add("udp/[2001:db8::1]:53")
	f.Fuzz(func(t *testing.T, text string) {
		key, err := ParseService(text)
		if err != nil {
			return
		}
		if again, err := ParseService(Name(key)); err != nil || again != key {
			t.Errorf("%q is %v, whose name %q is %v, %v", text, key, Name(key), again, err)
		}
	})
}

var (
	four = lb.ServiceKey{VIP: netip.MustParseAddr("192.0.2.1"), Port: 80, Protocol: lb.TCP}
	six  = lb.ServiceKey{VIP: netip.MustParseAddr("2001:db8::1"), Port: 80, Protocol: lb.TCP}
)

// hosts are a server with both services and an administrator's firewall that enables connection tracking, and a client.
type hosts struct{ web, client *namespace.Namespace }

func newHosts(t *testing.T) hosts {
	t.Helper()
	h := hosts{testenv.Namespace(t), testenv.Namespace(t)}
	prefixes := func(list ...string) (all []netip.Prefix) {
		for _, s := range list {
			all = append(all, netip.MustParsePrefix(s))
		}
		return all
	}
	testenv.Veth(t, testenv.End{Namespace: h.web, Name: "web", Addresses: prefixes("192.0.2.1/24", "2001:db8::1/64")},
		testenv.End{Namespace: h.client, Name: "client", Addresses: prefixes("192.0.2.9/24", "2001:db8::9/64")})
	nft(t, h, "table inet firewall { chain in { type filter hook input priority 0; ct state new counter; }; }", "-f",
		"-")
	return h
}

// nft runs nft on the server.
func nft(t *testing.T, h hosts, input string, args ...string) (output string) {
	t.Helper()
	testenv.In(t, h.web, func() error {
		cmd := exec.Command("nft", args...)
		cmd.Stdin = strings.NewReader(input)
		out, err := cmd.CombinedOutput()
		output = string(out)
		if err != nil {
			return fmt.Errorf("%v: %w: %s", cmd, err, out)
		}
		return nil
	})
	return output
}

// tracks reports whether the server's kernel tracks a connection to a service.
func (h hosts) tracks(t *testing.T, key lb.ServiceKey) bool {
	t.Helper()
	at := netip.AddrPortFrom(key.VIP, key.Port).String()
	var listener net.Listener
	testenv.In(t, h.web, func() (err error) {
		listener, err = net.Listen("tcp", at)
		return err
	})
	defer listener.Close()
	before := h.entries(t)
	testenv.In(t, h.client, func() error {
		dialed, err := net.Dial("tcp", at)
		if err != nil {
			return err
		}
		accepted, err := listener.Accept()
		if err != nil {
			return errors.Join(err, dialed.Close())
		}
		return errors.Join(accepted.Close(), dialed.Close())
	})
	return h.entries(t) > before
}

// entries returns the number of connections that the server's kernel tracks.
func (h hosts) entries(t *testing.T) (count int) {
	t.Helper()
	testenv.In(t, h.web, func() error {
		text, err := testenv.Sysctl("net/netfilter/nf_conntrack_count")
		if err != nil {
			return err
		}
		count, err = strconv.Atoi(text)
		return err
	})
	return count
}

func (h hosts) set(t *testing.T, key lb.ServiceKey, bypass bool) {
	t.Helper()
	testenv.In(t, h.web, func() error { return Set(key, bypass) })
}

// expect compares Bypassed, and the kernel's own tracking, with the expected state.
func (h hosts) expect(t *testing.T, when string, bypassed4, bypassed6 bool) {
	t.Helper()
	for key, want := range map[lb.ServiceKey]bool{four: bypassed4, six: bypassed6} {
		testenv.In(t, h.web, func() error {
			got, err := Bypassed(key)
			if got != want {
				t.Errorf("%s: %s bypassed: %v", when, Name(key), got)
			}
			return err
		})
		if h.tracks(t, key) == want {
			t.Errorf("%s: a connection to %s is tracked: %v", when, Name(key), !want)
		}
	}
}

// TestServicesAreLeftOut sets and unsets services one by one, and checks the kernel's count of tracked connections and
// nft's list of rules.
func TestServicesAreLeftOut(t *testing.T) {
	testenv.Root(t)
	testenv.Program(t, "nft")
	h := newHosts(t)
	h.expect(t, "before", false, false)
	h.set(t, four, true)
	h.set(t, four, true) // once more changes nothing
	h.expect(t, "one", true, false)
	h.set(t, six, true)
	h.expect(t, "both", true, true)
	text := nft(t, h, "", "list", "ruleset")
	if strings.Count(text, "notrack") != 4 ||
		!strings.Contains(text, `ip daddr 192.0.2.1 tcp dport 80 notrack comment "tcp/192.0.2.1:80"`) {
		t.Errorf("nft lists:\n%s", text)
	}
	h.set(t, four, false)
	h.expect(t, "the other", false, true)
	h.set(t, six, false)
	h.set(t, six, false)
	h.expect(t, "after", false, false)
	if text := nft(t, h, "", "list", "ruleset"); strings.Contains(text, Table) || !strings.Contains(text, "firewall") {
		t.Errorf("left:\n%s", text)
	}
}
