// SPDX-License-Identifier: Apache-2.0

package replyroutes

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/balancer/datapath"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/host/namespace"
	"github.com/jeoul/jeoul/internal/test/testenv"
	"github.com/jeoul/jeoul/internal/test/testpacket"
)

var (
	ownMAC   = net.HardwareAddr{2, 0, 0, 0, 0, 1}
	backends = []netip.Addr{netip.MustParseAddr("203.0.113.9"), netip.MustParseAddr("2001:db8:ffff::9")}
	vips     = []netip.Addr{netip.MustParseAddr("203.0.113.80"), netip.MustParseAddr("2001:db8:ffff::80")}
)

// testNetwork is a namespace that forwards, a balancer of mode nat in it, and a Follower.
type testNetwork struct {
	*testing.T
	balancer *datapath.Datapath
	follower *Follower
	// names of two links with routers 1 to 4 on each, in both families.
	links []netlink.Link
	// ran: the Follower has closed itself.
	ran bool
}

// newTestNetwork runs a test there, on a thread of its own.
func newTestNetwork(t *testing.T, hook lb.Hook, test func(g *testNetwork)) {
	t.Helper()
	testenv.Root(t)
	ns, err := namespace.New()
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and ends with the goroutine
		if err := unix.Setns(int(ns.Handle()), unix.CLONE_NEWNET); err != nil {
			t.Error(err)
			return
		}
		g := &testNetwork{T: t}
		g.makeLinks()
		g.balancer = datapath.NewDetached(datapath.Options{Hook: hook}, ownMAC)
		defer g.balancer.Close()
		if err := g.balancer.Apply(natState()); err != nil {
			t.Error(err)
			return
		}
		loopback := func() []string { return []string{"lo"} }
		if g.follower, err = New(g.balancer, loopback, slog.New(slog.DiscardHandler)); err != nil {
			t.Error(err)
			return
		}
		defer func() {
			if !g.ran {
				g.follower.Close()
			}
		}()
		test(g)
	}()
	<-done
}

// natState has a service of each family in mode nat, with a backend each.
func natState() (state lb.State) {
	for i, vip := range vips {
		state.Services = append(state.Services, lb.RoutedService{
			Service: lb.Service{
				Name: fmt.Sprint("web", i), VIP: vip, Port: 80, Protocol: lb.TCP, Mode: lb.NAT, Scheduler: lb.Maglev,
				Backends: []lb.Backend{{Name: "one", Address: backends[i], Port: 8080, Weight: 1}},
			},
			Paths: []lb.Path{{MAC: ownMAC, Source: ownMAC}},
		})
	}
	return state
}

func (g *testNetwork) must(err error) {
	g.Helper()
	if err != nil {
		panic(err)
	}
}

// makeLinks makes the links and their routers.
func (g *testNetwork) makeLinks() {
	for _, family := range []string{"ipv4", "ipv6"} {
		g.must(os.WriteFile("/proc/sys/net/"+family+"/conf/all/forwarding", []byte("1"), 0))
	}
	for i := range 2 {
		name := fmt.Sprint("out", i)
		attrs := netlink.LinkAttrs{Name: name, MTU: 1500 - 100*i}
		g.must(netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: fmt.Sprint("far", i)}))
		for _, up := range []string{"lo", name, fmt.Sprint("far", i)} {
			link, err := netlink.LinkByName(up)
			g.must(err)
			g.must(netlink.LinkSetUp(link))
		}
		link, err := netlink.LinkByName(name)
		g.must(err)
		g.links = append(g.links, link)
		for family := range vips {
			own := netip.PrefixFrom(g.router(family, i, 254), 24+40*family)
			g.must(netlink.AddrAdd(link, &netlink.Addr{IPNet: netOf(own), Flags: unix.IFA_F_NODAD}))
			for n := range byte(4) {
				g.setMAC(family, i, n+1, n+1)
			}
		}
	}
}

// router is the address of a router.
func (g *testNetwork) router(family, link int, n byte) netip.Addr {
	if family == 0 {
		return netip.AddrFrom4([4]byte{10, 9, byte(link), n})
	}
	return netip.AddrFrom16([16]byte{0xfd, 9, 7: byte(link), 15: n})
}

// setMAC gives a router a MAC address that ends with a byte.
func (g *testNetwork) setMAC(family, link int, n, last byte) {
	g.must(netlink.NeighSet(&netlink.Neigh{
		LinkIndex: g.links[link].Attrs().Index, State: netlink.NUD_PERMANENT, IP: g.router(family, link, n).AsSlice(),
		HardwareAddr: net.HardwareAddr{2, 9, byte(family), byte(link), 0, last},
	}))
}

