// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/host/namespace"
)

// Namespace makes a network namespace with its loopback up. It has no name in /run/netns, and ends with the test's
// process, no matter how that ends. Run code in it with Do, and make that code return errors: t.Fatal belongs outside.
func Namespace(tb testing.TB) *namespace.Namespace {
	tb.Helper()
	Root(tb)
	ns, err := namespace.New()
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { ns.Close() })
	In(tb, ns, func() error {
		return netlink.LinkSetUp(&netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: 1}})
	})
	return ns
}

// In runs f inside ns and fails the test if f returns an error.
func In(tb testing.TB, ns *namespace.Namespace, f func() error) {
	tb.Helper()
	if err := ns.Do(f); err != nil {
		tb.Fatal(err)
	}
}

// End is one end of a veth pair: its namespace, name and addresses.
type End struct {
	Namespace *namespace.Namespace
	Name      string
	Addresses []netip.Prefix
}

// pairs counts the pairs of this process, because each needs its own index.
var pairs atomic.Int32

// Veth joins two namespaces with a veth pair that is up and has its addresses, usable at once (without duplicate
// address detection). It returns the MAC addresses of the ends.
func Veth(tb testing.TB, a, b End) (macA, macB net.HardwareAddr) {
	tb.Helper()
	In(tb, a.Namespace, func() error {
		return netlink.LinkAdd(&netlink.Veth{
			// The kernel takes up to a second to notice the carrier of a link with the same index as its peer, as in
			// two new namespaces.
			LinkAttrs:     netlink.LinkAttrs{Name: a.Name, Index: int(1000 + pairs.Add(1))},
			PeerName:      b.Name,
			PeerNamespace: netlink.NsFd(b.Namespace.Handle()),
		})
	})
	macA, macB = raise(tb, a), raise(tb, b)
	for _, end := range []End{a, b} {
		// The kernel adds the address in the background, once there is a carrier.
		Eventually(tb, time.Minute, end.Name+" has a link-local address", func() bool { return hasLinkLocal(tb, end) })
	}
	return macA, macB
}

func hasLinkLocal(tb testing.TB, e End) (found bool) {
	tb.Helper()
	In(tb, e.Namespace, func() (err error) {
		found, err = HasLinkLocal(e.Name)
		return err
	})
	return found
}

// HasLinkLocal reports whether a device of the calling thread's network namespace has a link-local address that is in
// use, after duplicate address detection (RFC 4862, section 5.4).
func HasLinkLocal(name string) (found bool, err error) {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return false, err
	}
	addrs, err := netlink.AddrList(link, netlink.FAMILY_V6)
	if errors.Is(err, netlink.ErrDumpInterrupted) {
		return false, nil // it changed in the meantime: the next poll reads it
	}
	for _, a := range addrs {
		found = found || (a.IP.IsLinkLocalUnicast() && a.Flags&unix.IFA_F_TENTATIVE == 0)
	}
	return found, err
}

func raise(tb testing.TB, e End) (mac net.HardwareAddr) {
	tb.Helper()
	In(tb, e.Namespace, func() error {
		link, err := netlink.LinkByName(e.Name)
		if err != nil {
			return err
		}
		mac = link.Attrs().HardwareAddr
		// Without duplicate address detection, the link-local address, from which neighbour discovery sends, is usable
		// without waiting a second.
		if err := WriteSysctl("net/ipv6/conf/"+e.Name+"/accept_dad", "0"); err != nil {
			return err
		}
		if err := netlink.LinkSetUp(link); err != nil {
			return err
		}
		for _, prefix := range e.Addresses {
			addr := &netlink.Addr{
				IPNet: &net.IPNet{IP: prefix.Addr().AsSlice(),
					Mask: net.CIDRMask(prefix.Bits(), prefix.Addr().BitLen())},
			}
			if prefix.Addr().Is6() {
				addr.Flags = unix.IFA_F_NODAD
			}
			if err := netlink.AddrAdd(link, addr); err != nil {
				return err
			}
		}
		return nil
	})
	return mac
}

// WriteSysctl sets a value under /proc/sys in the namespace of the calling thread. name is the path below /proc/sys,
// such as net/ipv4/conf/all/arp_ignore.
func WriteSysctl(name, value string) error {
	return os.WriteFile("/proc/sys/"+name, []byte(value), 0)
}

// Sysctl returns a value under /proc/sys in the namespace of the calling thread.
func Sysctl(name string) (string, error) {
	data, err := os.ReadFile("/proc/sys/" + name)
	return strings.TrimSpace(string(data)), err
}

// Eventually polls until ok returns true. It fails the test with the name of the condition if that takes longer than
// bound. The interval grows with the time: asking a balancer for its status 200 times a second would take a core from
// the tests that run beside it.
func Eventually(tb testing.TB, bound time.Duration, what string, ok func() bool) {
	tb.Helper()
	began := time.Now()
	for !ok() {
		waited := time.Since(began)
		if waited > bound {
			tb.Fatalf("after %v still not: %s", bound, what)
		}
		<-time.After(min(max(waited/20, 5*time.Millisecond), 50*time.Millisecond))
	}
}
