// SPDX-License-Identifier: Apache-2.0

package local_test

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/balancer/datapath"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/host/namespace"
	"github.com/jeoul/jeoul/internal/test/testenv"
)

// waitTimeout bounds the waits of a test on a busy machine.
var waitTimeout = testenv.WaitLimit

// testBalancer is a balancer in a network namespace, whose backends are servers of the test.
type testBalancer struct {
	t        *testing.T
	ns       *namespace.Namespace
	cgroup   string
	datapath *datapath.Datapath
	state    lb.State
}

// backends is how many there are; their numbers begin with 1.
const backends = 3

var (
	vip4 = netip.MustParseAddr("198.18.0.100")
	vip6 = netip.MustParseAddr("2001:2::100")
)

// port of the services, and of the backends.
const (
	port        = 80
	backendPort = 8080
)

// address is the address of backend n of a family.
func address(ipv6 bool, n int) netip.Addr {
	if ipv6 {
		return netip.MustParseAddr(fmt.Sprintf("2001:2::%d", n))
	}
	return netip.AddrFrom4([4]byte{198, 18, 0, byte(n)})
}

// name is the answer of backend n.
func name(n int) string { return fmt.Sprintf("b%d", n) }

func newTestBalancer(t *testing.T) *testBalancer {
	testenv.Root(t)
	r := &testBalancer{t: t, ns: testenv.Namespace(t), cgroup: os.Getenv(inside)}
	if r.cgroup == "" {
		t.Skip("no cgroup v2 hierarchy is mounted")
	}
	r.in(func() error {
		pair := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "veth0"}, PeerName: "veth1"}
		lo, err := netlink.LinkByName("lo")
		if err := errors.Join(err, netlink.LinkAdd(pair)); err != nil {
			return err
		}
		for _, ipv6 := range []bool{false, true} {
			for n := 1; n <= backends; n++ {
				if err := ownSocket(lo, address(ipv6, n)); err != nil {
					return err
				}
			}
		}
		return errors.Join(ownSocket(lo, vip4), ownSocket(lo, vip6))
	})
	for n := 1; n <= backends; n++ {
		for _, ipv6 := range []bool{false, true} {
			r.listen(netip.AddrPortFrom(address(ipv6, n), backendPort), name(n))
		}
	}
	r.in(func() (err error) {
		r.datapath, err = datapath.Open(r.options())
		return err
	})
	t.Cleanup(func() { r.in(r.datapath.Close) })
	return r
}

func (r *testBalancer) options() datapath.Options {
	return datapath.Options{Interfaces: []string{"veth0"}, Hook: lb.HookTC, TableSize: 1021, FlowLimit: 1024,
		UnprovenLimit: 1024}
}

func ownSocket(lo netlink.Link, a netip.Addr) error {
	return netlink.AddrAdd(lo,
		&netlink.Addr{IPNet: &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen(), a.BitLen())},
			Flags: unix.IFA_F_NODAD})
}

// in runs f in the namespace.
func (r *testBalancer) in(f func() error) {
	r.t.Helper()
	if err := r.ns.Do(f); err != nil {
		r.t.Fatal(err)
	}
}

// listen answers TCP and UDP on an address with a word.
func (r *testBalancer) listen(at netip.AddrPort, word string) {
	var tcp net.Listener
	var udp net.PacketConn
	r.in(func() (err error) {
		if tcp, err = net.Listen("tcp", at.String()); err != nil {
			return err
		}
		udp, err = net.ListenPacket("udp", at.String())
		return err
	})
	r.t.Cleanup(func() { tcp.Close(); udp.Close() })
	go func() {
		for {
			c, err := tcp.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte(word))
			r.t.Cleanup(func() { c.Close() })
		}
	}()
	go func() {
		buffer := make([]byte, 64)
		for {
			_, from, err := udp.ReadFrom(buffer)
			if err != nil {
				return
			}
			_, _ = udp.WriteTo([]byte(word), from)
		}
	}()
}

// service is a service whose backends are all there.
func service(ipv6 bool, protocol lb.Protocol, scheduler lb.Scheduler) lb.RoutedService {
	s := lb.RoutedService{Service: lb.Service{Name: fmt.Sprintf("%s-%t", protocol, ipv6), VIP: vip4, Port: port,
		Protocol: protocol, Mode: lb.NAT, Scheduler: scheduler}}
	if ipv6 {
		s.VIP = vip6
	}
	for n := 1; n <= backends; n++ {
		s.Backends = append(s.Backends, lb.Backend{Name: name(n), Address: address(ipv6, n), Port: backendPort,
			Weight: 1})
		s.Paths = append(s.Paths, lb.Path{MAC: net.HardwareAddr{2, 0, 0, 0, 0, byte(n)},
			Source: net.HardwareAddr{2, 0, 0, 0, 1, 0}})
	}
	return s
}

// apply makes these the services.
func (r *testBalancer) apply(services ...lb.RoutedService) {
	r.t.Helper()
	r.state = lb.State{Services: services, Hook: lb.HookTC, Local: r.cgroup}
	r.in(func() error { return r.datapath.Apply(r.state) })
}

// without returns a service without a backend.
func without(s lb.RoutedService, n int) lb.RoutedService {
	at := slices.IndexFunc(s.Backends, func(b lb.Backend) bool { return b.Name == name(n) })
	s.Backends, s.Paths = slices.Delete(slices.Clone(s.Backends), at, at+1),
		slices.Delete(slices.Clone(s.Paths), at, at+1)
	return s
}

