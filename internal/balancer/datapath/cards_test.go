// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/vishvananda/netlink"

	"github.com/jeoul/jeoul/internal/balancer/datapath/attach"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/host/hostnet"
	"github.com/jeoul/jeoul/internal/host/namespace"
	"github.com/jeoul/jeoul/internal/test/testenv"
)

// virtualCards are the cards of a virtual machine of scripts/test-kernels.sh by their driver, as
// JEOUL_TEST_CARDS names it; a cable joins the two of each. Elsewhere there are none: cards of
// other machines are in use.
func virtualCards(t *testing.T) map[string][]string {
	t.Helper()
	drivers := strings.Fields(os.Getenv("JEOUL_TEST_CARDS"))
	if len(drivers) == 0 {
		t.Skip("JEOUL_TEST_CARDS names no driver: this is for a virtual machine, make test-kernels")
	}
	testenv.Root(t)
	nics, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	cards := map[string][]string{}
	for _, driver := range drivers {
		for _, nic := range nics {
			if attach.DriverOf(nic.Name) == driver {
				cards[driver] = append(cards[driver], nic.Name)
			}
		}
		if len(cards[driver]) != 2 {
			t.Fatalf("the machine has the cards %q of %s, want two", cards[driver], driver)
		}
	}
	return cards
}

// newCardWires makes wires, with the first end only, of two cards.
func newCardWires(t *testing.T, cards []string) *wires {
	t.Helper()
	w := &wires{balancer: testenv.Namespace(t), outside: testenv.Namespace(t)}
	for i, ns := range []*namespace.Namespace{w.balancer, w.outside} {
		link, err := netlink.LinkByName(cards[i])
		if err != nil {
			t.Fatal(err)
		}
		// A card whose namespace ends goes back to the first one.
		if err := netlink.LinkSetNsFd(link, int(ns.Handle())); err != nil {
			t.Fatal(err)
		}
		testenv.In(t, ns, func() error {
			link, err := netlink.LinkByName(cards[i])
			if err != nil {
				return err
			}
			if i == 1 {
				// Or it takes no frame for the backend, whose MAC address is another.
				return errors.Join(netlink.LinkSetUp(link), netlink.SetPromiscOn(link))
			}
			w.mac[0], w.index[0] = link.Attrs().HardwareAddr, link.Attrs().Index
			// A card that filters by VLAN accepts only those that have a device.
			attrs := netlink.NewLinkAttrs()
			attrs.Name, attrs.ParentIndex = "vlan7", link.Attrs().Index
			return errors.Join(netlink.LinkSetUp(link),
				netlink.LinkAdd(&netlink.Vlan{LinkAttrs: attrs, VlanId: 7, VlanProtocol: netlink.VLAN_PROTOCOL_8021Q}))
		})
	}
	testenv.In(t, w.outside, func() (err error) {
		w.sockets[0], err = listen(t, cards[1])
		return err
	})
	w.wire[0] = testenv.OpenWire(t, w.outside, cards[1])
	return w
}

// TestTagsOfCards: a tagged frame keeps its tag on its way through XDP and TC on each driver of which the machine has
// cards, set up as a balancer's host is; one with two tags is not forwarded.
func TestTagsOfCards(t *testing.T) {
	for driver, cards := range virtualCards(t) {
		t.Run(driver, func(t *testing.T) {
			w := newCardWires(t, cards)
			service := testService(vip4, 80, lb.TCP, lb.RoundRobin, 1)
			service.Paths[0] = w.path(0)
			for _, hook := range []lb.Hook{lb.HookXDP, lb.HookTC} {
				t.Run(string(hook), func(t *testing.T) {
					balanceOn(t, w, hook, service)
					// The receiving kernel takes the outer tag out of the frame, and says so.
					for _, tags := range [][]layers.EthernetType{{layers.EthernetTypeDot1Q}, nil} {
						sendUntil(t, w, delivered{0, 14 + 40 + 100, len(tags) == 1}, taggedFrame(t, w, 100, tags...))
					}
					for _, outer := range []layers.EthernetType{layers.EthernetTypeDot1Q, layers.EthernetTypeQinQ} {
						w.wire[0].Send(taggedFrame(t, w, 200, outer, layers.EthernetTypeDot1Q)...)
						w.wire[0].Send(taggedFrame(t, w, 100)...)
						expectAlone(t, w, delivered{0, 14 + 40 + 100, false})
					}
				})
			}
		})
	}
}

