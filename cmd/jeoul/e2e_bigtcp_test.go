// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"net/netip"
	"sync/atomic"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/vishvananda/netlink"

	"github.com/jeoul/jeoul/cmd/jeoul/e2e"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// bigTCPSize is the longest packet that interfaces accept in TestBigTCP, in bytes; by default it is 64 KiB.
const bigTCPSize = 192 << 10

// TestBigTCP transfers files through the balancer in packets of more than 64 KiB, whose IP headers have no length:
// Linux sends and merges them where an interface's gso_max_size and gro_max_size permit it.
func TestBigTCP(t *testing.T) {
	t.Parallel()
	s := newStage(t, lb.HookTC, 2, bigFile)
	// Without offloads, hosts would send each segment by itself.
	if err := errors.Join(s.AcceptXDP(false), s.Offload(true)); err != nil {
		t.Fatal(err)
	}
	client := s.Clients[0]
	acceptBigTCP(t, client, client.Interface)
	acceptBigTCP(t, s.Switch, s.Balancer.Port)
	for _, server := range s.Servers {
		acceptBigTCP(t, server, server.Interface)
	}
	var big [2]atomic.Int64 // by family: IPv4, IPv6
	capture := e2e.StartCapture(t, s.Balancer, s.Balancer.Interface, func(p gopacket.Packet) {
		switch frame := p.Data(); {
		case bytes.Equal(frame[12:14], []byte{0x08, 0x00}) && bytes.Equal(frame[16:18], []byte{0, 0}):
			big[0].Add(1)
		case bytes.Equal(frame[12:14], []byte{0x86, 0xdd}) && bytes.Equal(frame[18:20], []byte{0, 0}):
			big[1].Add(1)
		}
	})
	for _, p := range oneOfEach() {
		t.Run(p.String(), func(t *testing.T) {
			browser := e2e.NewBrowser(client, p.own(client))
			to := netip.AddrPortFrom(p.vip, webPort)
			if _, err := browser.Upload(t.Context(), to, s.files, bigFile, "big", s.webs); err != nil {
				t.Errorf("upload: %v", err)
			}
			if _, err := browser.Download(t.Context(), to, s.files, bigFile); err != nil {
				t.Errorf("download: %v", err)
			}
		})
	}
	capture.Stop(t)
	// TCP would retransmit what is lost, in shorter packets.
	if dropped := s.outcomes(t)["dropped_malformed"]; dropped != 0 {
		t.Errorf("the balancer dropped %d packets as malformed", dropped)
	}
	for i, family := range []string{"IPv4", "IPv6"} {
		if big[i].Load() == 0 {
			t.Errorf("no packet of %s was longer than 64 KiB: this has shown nothing", family)
		}
	}
}

// acceptBigTCP makes an interface of a host accept packets of bigTCPSize bytes. It skips the test where the kernel
// cannot, in IPv4 before Linux 6.3.
func acceptBigTCP(t *testing.T, host *lab.Host, name string) {
	t.Helper()
	var accepted uint32
	within(t, host, func() error {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		if err := errors.Join(netlink.LinkSetGSOMaxSize(link, bigTCPSize),
			netlink.LinkSetGSOIPv4MaxSize(link, bigTCPSize), netlink.LinkSetGROMaxSize(link, bigTCPSize),
			netlink.LinkSetGROIPv4MaxSize(link, bigTCPSize)); err != nil {
			return err
		}
		if link, err = netlink.LinkByName(name); err == nil {
			accepted = link.Attrs().GSOIPv4MaxSize
		}
		return err
	})
	switch accepted {
	case bigTCPSize:
	case 0: // the attribute is missing
		t.Skipf("%s accepts no IPv4 packets longer than 64 KiB: this kernel has no gso_ipv4_max_size (Linux 6.3)", name)
	default:
		t.Errorf("%s accepts IPv4 packets of %d bytes, want %d", name, accepted, bigTCPSize)
	}
}
