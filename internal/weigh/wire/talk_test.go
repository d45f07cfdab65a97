// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/jeoul/jeoul/internal/test/testenv"
	"github.com/jeoul/jeoul/internal/test/testpacket"
)

// The verdicts of XDP programs, linux/bpf.h.
const (
	xdpDrop     = 1
	xdpPass     = 2
	xdpTX       = 3
	xdpRedirect = 4
)

var (
	clientMAC   = net.HardwareAddr{2, 0, 0, 1, 0, 1}
	balancerMAC = net.HardwareAddr{2, 0, 0, 0, 0, 1}
	serverMACs  = []net.HardwareAddr{{2, 0, 0, 2, 0, 1}, {2, 0, 0, 2, 0, 2}}
)

// talk holds a tester's programs, attached to no interface: each is run with one packet at a time.
type talk struct {
	*testing.T
	*Tester
	client  *ebpf.Program
	servers []*ebpf.Program
}

// newTalk loads the programs for one client port and two server ports.
func newTalk(t *testing.T, load Load, change func(*Spec)) *talk {
	t.Helper()
	testenv.Root(t)
	spec := Spec{
		Clients: []Port{{Interface: "client", Sources: netip.MustParsePrefix("198.19.1.0/30")}},
		Servers: []Port{{Interface: "one", Address: netip.MustParseAddr("198.18.2.1")},
			{Interface: "two", Address: netip.MustParseAddr("198.18.2.2")}},
		Target: vip, Next: []net.HardwareAddr{balancerMAC}, Reply: ReplyDirect, CPU: -1, Seed: 11,
	}
	if change != nil {
		change(&spec)
	}
	spec, err := spec.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	k := &talk{T: t, Tester: &Tester{spec: spec, maps: map[string]*ebpf.Map{}}}
	t.Cleanup(func() { k.Tester.Close() })
	k.clients = []*device{{port: spec.Clients[0], index: 1, mac: clientMAC, mtu: 1500}}
	for i, p := range spec.Servers {
		k.Tester.servers = append(k.Tester.servers, &device{port: p, mac: serverMACs[i], mtu: 1500})
	}
	if load, err = load.withDefaults(); err != nil {
		t.Fatal(err)
	}
	if err := k.loadAll(); err != nil {
		t.Fatal(err)
	}
	if err := k.control.take(load); err != nil {
		t.Fatal(err)
	}
	k.control.Stopped = 0
	return k
}

func (k *talk) loadAll() error {
	spec, err := loadBpf()
	if err != nil {
		return err
	}
	spec.Maps[mapConnections].MaxEntries = uint32(k.spec.Connections)
	sending, err := k.loadOne(spec, programSender, bpfWirePort{})
	if err != nil {
		return err
	}
	if err := k.mapAll(); err != nil {
		return err
	}
	k.sender = &sender{program: sending, control: k.control}
	if k.client, err = k.loadOne(spec, programClient, bpfWirePort{Mac: word(clientMAC)}); err != nil {
		return err
	}
	for i, d := range k.Tester.servers {
		program, err := k.loadOne(spec, programServer, bpfWirePort{
			Mac: word(d.mac), Address: nativeIPv4(d.port.Address), Index: uint32(i), Row: uint32(MaxPorts + i)})
		if err != nil {
			return err
		}
		k.servers = append(k.servers, program)
	}
	return k.maps[mapDevices].Put(uint32(0), uint32(1))
}

// give passes a frame to a program, and returns its verdict and the frame after it.
func (k *talk) give(program *ebpf.Program, frame []byte) (uint32, []byte) {
	k.Helper()
	out := make([]byte, 2048)
	options := ebpf.RunOptions{Data: frame, DataOut: out, Repeat: 1}
	verdict, err := program.Run(&options)
	if err != nil {
		k.Fatal(err)
	}
	return verdict, options.DataOut
}

// send makes the sender produce its next frame. Its buffer is full of garbage, like a recycled frame. nil: nothing is
// due.
func (k *talk) send() []byte {
	k.Helper()
	frame := make([]byte, shortest)
	for i := range frame {
		frame[i] = 0xa5
	}
	// The first in turn changes from run to run.
	for range 2 {
		if verdict, out := k.give(k.sender.program, frame); verdict == xdpRedirect {
			return out
		} else if verdict != xdpDrop {
			k.Fatalf("the sender's verdict is %d", verdict)
		}
	}
	return nil
}

// open makes the sender begin one more connection, and returns its first frame.
func (k *talk) open() []byte {
	k.Helper()
	opened := k.senderProgress().Opened
	k.begin(opened+1, opened, 0, 0)
	frame := k.send()
	if frame == nil {
		k.Fatal("no connection was begun")
	}
	return frame
}

// answer returns a program's answer to a frame.
func (k *talk) answer(program *ebpf.Program, frame []byte) []byte {
	k.Helper()
	verdict, out := k.give(program, frame)
	if verdict != xdpTX {
		k.Fatalf("verdict %d, want an answer to %v", verdict, gopacket.NewPacket(frame, layers.LayerTypeEthernet,
			gopacket.Default))
	}
	return out
}