func netOf(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// reply is a backend's to a client, of so many bytes in the IP packet.
func (g *testNetwork) reply(client netip.Addr, length int) []byte {
	var network gopacket.SerializableLayer
	tcp := &layers.TCP{SrcPort: 8080, DstPort: 4321, ACK: true, Window: 100}
	eth := &layers.Ethernet{
		SrcMAC: net.HardwareAddr{2, 0, 0, 0, 0, 9}, DstMAC: ownMAC, EthernetType: layers.EthernetTypeIPv4,
	}
	headers := 40
	if client.Is6() {
		headers, eth.EthernetType = 60, layers.EthernetTypeIPv6
		ip := &layers.IPv6{
			Version: 6, HopLimit: 64, NextHeader: layers.IPProtocolTCP, SrcIP: backends[1].AsSlice(),
			DstIP: client.AsSlice(),
		}
		network = ip
		g.must(tcp.SetNetworkLayerForChecksum(ip))
	} else {
		ip := &layers.IPv4{
			Version: 4, TTL: 64, Protocol: layers.IPProtocolTCP, Flags: layers.IPv4DontFragment,
			SrcIP: backends[0].AsSlice(), DstIP: client.AsSlice(),
		}
		network = ip
		g.must(tcp.SetNetworkLayerForChecksum(ip))
	}
	return testpacket.Serialize(g.T, eth, network, tcp, gopacket.Payload(make([]byte, max(length-headers, 0))))
}

// answer is the outcome of a reply.
type answer struct {
	action uint32
	macs   [12]byte
}

// send runs a reply through the program.
func (g *testNetwork) send(client netip.Addr, length int) answer {
	g.Helper()
	in := g.reply(client, length)
	out := make([]byte, len(in)+256)
	run := ebpf.RunOptions{Data: in, DataOut: out}
	action, err := g.balancer.Program().Run(&run)
	g.must(err)
	return answer{action, [12]byte(run.DataOut[:12])}
}

// advanceHeartbeat has the data plane see that the control plane lives: its clock moves twice, with a reply after each.
func (g *testNetwork) advanceHeartbeat() {
	for range 2 {
		g.balancer.Tick()
		for _, client := range []string{"192.0.2.200", "2001:db8:77::1"} {
			g.send(netip.MustParseAddr(client), 100)
		}
	}
}

// update has the mirror take the kernel's routes, and returns the data plane to the state in which the kernel is not
// asked.
func (g *testNetwork) update() {
	g.Helper()
	g.must(g.follower.Update())
	if holds, _, _ := g.balancer.ReplyRoutesEnabled(); !holds && (g.follower.mirrored.IPv4 ||
		g.follower.mirrored.IPv6) {
		g.Fatal("the mirror does not hold what was read")
	}
	g.advanceHeartbeat()
}

// mirrorOtherMACs has the mirror hold other MAC addresses than the kernel has.
func (g *testNetwork) mirrorOtherMACs() {
	g.Helper()
	other := g.follower.mirrored
	other.Hops = nil
	for _, hop := range g.follower.mirrored.Hops {
		hop.MAC[0] ^= 0x40
		other.Hops = append(other.Hops, hop)
	}
	g.must(g.balancer.InvalidateReplyRoutes())
	g.must(g.balancer.WriteReplyRoutes(other))
	g.must(g.balancer.EnableReplyRoutes(other))
	g.advanceHeartbeat()
}

// mirroredOf says for which of the clients the mirror was used: with other MAC addresses in it, their answers differ.
func (g *testNetwork) mirroredOf(clients []netip.Addr) (used []bool) {
	g.Helper()
	g.mirrorOtherMACs()
	for _, client := range clients {
		g.send(client, 100) // by which the next hop's use is noted
		used = append(used, g.send(client, 100).macs[0]&0x40 != 0)
	}
	g.must(g.balancer.InvalidateReplyRoutes())
	return used
}

// randomTable adds routes of each kind, and returns how to take them away.
func (g *testNetwork) randomTable(random *rand.Rand, family int) (undo func()) {
	var added []netlink.Route
	for range 1 + random.IntN(12) {
		prefix := g.randomPrefix(random, family)
		link := random.IntN(len(g.links))
		route := netlink.Route{
			Dst: netOf(prefix), LinkIndex: g.links[link].Attrs().Index, Priority: 100 * (1 + random.IntN(2)),
		}
		switch random.IntN(16) {
		case 0:
			route.Type, route.LinkIndex = unix.RTN_BLACKHOLE, 0
		case 1:
			route.Type, route.LinkIndex = unix.RTN_UNREACHABLE, 0
		case 2: // on the link
		case 3:
			route.MTU = 1280 + random.IntN(100)
			route.Gw = g.router(family, link, 1).AsSlice()
		case 4:
			route.Gw = g.router(family, link, 77).AsSlice() // whose MAC address nobody knows
		case 5:
			route.Table = 100 // which no rule leads to
			route.Gw = g.router(family, link, 2).AsSlice()
		case 6:
			route.Type, route.Table, route.LinkIndex, route.Priority = unix.RTN_LOCAL, unix.RT_TABLE_LOCAL, 1, 0
		case 7:
			route.LinkIndex = 0
			for n := range 2 {
				route.MultiPath = append(route.MultiPath, &netlink.NexthopInfo{
					LinkIndex: g.links[n].Attrs().Index, Gw: g.router(family, n, 3).AsSlice(), Hops: random.IntN(3),
				})
			}
		default:
			route.Gw = g.router(family, link, byte(1+random.IntN(4))).AsSlice()
		}
		if netlink.RouteAdd(&route) == nil { // the kernel refuses a route that is there
			added = append(added, route)
		}
	}
	return func() {
		for i := range added {
			g.must(netlink.RouteDel(&added[i]))
		}
	}
}

// randomPrefix is a prefix from a small set, so that prefixes lie within each other.
func (g *testNetwork) randomPrefix(random *rand.Rand, family int) netip.Prefix {
	var address netip.Addr
	bits := []int{0, 0, 3, 8, 12, 15, 16, 17, 20, 24, 28, 32}[random.IntN(12)]
	if address = g.randomClient(random, family); family == 1 {
		bits = []int{0, 0, 3, 7, 16, 20, 32, 48, 56, 64, 64, 72, 128}[random.IntN(13)]
	}
	return netip.PrefixFrom(address, bits).Masked()
}

// randomClient is an address from a small set near each other.
func (g *testNetwork) randomClient(random *rand.Rand, family int) netip.Addr {
	few := func() byte { return byte(random.IntN(3)) }
	if family == 0 {
		return netip.AddrFrom4([4]byte{100 + few(), few(), few(), 1 + few()})
	}
	return netip.AddrFrom16([16]byte{0x20 + few(), 1, 0, few(), 0, few(), 0, few(), few(), 15: 1 + few()})
}

// TestAsTheKernel: whatever routes there are, a mirrored answer is the kernel's. Chance has the mirror leave each of a
// dozen tables of a family to the kernel, so tables come until it has answered for both.
func TestAsTheKernel(t *testing.T) {
	testenv.Also(t, "test-hooks")
	tables := 12
	if testenv.InTarget("test-hooks") {
		tables = 2000
	}
	for _, hook := range []lb.Hook{lb.HookXDP, lb.HookTC} {
		newTestNetwork(t, hook, func(g *testNetwork) {
			seed := rand.Uint64()
			g.Logf("seed %d", seed)
			random, mirrored := rand.New(rand.NewPCG(seed, 0)), [2]int{}
			asked := 0
			for ; asked < tables || min(mirrored[0], mirrored[1]) == 0 && asked < tables+500; asked++ {
				undo := [2]func(){g.randomTable(random, 0), g.randomTable(random, 1)}
				var clients []netip.Addr
				for range 20 {
					clients = append(clients, g.randomClient(random, 0), g.randomClient(random, 1))
				}
				g.compare(asked, clients, random, &mirrored)
				undo[0]()
				undo[1]()
			}
			g.Logf("%s: of %d answers of each family, the mirror gave %v", hook, 20*asked, mirrored)
			if mirrored[0] == 0 || mirrored[1] == 0 {
				g.Errorf("the mirror was used for %v replies by family", mirrored)
			}
		})
	}
}

// compare asks the kernel, and then the mirror.
func (g *testNetwork) compare(table int, clients []netip.Addr, random *rand.Rand, mirrored *[2]int) {
	g.Helper()
	lengths, kernel := make([]int, len(clients)), make([]answer, len(clients))
	g.must(g.balancer.InvalidateReplyRoutes())
	for i, client := range clients {
		lengths[i] = []int{100, 1300, 1390, 1450, 1500}[random.IntN(5)]
		kernel[i] = g.send(client, lengths[i])
	}
	g.update()
	for i, client := range clients {
		for range 3 { // the first notes the use of the next hop
			if got := g.send(client, lengths[i]); got != kernel[i] {
				g.Errorf("table %d: %v, %d bytes: %x, the kernel says %x; %+v", table, client, lengths[i],
					got, kernel[i],
					g.follower.mirrored)
				return
			}
		}
	}
	for i, used := range g.mirroredOf(clients) {
		if used {
			mirrored[min(1, clients[i].BitLen()/128)]++
		}
	}
}

// expectMirrored expects that replies to clients of each family go by the mirror now, or that none does.
func (g *testNetwork) expectMirrored(what string, want bool) {
	g.Helper()
	clients := []netip.Addr{netip.MustParseAddr("100.64.1.1"), netip.MustParseAddr("2001:db8::1")}
	if want {
		// Once more where this process stood still for longer than the lease of its clock.
		testenv.Eventually(g.T, testenv.WaitLimit, what+": replies of both families go by the mirror", func() bool {
			return !slices.Contains(g.mirroredOf(clients), false)
		})
		return
	}
	for i, used := range g.mirroredOf(clients) {
		if used {
			g.Errorf("%s: replies to %v go by the mirror", what, clients[i])
		}
	}
}

// byDefault is a default route through a router of the first link.
func (g *testNetwork) byDefault(family int, router byte) *netlink.Route {
	to := netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	if family == 1 {
		to = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
	}
	return &netlink.Route{
		LinkIndex: g.links[0].Attrs().Index, Gw: g.router(family, 0, router).AsSlice(), Dst: netOf(to),
	}
}

// defaults sets the default route of each family.
func (g *testNetwork) defaults(router byte) {
	for family := range vips {
		g.must(netlink.RouteReplace(g.byDefault(family, router)))
	}
}

// TestKernelReasons: rules, forwarding that is off, and a link that is down leave replies to the kernel.
func TestKernelReasons(t *testing.T) {
	newTestNetwork(t, lb.HookTC, func(g *testNetwork) {
		g.defaults(1)
		g.update()
		g.expectMirrored("a default route", true)
		for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
			rule := netlink.NewRule()
			rule.Family, rule.Mark, rule.Table, rule.Priority = family, 7, 100, 500
			g.must(netlink.RuleAdd(rule))
			defer netlink.RuleDel(rule)
		}
		g.update()
		g.expectMirrored("a rule by marks", false)
	})
	newTestNetwork(t, lb.HookTC, func(g *testNetwork) {
		g.defaults(1)
		for _, family := range []string{"ipv4", "ipv6"} {
			g.must(os.WriteFile("/proc/sys/net/"+family+"/conf/lo/forwarding", []byte("0"), 0))
		}
		g.update()
		g.expectMirrored("no forwarding", false)
	})
}

