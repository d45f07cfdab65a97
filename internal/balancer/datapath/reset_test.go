// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/safchain/ethtool"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/test/testenv"
)

// resetService is a service that resets every connection: it has as many as it may.
func resetService(tb testing.TB, d *Datapath, services ...lb.RoutedService) {
	tb.Helper()
	for i := range services {
		services[i].Limits = lb.Limits{Connections: 1, Refuse: lb.RefuseByReset}
	}
	if err := d.Apply(lb.State{Services: services}); err != nil {
		tb.Fatal(err)
	}
	for i := range services {
		d.janitor.Rules.Turns[d.register.Places.Services[services[i].Key()]].Active = 1
	}
}

// resetOf makes the answer to a SYN from the fields that gopacket reads.
func resetOf(tb testing.TB, frame []byte) []byte {
	tb.Helper()
	p := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.Default)
	eth := p.Layer(layers.LayerTypeEthernet).(*layers.Ethernet)
	syn, ok := p.Layer(layers.LayerTypeTCP).(*layers.TCP)
	if !ok {
		tb.Fatalf("no TCP: %v", p)
	}
	tcp := &layers.TCP{SrcPort: syn.DstPort, DstPort: syn.SrcPort, RST: true, ACK: true, Ack: syn.Seq + 1 +
		uint32(len(syn.Payload))}
	if syn.FIN {
		tcp.Ack++
	}
	parts, length := []gopacket.SerializableLayer{&layers.Ethernet{SrcMAC: eth.DstMAC, DstMAC: eth.SrcMAC,
		EthernetType: eth.EthernetType}}, 14+20+20
	if tag := p.Layer(layers.LayerTypeDot1Q); tag != nil {
		parts, length = append(parts, tag.(*layers.Dot1Q)), length+4
	}
	var ip ipLayer
	if v4 := p.Layer(layers.LayerTypeIPv4); v4 != nil {
		ip = &layers.IPv4{Version: 4, TTL: 64, Flags: layers.IPv4DontFragment, Protocol: layers.IPProtocolTCP,
			SrcIP: v4.(*layers.IPv4).DstIP, DstIP: v4.(*layers.IPv4).SrcIP}
	} else {
		v6 := p.Layer(layers.LayerTypeIPv6).(*layers.IPv6)
		ip, length = &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: layers.IPProtocolTCP, SrcIP: v6.DstIP,
			DstIP: v6.SrcIP}, length+20
	}
	if err := tcp.SetNetworkLayerForChecksum(ip); err != nil {
		tb.Fatal(err)
	}
	buffer := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(buffer, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true},
		append(parts, ip, tcp)...); err != nil {
		tb.Fatal(err)
	}
	// gopacket pads short frames, which is the device's business.
	return buffer.Bytes()[:length]
}

// TestReset: each shape of SYN is answered by RFC 9293, byte for byte, by a frame that is not longer; packets that are
// no SYN, or come from no host, are not.
func TestReset(t *testing.T) {
	oneHook(t, func(t *testing.T, hook lb.Hook) {
		enterTestNet(t)
		d := NewDetached(Options{Hook: hook, TableSize: testTableSize}, balancerMAC)
		defer d.Close()
		resetService(t, d, testService(vip4, 80, lb.TCP, lb.RoundRobin, 2), testService(vip6, 80, lb.TCP, lb.Maglev, 2))
		run := func(frame []byte) (uint32, []byte) {
			t.Helper()
			options := ebpf.RunOptions{Data: frame, DataOut: make([]byte, 4096)}
			action, err := d.Program().Run(&options)
			if err != nil {
				t.Fatal(err)
			}
			return action, options.DataOut
		}
		option := []layers.IPv4Option{{OptionType: 148, OptionLength: 4, OptionData: []byte{0, 0}}}
		for i, base := range []packetSpec{web4(), web6()} {
			base.flags = "S"
			for name, p := range map[string]packetSpec{
				"plain": base,
				"TCP options": with(base, func(p *packetSpec) {
					p.tcpOptions = []byte{2, 4, 5, 180, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 0}
				}),
				"data":        with(base, func(p *packetSpec) { p.payload = 777 }),
				"SYN and FIN": with(base, func(p *packetSpec) { p.flags = "SF" }),
				"IP options":  with(base, func(p *packetSpec) { p.options, p.payload = option, 3 }),
			} {
				plain := p.build(t)
				frames := [][]byte{plain, append(bytes.Clone(plain), make([]byte, 30)...)}
				wants := [][]byte{resetOf(t, plain), resetOf(t, plain)}
				if hook == lb.HookXDP {
					frames, wants = append(frames, tagged(plain, 0x8100)),
						append(wants, resetOf(t, tagged(plain, 0x8100)))
				}
				if i == 1 {
					frames, wants = append(frames, ipv6WithExtensions(plain, [2]byte{0, 1}, [2]byte{60, 2})),
						append(wants, wants[0])
				}
				for n, frame := range frames {
					action, out := run(frame)
					if action != actions[hook].transmit || !bytes.Equal(out, wants[n]) || len(out) > len(frame) {
						t.Errorf("%s, %d: action %d,\n%x\nwant\n%x", name, n, action, out, wants[n])
					}
				}
			}
		}
		for _, frame := range [][]byte{
			with(web4(), func(p *packetSpec) { p.flags, p.from = "S", netip.MustParseAddr("224.0.0.9") }).build(t),
			with(web4(), func(p *packetSpec) { p.flags, p.from = "S", netip.MustParseAddr("0.0.0.0") }).build(t),
			with(web6(), func(p *packetSpec) { p.flags, p.from = "S", netip.MustParseAddr("ff02::1") }).build(t),
		} {
			if action, _ := run(frame); action != actions[hook].drop {
				t.Errorf("action %d: a reset for an address that is no host's", action)
			}
		}
		counters, err := d.Counters()
		if err != nil {
			t.Fatal(err)
		}
		for _, outcome := range counters.Outcomes {
			if want := map[string]uint64{"dropped_connection_limit": 3}[outcome.Name]; outcome.Name != "reset_connection_limit" && outcome.Packets != want {
				t.Errorf("%s: %d, want %d", outcome.Name, outcome.Packets, want)
			}
		}
	})
}