// silence checks that a program does not answer a frame.
func (k *talk) silence(program *ebpf.Program, frame []byte) {
	k.Helper()
	if verdict, out := k.give(program, frame); verdict != xdpDrop {
		k.Fatalf("verdict %d, want no answer; got %s", verdict, k.read(out))
	}
}

// tcpSegment is a TCP segment in words: "SYN 1+0 mss=1460", relative to nothing.
type tcpSegment struct {
	*layers.TCP
	ip       *layers.IPv4
	ethernet *layers.Ethernet
}

func (s tcpSegment) flags() string {
	var words []string
	for _, f := range []struct {
		name string
		set  bool
	}{{"SYN", s.SYN}, {"FIN", s.FIN}, {"RST", s.RST}, {"PSH", s.PSH}, {"ACK", s.ACK}, {"URG", s.URG}} {
		if f.set {
			words = append(words, f.name)
		}
	}
	return strings.Join(words, " ")
}

func (s tcpSegment) String() string {
	return fmt.Sprintf("%s, %v:%d to %v:%d, sequence %d, acknowledges %d, %d bytes",
		s.flags(), s.ip.SrcIP, s.SrcPort, s.ip.DstIP, s.DstPort, s.Seq, s.Ack, len(s.Payload))
}

// read decodes a frame with an independent decoder, and verifies everything in it.
func (k *talk) read(frame []byte) tcpSegment {
	k.Helper()
	packet := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.Default)
	verify(k.T, packet)
	tcp, ok := packet.Layer(layers.LayerTypeTCP).(*layers.TCP)
	if !ok {
		k.Fatalf("no TCP: %v", packet)
	}
	return tcpSegment{TCP: tcp, ip: packet.NetworkLayer().(*layers.IPv4),
		ethernet: packet.LinkLayer().(*layers.Ethernet)}
}

// verify checks lengths and checksums of a packet.
func verify(t *testing.T, packet gopacket.Packet) {
	t.Helper()
	if l := packet.ErrorLayer(); l != nil {
		t.Fatalf("%v: %v", l.Error(), packet)
	}
	if l4, ok := packet.TransportLayer().(interface {
		SetNetworkLayerForChecksum(gopacket.NetworkLayer) error
	}); ok {
		if err := l4.SetNetworkLayerForChecksum(packet.NetworkLayer()); err != nil {
			t.Fatal(err)
		}
	}
	if err, wrong := packet.VerifyChecksums(); err != nil || len(wrong) > 0 {
		t.Fatalf("checksums: %v %v\n%v", err, wrong, packet)
	}
	if n := len(packet.Data()); n < shortest {
		t.Fatalf("a frame of %d bytes", n)
	}
}

// expect reads a frame and checks its fields.
func (k *talk) expect(frame []byte, flags string, sequence, acknowledges uint32, payload int) tcpSegment {
	k.Helper()
	s := k.read(frame)
	if s.flags() != flags || s.Seq != sequence || s.Ack != acknowledges || len(s.Payload) != payload {
		k.Fatalf("got %v\nwant %s, sequence %d, acknowledges %d, %d bytes", s, flags, sequence, acknowledges, payload)
	}
	return s
}

// from checks the source and the destination of a frame.
func (s tcpSegment) from(k *talk, source, destination net.HardwareAddr) {
	k.Helper()
	if s.ethernet.SrcMAC.String() != source.String() || s.ethernet.DstMAC.String() != destination.String() {
		k.Fatalf("from %v to %v, want %v to %v", s.ethernet.SrcMAC, s.ethernet.DstMAC, source, destination)
	}
}

// change returns a frame with changed fields, and with correct checksums.
func (k *talk) change(frame []byte, do func(*layers.Ethernet, *layers.IPv4, *layers.TCP)) []byte {
	k.Helper()
	s := k.read(frame)
	do(s.ethernet, s.ip, s.TCP)
	return testpacket.Build(k.T, s.ethernet, s.ip, s.TCP, gopacket.Payload(s.Payload))
}

// total returns the counters of all ports.
func (k *talk) total() (client, server bpfWireCounts) {
	k.Helper()
	n, err := k.counts()
	if err != nil {
		k.Fatal(err)
	}
	server = n.servers[0]
	for i, m := range n.servers[1].Count {
		server.Count[i] += m
	}
	return n.clients[0], server
}

// counted checks some counters of a port.
func (k *talk) counted(c bpfWireCounts, want map[bpfWireCount]uint64) {
	k.Helper()
	for what, n := range want {
		if c.Count[what] != n {
			k.Errorf("count %d is %d, want %d", what, c.Count[what], n)
		}
	}
}

// state returns the state of the connection with a number.
func (k *talk) state(slot uint32) bpfWireState {
	k.Helper()
	var c bpfWireConnection
	if err := k.maps[mapConnections].Lookup(slot, &c); err != nil {
		k.Fatal(err)
	}
	return bpfWireState(c.Word & 0xff)
}
