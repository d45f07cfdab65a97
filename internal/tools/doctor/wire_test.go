// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/host/namespace"
	"github.com/jeoul/jeoul/internal/test/testenv"
	"github.com/jeoul/jeoul/internal/tools/doctor/evidence"
	"github.com/jeoul/jeoul/internal/tools/doctor/rules"
)

// pair is two hosts on one link, each with an address of both families.
type pair struct {
	here, there       *namespace.Namespace
	hereMAC, thereMAC net.HardwareAddr
}

var (
	here4, here6   = netip.MustParseAddr("198.18.0.1"), netip.MustParseAddr("2001:2::1")
	there4, there6 = netip.MustParseAddr("198.18.0.2"), netip.MustParseAddr("2001:2::2")
	vip4, vip6     = netip.MustParseAddr("198.18.0.100"), netip.MustParseAddr("2001:2::100")
)

// newPair makes two hosts. If vips is set, the other host has the VIPs on its loopback, as a backend has them.
func newPair(t *testing.T, vips bool) pair {
	t.Helper()
	p := pair{here: testenv.Namespace(t), there: testenv.Namespace(t)}
	prefix := func(a netip.Addr) netip.Prefix {
		if a.Is4() {
			return netip.PrefixFrom(a, 24)
		}
		return netip.PrefixFrom(a, 64)
	}
	p.hereMAC, p.thereMAC = testenv.Veth(t,
		testenv.End{Namespace: p.here, Name: "here", Addresses: []netip.Prefix{prefix(here4), prefix(here6)}},
		testenv.End{Namespace: p.there, Name: "there", Addresses: []netip.Prefix{prefix(there4), prefix(there6)}})
	if vips {
		testenv.In(t, p.there, func() error {
			lo, err := netlink.LinkByName("lo")
			if err != nil {
				return err
			}
			return errors.Join(
				netlink.AddrAdd(lo, &netlink.Addr{IPNet: &net.IPNet{IP: vip4.AsSlice(), Mask: net.CIDRMask(32, 32)}}),
				netlink.AddrAdd(lo, &netlink.Addr{IPNet: &net.IPNet{IP: vip6.AsSlice(), Mask: net.CIDRMask(128, 128)}}))
		})
	}
	return p
}

// listen opens a listener on the near end.
func (p pair) listen(t *testing.T) (e *listener) {
	t.Helper()
	testenv.In(t, p.here, func() (err error) {
		e, err = listen("here")
		return err
	})
	return e
}

// TestQuestions resolves an address of each family. The host with the address answers. For IPv4 it also answers for an
// address on its loopback, like a VIP on a backend without suppressed ARP.
func TestQuestions(t *testing.T) {
	p := newPair(t, true)
	e := p.listen(t)
	vacant4 := netip.MustParseAddr("198.18.0.77")
	ask := func(address netip.Addr) {
		if err := e.ask(address, sameFamily(address, here4, here6)); err != nil {
			t.Fatal(err)
		}
	}
	ask(vacant4)
	claims := func(a netip.Addr) []string {
		e.mu.Lock()
		defer e.mu.Unlock()
		var macs []string
		for mac := range e.claims[a] {
			macs = append(macs, mac)
		}
		return macs
	}
	for _, address := range []netip.Addr{there4, there6, vip4} {
		testenv.Eventually(t, testenv.WaitLimit, address.String()+" answers", func() bool {
			ask(address)
			return slices.Equal(claims(address), []string{p.thereMAC.String()})
		})
	}
	e.close()
	if macs := claims(vacant4); macs != nil {
		t.Errorf("%s, which no host has, was claimed by %v", vacant4, macs)
	}
}

// TestPingsByMAC pings a backend's own address and a VIP, at its MAC address.
func TestPingsByMAC(t *testing.T) {
	for _, has := range []bool{true, false} {
		p := newPair(t, has)
		e := p.listen(t)
		pings := []struct {
			from, to netip.Addr
			want     bool
		}{{here4, there4, true}, {here6, there6, true}, {here4, vip4, has}, {here6, vip6, has}}
		answered := func(i int) bool {
			// Repeated if necessary: a frame may arrive before the other host's network is ready.
			if err := e.ping(p.thereMAC, pings[i].from, pings[i].to, uint16(i)); err != nil {
				t.Fatal(err)
			}
			e.mu.Lock()
			defer e.mu.Unlock()
			return e.echoes[echoKey{pings[i].to, uint16(i)}] > 0
		}
		// Addresses that no host may answer come first: when the others are answered, these had time as well.
		for i := range pings {
			answered(len(pings) - 1 - i)
		}
		for i, ping := range pings {
			if ping.want {
				testenv.Eventually(t, testenv.WaitLimit, ping.to.String()+" answers", func() bool { return answered(i) })
			}
		}
		for i, ping := range pings {
			if answered(i) != ping.want {
				t.Errorf("with the VIPs there: %v; %s answered: %v", has, ping.to, !ping.want)
			}
		}
		e.close()
	}
}

