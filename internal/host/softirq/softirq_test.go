// SPDX-License-Identifier: Apache-2.0

package softirq

import (
	"errors"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/safchain/ethtool"
	"github.com/vishvananda/netlink"

	"github.com/jeoul/jeoul/internal/host/namespace"
	"github.com/jeoul/jeoul/internal/test/testenv"
)

// TestDatagramsAreCharged sends datagrams from one namespace to another. The time for receiving them is charged to the
// receiving device only, no matter whether they are in a queue of that device or in the core's backlog queue.
func TestDatagramsAreCharged(t *testing.T) {
	testenv.Root(t)
	for name, inNAPI := range map[string]bool{"in the device's queue": true, "in the core's queue": false} {
		t.Run(name, func(t *testing.T) {
			from, to, receiver := pair(t, inNAPI)
			meter := testMeter(t)
			if err := meter.Packets(!inNAPI); err != nil {
				t.Fatal(err)
			}
			const datagrams = 2000
			sendUntil(t, from, datagrams, "the receiver's device was charged", func() bool {
				reading := read(t, meter)
				return reading.Devices[receiver] > 0 && reading.PerNamespace[from.Inode()] > 0
			})
			reading := read(t, meter)
			if work := reading.Devices[receiver]; work < datagrams*20*time.Nanosecond {
				t.Errorf("%d datagrams cost %v: not even the packets' memory can be that quick", datagrams, work)
			}
			if reading.PerNamespace[to.Inode()] > 0 {
				t.Errorf("the receiving namespace, which has no process, was billed %v", reading.PerNamespace[to.Inode()])
			}
			checkBilled(t, meter)
		})
	}
}

// TestCoresOwnQueue: packets in a core's backlog queue are charged to no device, unless packets are attributed.
func TestCoresOwnQueue(t *testing.T) {
	testenv.Root(t)
	from, _, receiver := pair(t, false)
	meter := testMeter(t)
	for _, on := range []bool{true, true, false, false, true} {
		if err := meter.Packets(on); err != nil {
			t.Fatal(err)
		}
		before := read(t, meter).Devices[receiver]
		charged := func() bool { return read(t, meter).Devices[receiver] > before }
		if on {
			sendUntil(t, from, 100, "the receiver's device was charged", charged)
			continue
		}
		send(t, from, 1000)
		if charged() {
			t.Error("the receiver's device was charged, although packets are not told apart")
		}
	}
}

// TestMadeWhilePacketsCome makes meters while packets are processed. None of them has charged a device with time that
// is accounted to no namespace.
func TestMadeWhilePacketsCome(t *testing.T) {
	testenv.Root(t)
	from, _, _ := pair(t, true)
	connection := dial(t, from, "198.18.0.2:9")
	for range 5 {
		var sending sync.WaitGroup
		var made atomic.Bool
		sending.Go(func() {
			for !made.Load() {
				write(t, from, connection, 100)
			}
		})
		meter := testMeter(t)
		made.Store(true)
		sending.Wait()
		checkBilled(t, meter)
	}
}

// TestPlacesAreShared charges two devices whose sums share a place.
func TestPlacesAreShared(t *testing.T) {
	testenv.Root(t)
	from, to, first := pair(t, false)
	second := Device{Namespace: to.Inode(), Index: first.Index + places}
	testenv.In(t, to, func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.Index = "second", second.Index
		if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "peer",
			PeerNamespace: netlink.NsFd(from.Handle())}); err != nil {
			return err
		}
		return raise("second", "198.18.1.2/24")
	})
	testenv.In(t, from, func() error { return raise("peer", "198.18.1.1/24") })
	meter := testMeter(t)
	if err := meter.Packets(true); err != nil {
		t.Fatal(err)
	}
	for at, device := range map[string]Device{"198.18.0.2:9": first, "198.18.1.2:9": second} {
		connection := dial(t, from, at)
		testenv.Eventually(t, testenv.WaitLimit, at+"'s device was charged", func() bool {
			write(t, from, connection, 100)
			return read(t, meter).Devices[device] > 0
		})
	}
	checkBilled(t, meter)
}

// checkBilled waits for a moment in which no packet is processed. Then the devices' time equals the time that was
// accounted to processes.
func checkBilled(t *testing.T, meter *Meter) {
	t.Helper()
	testenv.Eventually(t, testenv.WaitLimit, "all work was billed to a device", func() bool {
		reading := read(t, meter)
		return total(reading.Devices) == total(reading.PerNamespace)
	})
}

