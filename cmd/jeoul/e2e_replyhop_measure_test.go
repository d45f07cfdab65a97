// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/test/testenv"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// replyPath is a path on which a client repeatedly sends requests to a server, and answers come back.
type replyPath struct {
	name string
	to   netip.AddrPort

	// paused: no requests are sent.
	paused atomic.Bool

	mu sync.Mutex
	// first is the time of the first answer after since.
	since, first time.Time
}

// ask sends a datagram every 20 ms until the test ends, and records when answers come.
func (w *replyPath) ask(t *testing.T, client *lab.Host) {
	t.Helper()
	var c net.Conn
	within(t, client, func() (err error) { c, err = net.Dial("udp", w.to.String()); return err })
	done := make(chan struct{})
	t.Cleanup(func() { close(done); c.Close() })
	go func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				if !w.paused.Load() {
					_, _ = c.Write([]byte("who\n"))
				}
			}
		}
	}()
	go func() {
		for buffer := make([]byte, 100); ; {
			if _, err := c.Read(buffer); errors.Is(err, net.ErrClosed) {
				return
			} else if err == nil {
				w.note(time.Now())
			}
		}
	}()
}

func (w *replyPath) note(at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.first.IsZero() && at.After(w.since) {
		w.first = at
	}
}

// watch makes the path record the first answer after a time.
func (w *replyPath) watch(since time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.since, w.first = since, time.Time{}
}

// answered waits for the first answer after that time.
func (w *replyPath) answered(t *testing.T, when string) (first time.Time) {
	t.Helper()
	testenv.Eventually(t, testenv.WaitLimit, when+", an answer comes by "+w.name, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		first = w.first
		return !first.IsZero()
	})
	return first
}

// echoBoth answers on a port of both of a host's addresses.
func echoBoth(t *testing.T, host *lab.Host, port uint16) {
	t.Helper()
	for _, address := range []netip.Addr{host.IPv4, host.IPv6} {
		var c net.PacketConn
		within(t, host, func() (err error) {
			c, err = net.ListenPacket("udp", netip.AddrPortFrom(address, port).String())
			return err
		})
		t.Cleanup(func() { c.Close() })
		go func() {
			for buffer := make([]byte, 100); ; {
				n, from, err := c.ReadFrom(buffer)
				if err != nil {
					return
				}
				_, _ = c.WriteTo(buffer[:n], from)
			}
		}()
	}
}

// pinNeighbours makes a host's neighbour entries permanent, so that it resolves none of them again.
func pinNeighbours(t *testing.T, host *lab.Host, others ...*lab.Host) {
	t.Helper()
	within(t, host, func() error {
		link, err := netlink.LinkByName(host.Interface)
		for _, other := range others {
			for _, address := range []netip.Addr{other.IPv4, other.IPv6} {
				err = errors.Join(err,
					netlink.NeighSet(&netlink.Neigh{LinkIndex: link.Attrs().Index, IP: address.AsSlice(),
						HardwareAddr: other.MAC, State: netlink.NUD_PERMANENT}))
			}
		}
		return err
	})
}