// TestSurvey plans and sends probes from a reading, and reads the answers.
func TestSurvey(t *testing.T) {
	p := newPair(t, true)
	var s *survey
	testenv.In(t, p.here, func() error {
		links, err := readLinks("")
		if err != nil {
			return err
		}
		backend := ops.Backend{Name: "there", Address: there4, NextHop: there4, MAC: p.thereMAC.String(),
			Interface: "here"}
		r := &evidence.Reading{Links: links, Balancer: &ops.Status{Interface: "here",
			Services: []ops.Service{{Name: "web", VIP: vip4, Mode: lb.L2DSR, Backends: []ops.Backend{backend}}}}}
		index := slices.IndexFunc(links, func(l evidence.Link) bool { return l.Name == "here" })
		r.Neighbours = []evidence.Neighbour{{Address: there4, Interface: links[index].Index, State: "PERMANENT",
			MAC: "02:00:00:00:00:99"}}
		s, err = newSurvey(r, []netip.Addr{vip4}, false)
		return err
	})
	testenv.Eventually(t, testenv.WaitLimit, "all is answered", func() bool {
		if err := s.askAll(); err != nil {
			t.Fatal(err)
		}
		e := s.listeners[0]
		e.mu.Lock()
		defer e.mu.Unlock()
		return len(e.claims) == 2 && len(e.echoes) == 2
	})
	got := s.close()
	if got.Provoked == 0 {
		t.Error("the answers that bore the VIP were not counted")
	}
	got.Provoked = 0
	mac := p.thereMAC.String()
	want := evidence.Wire{
		Claims: []evidence.Claim{
			{Address: vip4, Interface: "here", VIP: true, MACs: []string{mac}},
			{Address: there4, Interface: "here", Known: "02:00:00:00:00:99", MACs: []string{mac}}},
		Echoes: []evidence.Echo{{Backend: "web/there", Address: there4, VIP: vip4, Own: true, Has: true}},
	}
	addresses := cmp.Comparer(func(a, b netip.Addr) bool { return a == b })
	if diff := cmp.Diff(want, got, addresses); diff != "" {
		t.Errorf("received (-want +got):\n%s", diff)
	}
}

// TestSurveyOfNodes: a cluster node is probed by a connection to the Service's address and port, and need not answer
// pings to the address. An ICMP error that the port is closed is an answer as well.
func TestSurveyOfNodes(t *testing.T) {
	for _, has := range []bool{true, false} {
		p := newPair(t, has)
		var s *survey
		testenv.In(t, p.here, func() error {
			links, err := readLinks("")
			if err != nil {
				return err
			}
			status := &ops.Status{Interface: "here", Feeds: []ops.Feed{{Source: "kubernetes",
				FeedReport: ops.FeedReport{Platform: ops.Kubernetes}}}}
			for name, pair := range map[string][2]netip.Addr{"web": {vip4, there4}, "web6": {vip6, there6}} {
				status.Services = append(status.Services, ops.Service{Name: name, Owner: "kubernetes", VIP: pair[0],
					Port: 80, Protocol: lb.TCP, Mode: lb.L2DSR, Backends: []ops.Backend{{Name: "node", Address: pair[1],
						State: lb.Up, MAC: p.thereMAC.String(), Interface: "here"}}})
			}
			s, err = newSurvey(&evidence.Reading{Links: links, Balancer: status}, nil, false)
			return err
		})
		testenv.Eventually(t, testenv.WaitLimit, "all is answered", func() bool {
			if err := s.askAll(); err != nil {
				t.Fatal(err)
			}
			e := s.listeners[0]
			e.mu.Lock()
			defer e.mu.Unlock()
			return len(e.echoes) == 2 && (!has || len(e.answered) == 2)
		})
		wire := s.close()
		for _, echo := range wire.Echoes {
			if !echo.Own || echo.Has != has || echo.Port != 80 {
				t.Errorf("with the VIP: %v, received %+v", has, echo)
			}
		}
		found := rules.Findings(&evidence.Evidence{Wire: wire})
		if has != (len(found) == 0) || len(found) > 0 && (len(found) > 1 || found[0].Kind != "node-without-vip-rule") {
			t.Errorf("with the VIP: %v, found %+v", has, found)
		}
	}
}