// sendUntil sends a frame until one comes that is as wanted: a card that was reset, which some
// are by a change of their features, loses frames until it has negotiated with its peer.
func sendUntil(t *testing.T, w *wires, want delivered, frame []gopacket.SerializableLayer) {
	t.Helper()
	var seen []delivered
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); {
		w.wire[0].Send(frame...)
		for {
			got, ok := w.receive(t, 0)
			if ok && got == want {
				w.drain(t, 0)
				return
			}
			if !ok {
				break
			}
			seen = append(seen, got)
		}
	}
	t.Fatalf("no frame came within 30 seconds as %+v, but %+v", want, seen)
}

// expectAlone fails the test unless the frame comes, and no longer one before it.
func expectAlone(t *testing.T, w *wires, want delivered) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); {
		got, ok := w.receive(t, 0)
		if ok && got == want {
			return
		}
		if ok && got.length > want.length {
			t.Errorf("a frame was sent on that is not to be: %+v", got)
		}
	}
	t.Fatalf("the frame %+v did not come within 5 seconds", want)
}

// balanceOn serves a service on the balancer's card until the test ends.
func balanceOn(t *testing.T, w *wires, hook lb.Hook, service lb.RoutedService) {
	t.Helper()
	testenv.In(t, w.balancer, func() error {
		name := nameOf(t, w.index[0])
		before := strippingFeatures(t, name)
		changes, err := hostnet.Open(t.TempDir(), "test")
		if err != nil {
			return err
		}
		t.Cleanup(func() { changes.Close() })
		d, err := Open(Options{Interfaces: []string{name}, Hook: hook, TableSize: testTableSize,
			DisableFeature: changes.DisableFeature})
		if err != nil {
			return err
		}
		t.Cleanup(func() { d.Close() })
		if err := d.Apply(lb.State{Services: []lb.RoutedService{service}}); err != nil {
			return err
		}
		a := d.Attachments()[0]
		t.Logf("%s: attached as %s; of the offloads of tags, %q were on, and %q are", name, a, before, strippingFeatures(t, name))
		if a.Hook != hook {
			t.Errorf("attached as %s", a)
		}
		// A driver with native XDP is to have it.
		if attach.DriverOf(name) == "virtio_net" && a.Generic {
			t.Errorf("attached as %s", a)
		}
		return nil
	})
}

// taggedFrame is a packet of the service with tags of VLAN 7, the outer one first.
func taggedFrame(t *testing.T, w *wires, payload int, tags ...layers.EthernetType) []gopacket.SerializableLayer {
	t.Helper()
	p := web4()
	_, ip := p.lower(layers.IPProtocolTCP)
	link := &layers.Ethernet{SrcMAC: routerMAC, DstMAC: w.mac[0], EthernetType: layers.EthernetTypeIPv4}
	frame := []gopacket.SerializableLayer{link}
	next := &link.EthernetType
	for _, tag := range tags {
		layer := &layers.Dot1Q{VLANIdentifier: 7, Type: layers.EthernetTypeIPv4}
		*next, next = tag, &layer.Type
		frame = append(frame, layer)
	}
	return append(frame, ip, p.transport(t, ip), gopacket.Payload(make([]byte, payload)))
}

// nameOf names an interface of the calling thread's namespace.
func nameOf(t *testing.T, index int) string {
	t.Helper()
	nic, err := net.InterfaceByIndex(index)
	if err != nil {
		t.Fatal(err)
	}
	return nic.Name
}
