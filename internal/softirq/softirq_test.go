// SPDX-License-Identifier: Apache-2.0

package softirq

import (
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/safchain/ethtool"
	"github.com/vishvananda/netlink"

	"github.com/jeoul/jeoul/internal/namespace"
	"github.com/jeoul/jeoul/internal/testenv"
)

// TestDatagramsAreCharged sends datagrams from one namespace to another: the
// work of receiving them is the receiving device's, and nobody else's.
func TestDatagramsAreCharged(t *testing.T) {
	testenv.Root(t)
	from, to := testenv.Namespace(t), testenv.Namespace(t)
	testenv.Veth(t,
		testenv.End{Namespace: from, Name: "from", Addresses: []netip.Prefix{netip.MustParsePrefix("198.18.0.1/24")}},
		testenv.End{Namespace: to, Name: "to", Addresses: []netip.Prefix{netip.MustParsePrefix("198.18.0.2/24")}})
	receiver := device(t, to, "to")
	sender := device(t, from, "from")
	// Without it a veth hands frames to the core's own queue, which is no device.
	for ns, name := range map[*namespace.Namespace]string{from: "from", to: "to"} {
		testenv.In(t, ns, func() error { return receiveInNAPI(name) })
	}
	meter, err := NewMeter()
	if err != nil {
		t.Fatal(err)
	}
	defer meter.Close()
	connection := dial(t, from, "198.18.0.2:9")
	const datagrams = 2000
	testenv.Eventually(t, 10*time.Second, "the receiver's device was charged", func() bool {
		// By a thread in the namespace: that is the process which is billed.
		testenv.In(t, from, func() error {
			for range datagrams {
				// Nobody listens: an answer that says so is an error of the next write.
				_, _ = connection.Write([]byte("x"))
			}
			return nil
		})
		reading := read(t, meter)
		return reading.Devices[receiver] > 0 && reading.Billed[from.Inode()] > 0
	})
	reading := read(t, meter)
	if work := reading.Devices[receiver]; work < datagrams*20*time.Nanosecond {
		t.Errorf("%d datagrams cost %v: not even the packets' memory can be that quick", datagrams, work)
	}
	if reading.Billed[to.Inode()] > 0 {
		t.Errorf("the receiving namespace, which has no process, was billed %v", reading.Billed[to.Inode()])
	}
	t.Logf("receiver %v, sender (refusals) %v, billed to the sender's processes %v",
		reading.Devices[receiver], reading.Devices[sender], reading.Billed[from.Inode()])
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

// TestClose reads a meter that is closed.
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

// receiveInNAPI gives a veth a NAPI of its own: it needs GRO, and a peer
// without TSO.
func receiveInNAPI(name string) error {
	e, err := ethtool.NewEthtool()
	if err != nil {
		return err
	}
	defer e.Close()
	return e.Change(name, map[string]bool{"rx-gro": true, "tx-checksum-ip-generic": false})
}