// places is PLACES of bpf/observe/softirq.bpf.c.
const places = 1024

func raise(name, address string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	parsed, err := netlink.ParseAddr(address)
	if err == nil {
		err = netlink.AddrAdd(link, parsed)
	}
	if err == nil {
		err = netlink.LinkSetUp(link)
	}
	return err
}

// total returns the sum of the times.
func total[K comparable](work map[K]time.Duration) (sum time.Duration) {
	for _, one := range work {
		sum += one
	}
	return sum
}

// pair returns a veth between two namespaces, whose second end receives by its own NAPI instance or in the core's
// backlog queue.
func pair(t *testing.T, inNAPI bool) (from, to *namespace.Namespace, receiver Device) {
	t.Helper()
	from, to = testenv.Namespace(t), testenv.Namespace(t)
	testenv.Veth(t,
		testenv.End{Namespace: from, Name: "from", Addresses: []netip.Prefix{netip.MustParsePrefix("198.18.0.1/24")}},
		testenv.End{Namespace: to, Name: "to", Addresses: []netip.Prefix{netip.MustParsePrefix("198.18.0.2/24")}})
	if inNAPI {
		for ns, name := range map[*namespace.Namespace]string{from: "from", to: "to"} {
			testenv.In(t, ns, func() error { return receiveInNAPI(name) })
		}
	}
	return from, to, device(t, to, "to")
}

// testMeter charges processes whether or not the kernel's clocks leave softirqs out.
func testMeter(t *testing.T) *Meter {
	t.Helper()
	meter, err := newMeter(false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := meter.Close(); err != nil {
			t.Error(err)
		}
	})
	return meter
}

// send sends datagrams to the other end.
func send(t *testing.T, from *namespace.Namespace, datagrams int) {
	t.Helper()
	write(t, from, dial(t, from, "198.18.0.2:9"), datagrams)
}

// sendUntil sends datagrams to the other end until ok.
func sendUntil(t *testing.T, from *namespace.Namespace, datagrams int, what string, ok func() bool) {
	t.Helper()
	connection := dial(t, from, "198.18.0.2:9")
	testenv.Eventually(t, testenv.WaitLimit, what, func() bool {
		write(t, from, connection, datagrams)
		return ok()
	})
}

// write sends datagrams by a thread in the namespace, to whose process the time is accounted.
func write(t *testing.T, from *namespace.Namespace, connection net.Conn, datagrams int) {
	t.Helper()
	testenv.In(t, from, func() error {
		for range datagrams {
			// No socket listens, so an ICMP error fails the next write.
			_, _ = connection.Write([]byte("x"))
		}
		return nil
	})
}

func read(t *testing.T, meter *Meter) Reading {
	t.Helper()
	reading, err := meter.Read()
	if err != nil {
		t.Fatal(err)
	}
	return reading
}

func device(t *testing.T, ns *namespace.Namespace, name string) Device {
	t.Helper()
	d := Device{Namespace: ns.Inode()}
	testenv.In(t, ns, func() error {
		nic, err := netlink.LinkByName(name)
		if err == nil {
			d.Index = nic.Attrs().Index
		}
		return err
	})
	return d
}

func dial(t *testing.T, ns *namespace.Namespace, to string) (connection net.Conn) {
	t.Helper()
	testenv.In(t, ns, func() (err error) {
		connection, err = net.Dial("udp", to)
		return err
	})
	t.Cleanup(func() { connection.Close() })
	return connection
}

// TestClose reads a closed meter.
func TestClose(t *testing.T) {
	testenv.Root(t)
	meter, err := NewMeter()
	if err != nil {
		t.Fatal(err)
	}
	if err := meter.Close(); err != nil {
		t.Error(err)
	}
	if _, err := meter.Read(); err == nil || errors.Is(err, ErrUnsupported) {
		t.Errorf("reading a closed meter: %v", err)
	}
}

// receiveInNAPI gives a veth its own NAPI instance, which needs GRO and a peer without TSO.
func receiveInNAPI(name string) error {
	e, err := ethtool.NewEthtool()
	if err != nil {
		return err
	}
	defer e.Close()
	return e.Change(name, map[string]bool{"rx-gro": true, "tx-checksum-ip-generic": false})
}
