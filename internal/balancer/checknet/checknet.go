// SPDX-License-Identifier: Apache-2.0

// Package checknet has the sockets of health checks that go through the data plane, in a network
// namespace of their own. There a VIP is no address of the host's, and neither the host's routes
// and filters nor its connection tracking bear on a check. A veth pair leads out: programs at its
// ends (internal/balancer/datapath) take packets to a backend, and answers back. The namespace has no name:
// it ends with the process, however that ends, and takes the pair with it.
package checknet

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/host/namespace"
	"github.com/jeoul/jeoul/internal/host/sysctl"
)

const (
	// deviceName is the name of the end among the sockets, and hostPattern the pattern by which the kernel numbers the
	// end in the host's namespace.
	deviceName, hostPattern = "check", "jeoul-check%d"
	// The sockets send from these addresses, which no network has (RFC 7600, RFC 6666); the data
	// plane puts the host's in their place.
	source4, source6 = "192.0.0.8", "100::8"
	// packetSize is the largest packet that a check sends, in bytes: every path that carries
	// IPv6 takes it, within a tunnel too. Answers may be as large as the device's MTU.
	packetSize = 1280
	deviceMTU  = 1500
	// noLinkLocal is IN6_ADDR_GEN_MODE_NONE of the kernel's linux/if_link.h.
	noLinkLocal = 1
)

// ErrNoRights means that the process may not make a network namespace, which takes CAP_SYS_ADMIN.
var ErrNoRights = errors.New("no right to make a network namespace for health checks")

// Net is such a namespace.
type Net struct {
	host, inside *namespace.Namespace
	// outer is the index of the pair's end in the host's namespace, and inner that of the other.
	outer, inner int
	ports        ports
}

// Open makes the namespace, and the pair between it and the calling thread's.
func Open() (*Net, error) {
	host, err := namespace.Current()
	if err != nil {
		return nil, err
	}
	inside, err := namespace.New()
	if err != nil {
		host.Close()
		if errors.Is(err, unix.EPERM) {
			return nil, fmt.Errorf("%w: run as root or with CAP_SYS_ADMIN, which the package's service has by the drop-in "+
				"file /usr/share/doc/jeoul/checks-by-vip.conf; or set via: address", ErrNoRights)
		}
		return nil, err
	}
	n := &Net{host: host, inside: inside}
	n.ports.allocated = map[portKey]bool{}
	if err := errors.Join(inside.Do(n.makeDevice), host.Do(n.raiseOuter)); err != nil {
		return nil, errors.Join(fmt.Errorf("joining the network namespace of health checks to the host's: %w", err),
			n.Close())
	}
	return n, nil
}

// Close ends the namespace, which goes when its last socket is closed. The pair goes at once.
func (n *Net) Close() error {
	var err error
	if n.inner != 0 {
		err = n.inside.Do(func() error {
			return netlink.LinkDel(&netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: n.inner}})
		})
	}
	return errors.Join(err, n.inside.Close(), n.host.Close())
}

// Outer returns the index of the pair's end in the host's namespace, where packets of checks
// come in, and Inner that of the end among the sockets, where they leave.
func (n *Net) Outer() int { return n.outer }

// Inner returns the index of the end among the sockets.
func (n *Net) Inner() int { return n.inner }

// Host runs f in the host's namespace, and Inside among the sockets, on a thread that is there.
func (n *Net) Host(f func() error) error { return n.host.Do(f) }

// Inside runs f in the sockets' namespace.
func (n *Net) Inside(f func() error) error { return n.inside.Do(f) }

// makeDevice makes the pair, from within. Its end there asks for no neighbours: the program at
// the other end knows the next hop.
func (n *Net) makeDevice() error {
	device := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: deviceName, MTU: deviceMTU},
		PeerName: hostPattern, PeerNamespace: netlink.NsFd(n.host.Handle())}
	if err := netlink.LinkAdd(device); err != nil {
		return fmt.Errorf("adding a veth pair: %w", err)
	}
	link, err := netlink.LinkByName(deviceName)
	if err != nil {
		return err
	}
	n.inner, n.outer = link.Attrs().Index, link.Attrs().ParentIndex
	ignoreError(netlink.LinkSetIP6AddrGenMode(link, noLinkLocal))
	if err := errors.Join(netlink.LinkSetARPOff(link), netlink.LinkSetUp(link)); err != nil {
		return fmt.Errorf("raising %s: %w", deviceName, err)
	}
	// A check by the VIP to another backend may reuse the ports of an ended one after a second; where the kernel
	// refuses that, ports stay in TIME-WAIT for a minute, and there are enough for most.
	ignoreError(sysctl.Write("net/ipv4/tcp_tw_reuse", "1"))
	ignoreError(sysctl.Write("net/ipv4/tcp_max_tw_buckets", "16384"))
	if err := n.addAddress(link, net.ParseIP(source4).To4(), unix.AF_INET); err != nil {
		return err
	}
	err = n.addAddress(link, net.ParseIP(source6), unix.AF_INET6)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EACCES) {
		return nil // a kernel without IPv6 has no VIP of IPv6
	}
	return err
}

// addAddress gives the device an address, and leads everything there.
func (n *Net) addAddress(link netlink.Link, ip net.IP, family int) error {
	bits := 8 * len(ip)
	addr := &netlink.Addr{IPNet: &net.IPNet{IP: ip, Mask: net.CIDRMask(bits, bits)}}
	if family == unix.AF_INET6 {
		addr.Flags = unix.IFA_F_NODAD
	}
	if err := netlink.AddrAdd(link, addr); err != nil {
		return fmt.Errorf("adding %s to %s: %w", ip, deviceName, err)
	}
	route := &netlink.Route{LinkIndex: n.inner, Family: family, Scope: netlink.SCOPE_LINK, MTU: packetSize,
		Dst: &net.IPNet{IP: make(net.IP, len(ip)), Mask: net.CIDRMask(0, bits)}}
	if family == unix.AF_INET6 {
		route.Scope = netlink.SCOPE_UNIVERSE
	}
	if err := netlink.RouteAdd(route); err != nil {
		return fmt.Errorf("leading packets to %s: %w", deviceName, err)
	}
	return nil
}

// raiseOuter raises the end in the host's namespace. It has no address there, nor gets one.
func (n *Net) raiseOuter() error {
	link, err := netlink.LinkByIndex(n.outer)
	if err != nil {
		return err
	}
	if !strings.HasPrefix(link.Attrs().Name, strings.TrimSuffix(hostPattern, "%d")) {
		return fmt.Errorf("interface %d is %s, and not the end of the pair", n.outer, link.Attrs().Name)
	}
	ignoreError(netlink.LinkSetIP6AddrGenMode(link, noLinkLocal))
	return netlink.LinkSetUp(link)
}

// ignoreError drops the error of a step that is better done, and not needed.
func ignoreError(error) {}

// socket opens a socket among the others, whose packets go to a target; it does not block.
func (n *Net) socket(t Target, kind, protocol int) (fd int, err error) {
	family := unix.AF_INET
	if t.Remote.Addr().Is6() {
		family = unix.AF_INET6
	}
	err = n.inside.Visit(n.host, func() (err error) {
		fd, err = unix.Socket(family, kind|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, protocol)
		return os.NewSyscallError("socket", err)
	})
	if err != nil {
		return 0, err
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_MARK, int(t.Mark)); err != nil {
		unix.Close(fd)
		return 0, os.NewSyscallError("setsockopt", err)
	}
	return fd, nil
}
