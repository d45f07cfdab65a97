// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"encoding/binary"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/host/namespace"
	"github.com/jeoul/jeoul/internal/test/testenv"
	"github.com/jeoul/jeoul/internal/test/testservice"
)

// The programs are tested in a network namespace whose routes and neighbours are declared here once: the kernel gets
// them, and the model reads them.

// testLink is an interface of the ground.
type testLink struct {
	name  string
	index int
	mac   net.HardwareAddr
	mtu   int
}

// The loopback interface is the one that tested packets come in on, unless the
// test says another.
const loopback = 1

var (
	nearLink = testLink{"near", 101, net.HardwareAddr{2, 0, 0, 1, 1, 1}, 1500}
	farLink  = testLink{"far", testservice.FarIndex, testservice.FarMAC, 1400}
)

// testRoute is a route, and how the kernel answers for it.
type testRoute struct {
	prefix netip.Prefix
	// kind is the route's type: unix.RTN_UNICAST and so on.
	kind int
	link testLink
	// gateway is not set where the subnet is on the link.
	gateway netip.Addr
	// mtu is locked to the route; 0 means the interface's.
	mtu int
}

// clientNear and the others make the addresses of the clients that the ground has routes for.
// Each takes the client's number, which is the address's last byte.
var clientSubnets = []struct{ four, six string }{
	{"198.18.1.0/24", "2001:2::1:0/112"},   // near
	{"198.18.16.0/24", "2001:2::16:0/112"}, // far, by a gateway
	{"198.18.4.0/24", "2001:2::4:0/112"},   // near, small MTU
	{"198.18.5.0/24", "2001:2::5:0/112"},   // unreachable
	{"198.18.6.0/24", "2001:2::6:0/112"},   // blackhole
	{"198.18.7.0/24", "2001:2::7:0/112"},   // prohibited
	{"203.0.113.0/24", "2001:2:f::/112"},   // no route
}

// neighbours is how many clients of a subnet on the link have a MAC address
// that the kernel knows, from .0 on.
const neighbours = 32

var (
	gateway4  = netip.MustParseAddr("198.18.3.1")
	gateway6  = netip.MustParseAddr("2001:2::3:1")
	smallMTU4 = 600
	smallMTU6 = 1280
	testLinks = []testLink{nearLink, farLink}
)

func testRoutes() []testRoute {
	p := netip.MustParsePrefix
	var routes []testRoute
	for i, subnet := range clientSubnets {
		four, six := testRoute{prefix: p(subnet.four), kind: unix.RTN_UNICAST},
			testRoute{prefix: p(subnet.six), kind: unix.RTN_UNICAST}
		switch i {
		case 0:
			four.link, six.link = nearLink, nearLink
		case 1:
			four.link, six.link = farLink, farLink
			four.gateway, six.gateway = gateway4, gateway6
		case 2:
			four.link, six.link = nearLink, nearLink
			four.mtu, six.mtu = smallMTU4, smallMTU6
		case 3, 4, 5:
			four.kind = []int{unix.RTN_UNREACHABLE, unix.RTN_BLACKHOLE, unix.RTN_PROHIBIT}[i-3]
			six.kind = four.kind
		default:
			continue
		}
		routes = append(routes, four, six)
	}
	return append(routes,
		testRoute{prefix: p("198.18.3.0/24"), kind: unix.RTN_UNICAST, link: farLink},
		testRoute{prefix: p("2001:2::3:0/112"), kind: unix.RTN_UNICAST, link: farLink})
}

// neighbourMAC is the MAC address of a client on the link that the kernel knows;
// of others it knows none.
func neighbourMAC(a netip.Addr) net.HardwareAddr {
	b := a.AsSlice()
	if last := b[len(b)-1]; last < neighbours && (a.Is4() || b[len(b)-2] == 0) {
		return net.HardwareAddr{2, 9, byte(len(b)), b[len(b)-3], b[len(b)-2], last}
	}
	return nil
}

// sharedTestNet is made once for all tests: it never changes.
var sharedTestNet = sync.OnceValues(makeTestNet)