// TestLease: without the control plane, the kernel is asked again, and at first after it was away.
func TestLease(t *testing.T) {
	newTestNetwork(t, lb.HookTC, func(g *testNetwork) {
		g.defaults(1)
		g.update()
		client := netip.MustParseAddr("100.64.1.1")
		g.mirrorOtherMACs()
		mirrored := func() bool { g.send(client, 100); return g.send(client, 100).macs[0]&0x40 != 0 }
		// Where this process stands still for longer than the lease, its clock does, too.
		testenv.Eventually(g.T, testenv.WaitLimit, "a control plane that lives is believed", func() bool {
			g.advanceHeartbeat()
			return mirrored()
		})
		// Its clock stands.
		testenv.Eventually(g.T, testenv.WaitLimit, "a control plane whose clock stands is not believed", func() bool {
			return !mirrored()
		})
		g.balancer.Tick()
		if mirrored() {
			g.Error("the first tick after a long silence is believed: it may be an old one")
		}
		testenv.Eventually(g.T, testenv.WaitLimit, "a control plane that is back is believed", func() bool {
			g.balancer.Tick()
			return mirrored()
		})
	})
}

// FuzzMessages: whatever the kernel says, it is read or refused.
func FuzzMessages(f *testing.F) {
	f.Add(make([]byte, 12))
	f.Add(binary.NativeEndian.AppendUint32(make([]byte, 12), 0x00010008))
	f.Fuzz(func(t *testing.T, m []byte) {
		for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
			table := table{family: family}
			if table.addRoute(m) != nil {
				continue
			}
			for _, r := range table.main {
				if !r.prefix.IsValid() || r.prefix.Addr().Is6() != (family == unix.AF_INET6) {
					t.Errorf("a route to %v", r.prefix)
				}
			}
		}
		defaultRule(m)
		parseNeighbour(m)
	})
}