// changed returns a service with a backend that differs.
func changed(s lb.RoutedService, n int, change func(*lb.Backend)) lb.RoutedService {
	s.Backends = slices.Clone(s.Backends)
	change(&s.Backends[n-1])
	return s
}

func (r *testBalancer) counters() lb.Counters {
	r.t.Helper()
	c, err := r.datapath.Counters()
	if err != nil {
		r.t.Fatal(err)
	}
	return c
}

// event is how often something happened to sockets.
func (r *testBalancer) event(name string) uint64 {
	r.t.Helper()
	local := r.counters().Local
	if local == nil {
		r.t.Fatal("nothing is attached to sockets")
	}
	for _, e := range local.Events {
		if e.Name == name {
			return e.Count
		}
	}
	r.t.Fatalf("there is no event %q", name)
	return 0
}

// family is how a client opens its socket and names the VIP.
type family struct {
	name string
	ipv6 bool
	// mapped: an IPv6 socket names an IPv4 address.
	mapped bool
}

var families = []family{{"ipv4", false, false}, {"ipv6", true, false}, {"mapped", false, true}}

func (f family) vip() netip.Addr {
	if f.ipv6 {
		return vip6
	}
	return vip4
}

// sockaddr is an address as the family's sockets name it.
func (f family) sockaddr(a netip.Addr, port int) unix.Sockaddr {
	if f.ipv6 || f.mapped {
		return &unix.SockaddrInet6{Port: port, Addr: a.As16()}
	}
	return &unix.SockaddrInet4{Port: port, Addr: a.As4()}
}

// addressOf is its inverse.
func addressOf(of unix.Sockaddr) netip.AddrPort {
	switch a := of.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port))
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(a.Addr).Unmap(), uint16(a.Port))
	}
	return netip.AddrPort{}
}

// client is a socket, as a program has it.
type client struct {
	*testBalancer
	family
	fd     int
	closed bool
}

func (r *testBalancer) socket(f family, kind int) *client {
	r.t.Helper()
	c := &client{testBalancer: r, family: f}
	domain := unix.AF_INET
	if f.ipv6 || f.mapped {
		domain = unix.AF_INET6
	}
	r.in(func() (err error) {
		if c.fd, err = unix.Socket(domain, kind|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		return unix.SetsockoptTimeval(c.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO,
			&unix.Timeval{Sec: int64(waitTimeout.Seconds())})
	})
	r.t.Cleanup(c.close)
	return c
}

func (c *client) close() {
	if !c.closed {
		c.closed = true
		unix.Close(c.fd)
	}
}

// connect connects to a port of the VIP.
func (c *client) connect(port int) error { return unix.Connect(c.fd, c.sockaddr(c.vip(), port)) }

// query sends a datagram to the VIP, and returns who answers, and the address that it seems to come from.
func (c *client) query() (string, netip.AddrPort, error) {
	if err := unix.Sendto(c.fd, []byte("?"), 0, c.sockaddr(c.vip(), port)); err != nil {
		return "", netip.AddrPort{}, err
	}
	return c.receive()
}

func (c *client) receive() (string, netip.AddrPort, error) {
	buffer := make([]byte, 64)
	for {
		n, from, err := unix.Recvfrom(c.fd, buffer, 0)
		switch {
		case errors.Is(err, unix.EINTR):
			continue // Go's own signals: the kernel does not restart a call that has a timeout
		case err != nil:
			return "", netip.AddrPort{}, err
		}
		return string(buffer[:n]), addressOf(from), nil
	}
}

// read reads the bytes of a stream.
func (c *client) read() (string, error) {
	buffer := make([]byte, 64)
	for {
		n, err := unix.Read(c.fd, buffer)
		if !errors.Is(err, unix.EINTR) { // as in hear
			return string(buffer[:max(n, 0)]), err
		}
	}
}

// peer is the address that getpeername returns.
func (c *client) peer() netip.AddrPort {
	a, err := unix.Getpeername(c.fd)
	if err != nil {
		c.t.Error(err)
	}
	return addressOf(a)
}

// open connects or sends as a kind of client does, and returns who answers.
func (r *testBalancer) open(f family, protocol lb.Protocol, connected bool) (*client, string, error) {
	r.t.Helper()
	if protocol == lb.TCP {
		c := r.socket(f, unix.SOCK_STREAM)
		if err := c.connect(port); err != nil {
			return c, "", err
		}
		word, err := c.read()
		return c, word, err
	}
	c := r.socket(f, unix.SOCK_DGRAM)
	if !connected {
		word, from, err := c.query()
		if want := netip.AddrPortFrom(f.vip(), port); err == nil && from != want {
			err = fmt.Errorf("the answer of %s comes from %s, not %s", word, from, want)
		}
		return c, word, err
	}
	if err := c.connect(port); err != nil {
		return c, "", err
	}
	if _, err := unix.Write(c.fd, []byte("?")); err != nil {
		return c, "", err
	}
	word, from, err := c.receive()
	if want := netip.AddrPortFrom(f.vip(), port); err == nil && from != want {
		err = fmt.Errorf("the answer of %s comes from %s, not %s", word, from, want)
	}
	return c, word, err
}