// TestPaths distinguishes a path that passes full-size packets from one that loses them, in both families.
func TestPaths(t *testing.T) {
	t.Parallel()
	for _, narrow := range []bool{false, true} {
		p := newPair(t, false)
		if narrow {
			testenv.In(t, p.there, func() error {
				link, err := netlink.LinkByName("there")
				if err != nil {
					return err
				}
				return netlink.LinkSetMTU(link, 1400)
			})
		}
		want := []evidence.Path{{Address: there4, Size: 1500, Small: true, Large: !narrow, Passes: 1500},
			{Address: there6, Size: 1500, Small: true, Large: !narrow, Passes: 1500}, {Address: vip4, Size: 1500}}
		if narrow {
			want[0].Passes, want[1].Passes = 1400, 1400
		}
		// Once more where this process stood still for as long as it waits for answers.
		testenv.Eventually(t, testenv.WaitLimit, fmt.Sprintf("the paths are found as they are, narrow: %v", narrow),
			func() bool {
				got := p.pingPaths(t, 1500, there4, there6, vip4)
				if !slices.Equal(got, want) {
					t.Logf("found %+v, want %+v", got, want)
				}
				return slices.Equal(got, want)
			})
	}
}

// pingPaths returns the paths to some addresses, as pings of up to a size find them.
func (p pair) pingPaths(t *testing.T, size int, to ...netip.Addr) []evidence.Path {
	t.Helper()
	var pinger *pinger
	testenv.In(t, p.here, func() (err error) {
		pinger, err = openPinger()
		return err
	})
	for _, address := range to {
		pinger.add(address, size)
	}
	pinger.run(t.Context())
	return pinger.close()
}

// FuzzFrames passes any frame to a listener.
func FuzzFrames(f *testing.F) {
	f.Add([]byte{}, false)
	f.Add([]byte(
		"\xff\xff\xff\xff\xff\xff\x02\x00\x00\x00\x00\x01\x08\x06\x00\x01\x08\x00\x06\x04\x00\x02\x02\x00\x00\x00\x00\x01\xc6\x12\x00\x64\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"), false)
	f.Add([]byte(
		"\x02\x00\x00\x00\x00\x02\x02\x00\x00\x00\x00\x01\x08\x00E\x00\x00\x1c\x00\x00\x00\x00\x40\x01\x00\x00\xc6\x12\x00\x02\xc6\x12\x00\x01\x00\x00\x00\x00\x00\x07\x00\x03"), true)
	f.Fuzz(func(t *testing.T, frame []byte, outgoing bool) {
		e := &listener{claims: map[netip.Addr]map[string]bool{}, echoes: map[echoKey]int{},
			answered: map[uint32]map[string]bool{}}
		e.note(frame, outgoing)
		for address := range e.claims {
			if !address.IsValid() {
				t.Errorf("a claim of no address from %x", frame)
			}
		}
	})
}

// FuzzICMP passes any message to a pinger.
func FuzzICMP(f *testing.F) {
	f.Add(1, []byte("\x00\x00\x00\x00\x00\x01\x00\x00"))
	f.Add(1, []byte(
		"\x03\x04\x00\x00\x00\x00\x05\x78E\x00\x00\x1c\x00\x00\x00\x00\x40\x01\x00\x00\xc6\x12\x00\x01\xc6\x12\x00\x02\x08\x00\x00\x00\x00\x07\x00\x03"))
	f.Add(58, []byte("\x02\x00\x00\x00\x00\x00\x05\x78"))
	f.Fuzz(func(t *testing.T, protocol int, message []byte) {
		p := &pinger{id: 1, sizes: map[int]map[int]bool{}, paths: []*evidence.Path{{Address: there4, Size: 1500}}}
		p.note(protocol, message)
		for i := range p.sizes {
			if i >= len(p.paths) {
				t.Errorf("an answer for path %d", i)
			}
		}
	})
}

// FuzzReserved counts any list of reserved ports.
func FuzzReserved(f *testing.F) {
	for _, list := range []string{"", "8080", "8080,9148-9150", "1-65535", "9-1", "x", ",,", "70000"} {
		f.Add(list, uint16(1024), uint16(60999))
	}
	f.Fuzz(func(t *testing.T, list string, first, last uint16) {
		if n, err := countReserved(list, evidence.PortRange{First: first, Last: last}); err != nil && n != 0 || n < 0 {
			t.Errorf("%q within %d-%d: %d, %v", list, first, last, n, err)
		}
	})
}