// run has the Follower run beside the test, with a clock that moves.
func (g *testNetwork) run() (stop func()) {
	g.ran = true
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { g.follower.Run(ctx) })
	return func() { cancel(); running.Wait() }
}

// awaitMirror waits until the mirror holds routes again.
func (g *testNetwork) awaitMirror(what string) {
	g.Helper()
	testenv.Eventually(g.T, testenv.WaitLimit, "routes are mirrored: "+what, func() bool {
		holds, _, err := g.balancer.ReplyRoutesEnabled()
		g.must(err)
		return holds
	})
	g.advanceHeartbeat()
}

// expectNextHop waits until replies go to a router's MAC address, and expects that none goes back to another.
func (g *testNetwork) expectNextHop(what string, family int, client netip.Addr, last byte) {
	g.Helper()
	want, got := [6]byte{2, 9, byte(family), 0, 0, last}, answer{}
	all := func(times int) bool {
		for range times {
			g.balancer.Tick()
			for range 3 { // of which one asks the kernel, perhaps before the Follower has heard of a change
				if got = g.send(client, 100); [6]byte(got.macs[:6]) != want {
					return false
				}
			}
		}
		return true
	}
	testenv.Eventually(g.T, testenv.WaitLimit, what, func() bool { return all(1) })
	if !all(100) {
		g.Fatalf("%s: a reply to %v goes to %x after several went to %x", what, client, got.macs[:6], want)
	}
}