// newReplyPaths makes a client send requests to a server in each mode that forwards replies, and to another one through
// a kernel that forwards, for both families.
func newReplyPaths(t *testing.T) (client *lab.Host, all []*replyPath, know func()) {
	t.Helper()
	l := newLab(t, lab.Spec{Clients: 2, Servers: 2})
	client, forwarder, served, routed := l.Clients[0], l.Clients[1], l.Servers[0], l.Servers[1]
	b := newBalancer(t, l.Balancer)
	var services []entry
	for i, mode := range []string{"nat", "fullnat"} {
		for _, six := range []bool{false, true} {
			vip, address := "198.18.0.105", served.IPv4
			if six {
				vip, address = "2001:2::105", served.IPv6
			}
			at := netip.AddrPortFrom(netip.MustParseAddr(vip), uint16(7001+i))
			name := fmt.Sprintf("%s, IPv%d", mode, map[bool]int{false: 4, true: 6}[six])
			services = append(services, entry{"name": fmt.Sprintf("%s%t", mode, six), "vip": vip, "port": at.Port(),
				"protocol": "udp",
				"mode":     mode,
				"backends": []entry{{"name": served.Name, "address": address.String(), "port": 8001 + i}}})
			all = append(all, &replyPath{name: name, to: at})
		}
		echoBoth(t, served, uint16(8001+i))
	}
	echoBoth(t, routed, 8003)
	b.configure(t, lb.HookTC, entry{"services": services,
		"fullnat": entry{"addresses": []string{"198.18.0.99", "2001:2::99"}, "ports": "20000-29999"}})
	b.start(t)
	for _, name := range []string{"net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding"} {
		within(t, forwarder, func() error { return testenv.WriteSysctl(name, "1") })
	}
	for _, name := range []string{"all", forwarder.Interface} {
		within(t, forwarder, func() error { return testenv.WriteSysctl("net/ipv4/conf/"+name+"/send_redirects", "0") })
	}
	for _, own := range []netip.Addr{client.IPv4, client.IPv6} {
		to := netip.PrefixFrom(own, own.BitLen())
		if err := errors.Join(served.RouteThrough(l.Balancer, to, true),
			routed.RouteThrough(forwarder, to, true)); err != nil {
			t.Fatal(err)
		}
	}
	for i, address := range []netip.Addr{routed.IPv4, routed.IPv6} {
		if err := client.RouteThrough(forwarder, netip.PrefixFrom(address, address.BitLen()), true); err != nil {
			t.Fatal(err)
		}
		all = append(all, &replyPath{name: fmt.Sprintf("the kernel, IPv%d", 4+2*i),
			to: netip.AddrPortFrom(address, 8003)})
	}
	for _, host := range []*lab.Host{client, routed} {
		for _, name := range []string{"all", host.Interface} {
			within(t, host, func() error { return testenv.WriteSysctl("net/ipv6/conf/"+name+"/accept_redirects", "0") })
		}
	}
	return client, all, func() {
		t.Helper()
		pinNeighbours(t, client, l.Balancer, forwarder)
		within(t, client, func() error {
			link, err := netlink.LinkByName(client.Interface)
			for _, vip := range []string{"198.18.0.105", "2001:2::105"} {
				err = errors.Join(err, netlink.NeighSet(&netlink.Neigh{LinkIndex: link.Attrs().Index,
					IP: netip.MustParseAddr(vip).AsSlice(), HardwareAddr: l.Balancer.MAC,
					State: netlink.NUD_PERMANENT}))
			}
			return err
		})
	}
}

// TestMeasureReplyHops measures how long a client gets no answer after its MAC address has changed without an
// announcement, in the modes that forward replies and through a kernel that forwards, at the same time.
// JEOUL_TEST_REPLYHOPS is the number of measurements.
func TestMeasureReplyHops(t *testing.T) {
	times, err := strconv.Atoi(os.Getenv("JEOUL_TEST_REPLYHOPS"))
	if err != nil {
		t.Skip("JEOUL_TEST_REPLYHOPS does not say how often")
	}
	client, all, know := newReplyPaths(t)
	know()
	for _, w := range all {
		w.ask(t, client)
	}
	pause := func(on bool) {
		for _, w := range all {
			w.paused.Store(on)
		}
	}
	took := make([][]time.Duration, len(all))
	for round := range times {
		for _, w := range all {
			w.watch(time.Now())
		}
		for _, w := range all {
			w.answered(t, "before a round")
		}
		// The kernel deletes the neighbours of an interface whose address changes: it would resolve them, and so
		// announce its address.
		pause(true)
		within(t, client, func() error {
			link, err := netlink.LinkByName(client.Interface)
			if err != nil {
				return err
			}
			mac := slices.Clone(client.MAC)
			mac[1], mac[2] = 0xcc, byte(round+1)
			return netlink.LinkSetHardwareAddr(link, mac)
		})
		know()
		began := time.Now()
		pause(false)
		for _, w := range all {
			// Replies in flight to the previous address come sooner.
			w.watch(began.Add(100 * time.Millisecond))
		}
		for i, w := range all {
			took[i] = append(took[i], w.answered(t, "with another MAC address").Sub(began))
		}
	}
	for i, w := range all {
		slices.Sort(took[i])
		t.Logf("%s: no answer for: median %v, most %v; all: %v", w.name, took[i][len(took[i])/2],
			took[i][len(took[i])-1], took[i])
	}
}
