// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"net"
	"os"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/vishvananda/netlink"

	"github.com/jeoul/jeoul/internal/hostnet"
	"github.com/jeoul/jeoul/internal/lb"
	"github.com/jeoul/jeoul/internal/namespace"
	"github.com/jeoul/jeoul/internal/testenv"
)

// virtualCards are the cards of a virtual machine of scripts/test-kernels.sh that have this
// driver; a cable joins them. Elsewhere there are none: cards of other machines are in use.
func virtualCards(t *testing.T, driver string) (cards []string) {
	t.Helper()
	if os.Getenv("JEOUL_TEST_CARDS") == "" {
		t.Skip("JEOUL_TEST_CARDS is not set: this is for a virtual machine, make test-kernels")
	}
	testenv.Root(t)
	nics, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, nic := range nics {
		if driverOf(nic.Name) == driver {
			cards = append(cards, nic.Name)
		}
	}
	if len(cards) != 2 {
		t.Fatalf("the machine has the cards %q of %s, want two", cards, driver)
	}
	return cards
}

// cabled makes wires, with the first end only, of two cards.
func cabled(t *testing.T, cards []string) *wires {
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
			// A card that filters by VLAN lets those in that have a device.
			attrs := netlink.NewLinkAttrs()
			attrs.Name, attrs.ParentIndex = "vlan7", link.Attrs().Index
			return errors.Join(netlink.LinkSetUp(link), netlink.LinkAdd(&netlink.Vlan{LinkAttrs: attrs, VlanId: 7, VlanProtocol: netlink.VLAN_PROTOCOL_8021Q}))
		})
	}
	testenv.In(t, w.outside, func() (err error) {
		w.sockets[0], err = listen(t, cards[1])
		return err
	})
	w.wire[0] = testenv.OpenWire(t, w.outside, cards[1])
	return w
}

// TestTagsOfCards: a tagged frame keeps its tag on its way through native XDP on virtio_net,
// which is set up as a balancer's host is; and so it does through TC.
func TestTagsOfCards(t *testing.T) {
	w := cabled(t, virtualCards(t, "virtio_net"))
	service := testService(vip4, 80, lb.TCP, lb.RoundRobin, 1)
	service.Paths[0] = w.path(0)
	for _, hook := range []lb.Hook{lb.HookXDP, lb.HookTC} {
		t.Run(string(hook), func(t *testing.T) {
			testenv.In(t, w.balancer, func() error {
				name := nameOf(t, w.index[0])
				t.Logf("%s: of the offloads of tags, %q are on", name, hiding(t, name))
				changes, err := hostnet.Open(t.TempDir(), "test")
				if err != nil {
					return err
				}
				t.Cleanup(func() { changes.Close() })
				d, err := Open(Options{Interfaces: []string{name}, Hook: hook, TableSize: testTableSize, SwitchOff: changes.SwitchOff})
				if err != nil {
					return err
				}
				t.Cleanup(func() { d.Close() })
				if err := d.Apply(lb.State{Services: []lb.RoutedService{service}}); err != nil {
					return err
				}
				if a := d.Attachments()[0]; a.Hook != hook || a.Generic {
					t.Errorf("attached as %s", a)
				}
				return nil
			})
			for _, tagged := range []bool{true, false} {
				p := web4()
				_, ip := p.lower(layers.IPProtocolTCP)
				link := &layers.Ethernet{SrcMAC: routerMAC, DstMAC: w.mac[0], EthernetType: layers.EthernetTypeIPv4}
				frame := []gopacket.SerializableLayer{link, ip, p.transport(t, ip), gopacket.Payload(make([]byte, 100))}
				if tagged {
					link.EthernetType = layers.EthernetTypeDot1Q
					frame = append([]gopacket.SerializableLayer{link, &layers.Dot1Q{VLANIdentifier: 7, Type: layers.EthernetTypeIPv4}}, frame[1:]...)
				}
				w.wire[0].Send(frame...)
				// The receiving kernel takes the tag out of the frame, and says so.
				w.expect(t, 0, "frame", arrival{0, 14 + 40 + 100, tagged})
			}
		})
	}
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