func makeTestNet() (*namespace.Namespace, error) {
	ns, err := namespace.New()
	if err != nil {
		return nil, err
	}
	return ns, ns.Do(func() error {
		for name, value := range map[string]string{"net/ipv4/ip_forward": "1", "net/ipv6/conf/all/forwarding": "1"} {
			if err := testenv.WriteSysctl(name, value); err != nil {
				return err
			}
		}
		if err := netlink.LinkSetUp(&netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: loopback}}); err != nil {
			return err
		}
		for _, link := range testLinks {
			if err := link.make(); err != nil {
				return err
			}
		}
		for _, route := range testRoutes() {
			if err := route.make(); err != nil {
				return err
			}
		}
		return nil
	})
}

// make adds the interface; its peer is beside it, and only there to be a carrier.
func (l testLink) make() error {
	veth := &netlink.Veth{PeerName: l.name + "-peer",
		LinkAttrs: netlink.LinkAttrs{Name: l.name, Index: l.index, HardwareAddr: l.mac, MTU: l.mtu}}
	if err := netlink.LinkAdd(veth); err != nil {
		return err
	}
	for _, name := range []string{veth.Name, veth.PeerName} {
		// A link-local address that comes later would be a route that comes later.
		if err := testenv.WriteSysctl("net/ipv6/conf/"+name+"/addr_gen_mode", "1"); err != nil {
			return err
		}
		made, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		if err := netlink.LinkSetUp(made); err != nil {
			return err
		}
	}
	return nil
}

func (r testRoute) make() error {
	bits := r.prefix.Addr().BitLen()
	route := &netlink.Route{Type: r.kind, MTU: r.mtu, MTULock: r.mtu != 0, LinkIndex: r.link.index,
		Dst: &net.IPNet{IP: r.prefix.Addr().AsSlice(), Mask: net.CIDRMask(r.prefix.Bits(), bits)}}
	switch {
	case r.gateway.IsValid():
		route.Gw, route.Flags = r.gateway.AsSlice(), int(netlink.FLAG_ONLINK)
	case r.kind == unix.RTN_UNICAST && bits == 32:
		route.Scope = netlink.SCOPE_LINK
	}
	if err := netlink.RouteAdd(route); err != nil {
		return err
	}
	if r.kind != unix.RTN_UNICAST || r.gateway.IsValid() {
		return nil
	}
	for a := r.prefix.Addr(); neighbourMAC(a) != nil; a = a.Next() {
		err := netlink.NeighSet(&netlink.Neigh{LinkIndex: r.link.index, IP: a.AsSlice(), HardwareAddr: neighbourMAC(a),
			State: netlink.NUD_PERMANENT})
		if err != nil {
			return err
		}
	}
	return nil
}

// enterTestNet moves the calling goroutine into the ground for as long as it
// lives: its thread ends with it.
func enterTestNet(tb testing.TB) {
	tb.Helper()
	testenv.Root(tb)
	ns, err := sharedTestNet()
	if err != nil {
		tb.Fatalf("making the network namespace of the tests: %v", err)
	}
	runtime.LockOSThread()
	if err := netns.Set(ns.Handle()); err != nil {
		tb.Fatalf("entering the network namespace of the tests: %v", err)
	}
}

// hop is the kernel's next hop for a packet.
type hop struct {
	// kind is unix.RTN_UNICAST where there is an interface to send by. Without a route it is 0, and the kernel's own
	// stack decides.
	kind int
	link testLink
	mac  net.HardwareAddr
	mtu  int
}

// hopTo looks a destination up in the ground's routes.
func hopTo(destination netip.Addr) (best hop) {
	longest := -1
	for _, r := range routesOfTestNet {
		if !r.prefix.Contains(destination) || r.prefix.Bits() <= longest {
			continue
		}
		longest = r.prefix.Bits()
		best = hop{kind: r.kind, link: r.link, mtu: r.link.mtu}
		if r.mtu != 0 {
			best.mtu = r.mtu
		}
		if next := destination; r.kind == unix.RTN_UNICAST {
			if r.gateway.IsValid() {
				next = r.gateway
			}
			best.mac = neighbourMAC(next)
		}
	}
	return best
}

var routesOfTestNet = testRoutes()