// TestResetReachesItsClient: a client's kernel accepts the reset. Its SYN comes with a checksum that the device is yet
// to fill in, and with one that is right.
func TestResetReachesItsClient(t *testing.T) {
	oneHook(t, func(t *testing.T, hook lb.Hook) {
		balancer, client := testenv.Namespace(t), testenv.Namespace(t)
		six := netip.MustParseAddr("2001:2::77")
		mac, _ := testenv.Veth(t, testenv.End{Namespace: balancer, Name: "in"},
			testenv.End{Namespace: client, Name: "out",
				Addresses: []netip.Prefix{netip.MustParsePrefix("198.18.0.77/24"), netip.PrefixFrom(six, 64)}})
		testenv.In(t, client, func() error { return addClientHost(t, "out", mac) })
		testenv.In(t, balancer, func() error {
			d, err := Open(Options{Interfaces: []string{"in"}, Hook: hook, TableSize: testTableSize})
			if err != nil {
				return err
			}
			t.Cleanup(func() { d.Close() })
			resetService(t, d, testService(vip4, 80, lb.TCP, lb.RoundRobin, 2), testService(vip6, 80, lb.TCP,
				lb.Maglev, 2))
			return nil
		})
		for _, offload := range []string{"on", "off"} {
			testenv.In(t, client, func() error { return checksumOffload("out", offload == "on") })
			for _, vip := range []netip.Addr{vip4, vip6} {
				testenv.In(t, client, func() error {
					dialer := net.Dialer{Timeout: 5 * time.Second}
					connection, err := dialer.Dial("tcp", netip.AddrPortFrom(vip, 80).String())
					if err == nil {
						connection.Close()
					}
					if !errors.Is(err, unix.ECONNREFUSED) {
						return fmt.Errorf("checksums by the device %s: %v: %v, want a refusal", offload, vip, err)
					}
					return nil
				})
			}
		}
	})
}

// addClientHost gives a client of this namespace neighbour entries for the VIPs, and lets it take XDP frames.
func addClientHost(t *testing.T, name string, mac net.HardwareAddr) error {
	// A veth takes XDP frames only if it runs a program itself.
	l, err := attachForeign(name)
	if err != nil {
		return err
	}
	t.Cleanup(func() { l.Close() })
	nic, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	for _, vip := range vips {
		err = errors.Join(err, netlink.NeighAdd(&netlink.Neigh{LinkIndex: nic.Attrs().Index, IP: vip.AsSlice(),
			HardwareAddr: mac, State: netlink.NUD_PERMANENT}))
	}
	return err
}

// checksumOffload reports whether a device of this namespace completes the checksums of outgoing packets.
func checksumOffload(name string, on bool) error {
	handle, err := ethtool.NewEthtool()
	if err != nil {
		return err
	}
	defer handle.Close()
	return handle.Change(name, map[string]bool{"tx-checksum-ip-generic": on})
}