// TestFollows: routes and MAC addresses that change are followed, and no reply goes by the previous ones after that.
func TestFollows(t *testing.T) {
	newTestNetwork(t, lb.HookTC, func(g *testNetwork) {
		defer g.run()()
		clients := []netip.Addr{netip.MustParseAddr("100.64.1.1"), netip.MustParseAddr("2001:db8::1")}
		g.defaults(1)
		for family, client := range clients {
			g.awaitMirror("at first")
			g.expectNextHop("the first router", family, client, 1)
			g.setMAC(family, 0, 1, 99)
			g.expectNextHop("another MAC address of it", family, client, 99)
			g.awaitMirror("with another MAC address")
			g.expectNextHop("and still", family, client, 99)
		}
		for n := range 300 { // flaps, as fast as the kernel takes them
			g.defaults(byte(2 + n%2))
		}
		for family, client := range clients {
			g.expectNextHop("the last of many routes", family, client, 3)
			g.awaitMirror("after many changes")
			g.expectNextHop("and still", family, client, 3)
		}
		g.must(netlink.RouteDel(g.byDefault(0, 3)))
		testenv.Eventually(g.T, testenv.WaitLimit, "without a route nothing is sent", func() bool {
			g.balancer.Tick()
			return g.send(clients[0], 100).macs[0] == ownMAC[0] && g.send(clients[0], 100).macs[5] == ownMAC[5]
		})
		g.must(netlink.LinkSetDown(g.links[0]))
		testenv.Eventually(g.T, testenv.WaitLimit, "by an interface that is down nothing is sent", func() bool {
			g.balancer.Tick()
			return g.send(clients[1], 100).macs[5] == ownMAC[5]
		})
	})
}

// TestTakenBack: when nobody follows routes any more, the kernel is asked.
func TestTakenBack(t *testing.T) {
	newTestNetwork(t, lb.HookTC, func(g *testNetwork) {
		g.defaults(1)
		stop := g.run()
		g.awaitMirror("at first")
		stop()
		if holds, could, err := g.balancer.ReplyRoutesEnabled(); holds || !could || err != nil {
			g.Errorf("after the end: held: %v (%v), %v", holds, could, err)
		}
	})
}

// TestTooManyRoutes: more routes than are read leave replies to the kernel, and no memory grows.
func TestTooManyRoutes(t *testing.T) {
	testenv.Target(t, "test-hooks")
	newTestNetwork(t, lb.HookTC, func(g *testNetwork) {
		g.defaults(1)
		for n := range maxRoutes + 1 {
			prefix := netip.PrefixFrom(netip.AddrFrom4([4]byte{20 + byte(n>>16), byte(n >> 8), byte(n), 0}), 24)
			route := g.byDefault(0, 1)
			route.Dst = netOf(prefix)
			g.must(netlink.RouteAdd(route))
		}
		if err := g.follower.Update(); !errors.Is(err, errTooMany) {
			g.Errorf("%d routes are read: %v", maxRoutes+1, err)
		}
		if holds, _, _ := g.balancer.ReplyRoutesEnabled(); holds {
			g.Error("the mirror holds what it has not read")
		}
	})
}