// TestGround asks the kernel for the path to every client of the tests: the model's assumptions must hold.
func TestGround(t *testing.T) {
	enterTestNet(t)
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "lookup", Type: ebpf.XDP, License: "GPL",
		Instructions: lookupProgram()})
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	for subnet := range clientSubnets {
		for _, six := range []bool{false, true} {
			for _, number := range []byte{0, 3, neighbours - 1, neighbours, 200} {
				for _, length := range []int{100, 600, 601, 1280, 1281, 1400, 1401, 1500, 1501} {
					to := clientOf(subnet, six, number)
					if got, want := lookUp(t, program, to, length), expectedLookup(to, length); got != want {
						t.Errorf("%s with %d bytes: the kernel says %+v, the model %+v", to, length, got, want)
					}
				}
			}
		}
	}
}

// lookupResult is the kernel's answer: BPF_FIB_LKUP_RET_* of <linux/bpf.h>, and the route's fields.
type lookupResult struct {
	code, index, mtu int
	from, to         [6]byte
}

func expectedLookup(to netip.Addr, length int) lookupResult {
	const blackhole, unreachable, prohibit, notForwarded, noNeighbour, tooBig = 1, 2, 3, 4, 7, 8
	hop := hopTo(to)
	switch {
	case hop.kind == unix.RTN_BLACKHOLE:
		return lookupResult{code: blackhole}
	case hop.kind == unix.RTN_UNREACHABLE:
		return lookupResult{code: unreachable}
	case hop.kind == unix.RTN_PROHIBIT:
		return lookupResult{code: prohibit}
	case hop.kind == 0:
		return lookupResult{code: notForwarded}
	case length > hop.mtu:
		return lookupResult{code: tooBig, mtu: hop.mtu}
	case hop.mac == nil:
		return lookupResult{code: noNeighbour}
	}
	return lookupResult{index: hop.link.index, from: [6]byte(hop.link.mac), to: [6]byte(hop.mac)}
}

// lookUp asks by the program: the frame is a struct bpf_fib_lookup.
func lookUp(t *testing.T, program *ebpf.Program, to netip.Addr, length int) lookupResult {
	t.Helper()
	order := binary.NativeEndian
	request := make([]byte, 64)
	request[0] = unix.AF_INET
	if to.Is6() {
		request[0] = unix.AF_INET6
	}
	order.PutUint16(request[6:], uint16(length))
	order.PutUint32(request[8:], loopback)
	copy(request[32:], to.AsSlice())
	code, answer, err := program.Test(request)
	if err != nil {
		t.Fatal(err)
	}
	got := lookupResult{code: int(code)}
	switch code {
	case 0:
		got.index, got.from, got.to = int(order.Uint32(answer[8:])), [6]byte(answer[52:]), [6]byte(answer[58:])
	case 8:
		got.mtu = int(order.Uint16(answer[6:]))
	}
	return got
}

// lookupProgram does the look-up that the packet has the parameters of, and writes the answer over them.
func lookupProgram() asm.Instructions {
	program := asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1),
		asm.LoadMem(asm.R7, asm.R1, 0, asm.Word),
		asm.LoadMem(asm.R3, asm.R1, 4, asm.Word),
		asm.Mov.Reg(asm.R4, asm.R7),
		asm.Add.Imm(asm.R4, 64),
		asm.Mov.Imm(asm.R0, -1),
		asm.JGT.Reg(asm.R4, asm.R3, "out"),
	}
	for at := int16(0); at < 64; at += 4 {
		program = append(program, asm.LoadMem(asm.R2, asm.R7, at, asm.Word),
			asm.StoreMem(asm.R10, at-64, asm.R2, asm.Word))
	}
	program = append(program,
		asm.Mov.Reg(asm.R1, asm.R6),
		asm.Mov.Reg(asm.R2, asm.R10),
		asm.Add.Imm(asm.R2, -64),
		asm.Mov.Imm(asm.R3, 64),
		asm.Mov.Imm(asm.R4, 0),
		asm.FnFibLookup.Call())
	for at := int16(0); at < 64; at += 4 {
		program = append(program, asm.LoadMem(asm.R2, asm.R10, at-64, asm.Word),
			asm.StoreMem(asm.R7, at, asm.R2, asm.Word))
	}
	return append(program, asm.Return().WithSymbol("out"))
}
