// SPDX-License-Identifier: Apache-2.0

package drops

import (
	"errors"
	"net"
	"net/netip"
	"testing"

	"github.com/jeoul/jeoul/internal/host/namespace"
	"github.com/jeoul/jeoul/internal/test/testenv"
)

// TestReversePathIsNamed makes the reverse path filter drop packets, and looks for them: reason, function, namespace,
// number and an example.
func TestReversePathIsNamed(t *testing.T) {
	testenv.Root(t)
	from, to := testenv.Namespace(t), testenv.Namespace(t)
	testenv.Veth(t,
		testenv.End{Namespace: from, Name: "from", Addresses: []netip.Prefix{netip.MustParsePrefix("198.18.0.1/24"),
			netip.MustParsePrefix("198.18.7.1/32")}},
		testenv.End{Namespace: to, Name: "to", Addresses: []netip.Prefix{netip.MustParsePrefix("198.18.0.2/24")}})
	// No route leads back to the second address.
	testenv.In(t, to, func() error {
		return errors.Join(testenv.WriteSysctl("net/ipv4/conf/all/rp_filter", "1"),
			testenv.WriteSysctl("net/ipv4/conf/to/rp_filter", "1"))
	})
	// Otherwise the ARP request for the other host's MAC address would be dropped already.
	testenv.In(t, from, func() error { return testenv.WriteSysctl("net/ipv4/conf/all/arp_announce", "2") })
	tracer, err := New()
	if err != nil {
		t.Fatal(err)
	}
	defer tracer.Close()
	var connection net.Conn
	testenv.In(t, from, func() (err error) {
		dialer := net.Dialer{LocalAddr: net.UDPAddrFromAddrPort(netip.MustParseAddrPort("198.18.7.1:0"))}
		connection, err = dialer.Dial("udp", "198.18.0.2:9")
		return err
	})
	defer connection.Close()
	const datagrams = 20
	for range datagrams {
		if _, err := connection.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	var got *Drop
	testenv.Eventually(t, testenv.WaitLimit, "all datagrams were seen to be dropped", func() bool {
		got = find(t, tracer, to, "IP_RPFILTER")
		return got != nil && got.Packets >= datagrams
	})
	if got.Packets != datagrams || got.Bytes == 0 || got.Function == "" || got.Source != Stack ||
		got.EtherType != 0x0800 {
		t.Errorf("got %+v, want %d packets of IPv4 dropped by a named function", got, datagrams)
	}
	want := netip.AddrPortFrom(netip.MustParseAddr("198.18.0.2"), 9)
	if e := got.Example; e == nil || netip.AddrPortFrom(e.Destination, e.DestinationPort) != want ||
		e.Source.String() != "198.18.7.1" {
		t.Errorf("example %v, want one from 198.18.7.1 to %s", got.Example, want)
	}
	t.Logf("%+v in %s: %s", got, got.Function, got.Example)
}

// find returns the drops in a namespace for a reason.
func find(t *testing.T, tracer *Tracer, in *namespace.Namespace, reason string) *Drop {
	t.Helper()
	all, unknown, err := tracer.Read()
	if err != nil {
		t.Fatal(err)
	}
	if unknown > 0 {
		t.Fatalf("%d drops were not counted", unknown)
	}
	for _, d := range all {
		if uint64(d.Namespace) == in.Inode() && d.Reason == reason {
			return &d
		}
	}
	return nil
}

// TestWords names reasons for which the kernel has no name.
func TestWords(t *testing.T) {
	n := names{reasons: map[uint32]string{2: "SKB_DROP_REASON_NO_SOCKET"}}
	for _, c := range []struct {
		source Source
		reason uint32
		want   string
	}{
		{Stack, 2, "NO_SOCKET"}, {Stack, 7, "reason 7"},
		{XDPException, 3, "XDP_TX"}, {XDPException, 9, "verdict 9"},
		{XDPRedirect, 100, "ENETDOWN"}, {XDPTransmit, 0, "no room"},
	} {
		if got := n.reason(c.source, c.reason); got != c.want {
			t.Errorf("%s %d: %q, want %q", c.source, c.reason, got, c.want)
		}
	}
	if f := flowOf(tracerDropValue{}); f != nil {
		t.Errorf("an unread packet is %v", f)
	}
	f := Flow{Source: netip.MustParseAddr("2001:2::1"), Destination: netip.MustParseAddr("2001:2::2"), Protocol: 58}
	if got, want := f.String(), "icmpv6 2001:2::1 → 2001:2::2"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestClose reads a closed tracer.
func TestClose(t *testing.T) {
	testenv.Root(t)
	tracer, err := New()
	if err != nil {
		t.Fatal(err)
	}
	if err := tracer.Close(); err != nil {
		t.Error(err)
	}
	if _, _, err := tracer.Read(); err == nil {
		t.Error("a closed tracer was read")
	}
}
