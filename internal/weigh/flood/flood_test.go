// SPDX-License-Identifier: Apache-2.0

package flood

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/host/namespace"
	"github.com/jeoul/jeoul/internal/test/testenv"
)

// frames is the number of frames that the tests send: so few that no queue overflows.
const frames = 2000

var (
	sources4 = netip.MustParsePrefix("198.19.0.0/16")
	sources6 = netip.MustParsePrefix("2001:2:0:19::/64")
	target4  = netip.MustParseAddrPort("198.18.0.100:80")
	target6  = netip.MustParseAddrPort("[2001:2::100]:80")
)

// options4 returns a flood that any machine can make.
func options4() Options {
	return Options{
		Packets: SYN, Sources: sources4, Target: target4, From: net.HardwareAddr{2, 0, 0, 0, 0, 1},
		To: []net.HardwareAddr{{2, 0, 0, 0, 0, 2}}, Interface: 1, Limit: frames, Seed: 7,
	}
}

func TestImpossibleFloods(t *testing.T) {
	for name, change := range map[string]func(*Options){
		"packets":       func(o *Options) { o.Packets = "rst" },
		"no sources":    func(o *Options) { o.Sources = netip.Prefix{} },
		"two families":  func(o *Options) { o.Target = target6 },
		"short prefix":  func(o *Options) { o.Target, o.Sources = target6, netip.MustParsePrefix("2001:2::/48") },
		"no receiver":   func(o *Options) { o.To = nil },
		"no such MAC":   func(o *Options) { o.To = []net.HardwareAddr{{1, 2}} },
		"no sender":     func(o *Options) { o.From = nil },
		"no device":     func(o *Options) { o.Interface = 0 },
		"negative rate": func(o *Options) { o.Rate = -1 },
		"no limit":      func(o *Options) { o.Limit = 0 },
		"many targets":  func(o *Options) { o.To = make([]net.HardwareAddr, maxTargets+1) },
		"rate too high": func(o *Options) { o.Rate = MaxRate + 1 },
		"no target":     func(o *Options) { o.Target = netip.AddrPort{} },
		"IPv4 in IPv6":  func(o *Options) { o.Sources = netip.PrefixFrom(netip.MustParseAddr("::ffff:1.2.3.0"), 120) },
	} {
		o := options4()
		if err := o.check(); err != nil {
			t.Fatal(err)
		}
		change(&o)
		if err := o.check(); !errors.Is(err, ErrOptions) {
			t.Errorf("%s: got %v, want ErrOptions", name, err)
		}
	}
}

// rig is a flood's device, and the device at the other end where frames arrive.
type rig struct {
	sender, receiver *namespace.Namespace
	index            int
	from, to         net.HardwareAddr
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{sender: testenv.Namespace(t), receiver: testenv.Namespace(t)}
	r.from, r.to = testenv.Veth(t, testenv.End{Namespace: r.sender, Name: "out"},
		testenv.End{Namespace: r.receiver, Name: "in"})
	testenv.In(t, r.sender, func() error {
		link, err := net.InterfaceByName("out")
		if err == nil {
			r.index = link.Index
		}
		return err
	})
	return r
}

// load makes a flood for the rig, with the given tap where frames arrive.
func (r *rig) load(t *testing.T, o Options, tap func(Taps) *ebpf.Program) *Flood {
	t.Helper()
	o.From, o.To, o.Interface = r.from, []net.HardwareAddr{r.to}, r.index
	f, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	testenv.In(t, r.receiver, func() error {
		link, err := netlink.LinkByName("in")
		if err != nil {
			return err
		}
		return netlink.LinkSetXdpFdWithFlags(link, tap(f.Taps()).FD(), nl.XDP_FLAGS_DRV_MODE)
	})
	return f
}

func run(t *testing.T, r *rig, f *Flood) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testenv.WaitLimit)
	defer cancel()
	testenv.In(t, r.sender, func() error { return f.Run(ctx, 0) })
	if ctx.Err() != nil {
		t.Fatal("the flood did not reach its limit")
	}
	if sent, err := f.Sent(); err != nil || sent != f.options.Limit {
		t.Fatalf("%d frames sent (error %v), want %d", sent, err, f.options.Limit)
	}
}

// twin holds the fields that frame n of a flood must have, by a second implementation of the rule of
// bpf/lab/flood.bpf.c.
type twin struct {
	source         netip.Addr
	port           uint16
	sequence, acks uint32
	ack            bool
}

func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

func (o Options) twin(n uint64) twin {
	flow, ack := n, false
	if o.Packets == SYNACK {
		flow, ack = n/2, n%2 == 1
	}
	random := mix(o.Seed + (flow+1)*0x9e3779b97f4a7c15)
	bytes := o.Sources.Masked().Addr().AsSlice()
	differ, at := random, 0
	if len(bytes) == 16 {
		differ, at = mix(^random), 8
	}
	for i := o.Sources.Bits(); i < 8*len(bytes); i++ {
		bit := byte(0x80 >> (i % 8))
		if byte(differ>>(8*(i/8-at)))&bit != 0 {
			bytes[i/8] |= bit
		}
	}
	w := twin{ack: ack, port: uint16(1024 + (random>>48)*64512>>16)}
	w.source, _ = netip.AddrFromSlice(bytes)
	numbers := mix(random)
	swap := func(v uint32) uint32 { return v<<24 | v&0xff00<<8 | v>>8&0xff00 | v>>24 }
	w.sequence = swap(uint32(numbers >> 32))
	if ack {
		w.sequence++
		w.acks = swap(uint32(numbers))
	}
	return w
}

// TestEveryFrame sends floods over a link and reads each frame on the other side:
// all of them arrive, in order, right in every field and checksum.
func TestEveryFrame(t *testing.T) {
	for _, family := range []struct {
		name    string
		sources netip.Prefix
		target  netip.AddrPort
	}{{"IPv4", sources4, target4}, {"IPv6", sources6, target6}, {"a /20", netip.MustParsePrefix("198.19.16.0/20"),
		target4}} {
		kinds := Kinds()
		if family.sources != sources4 && family.sources != sources6 {
			kinds = kinds[:1] // what they are makes no difference to where they come from
		}
		for _, packets := range kinds {
			t.Run(family.name+"/"+string(packets), func(t *testing.T) {
				r := newRig(t)
				o := options4()
				o.Packets, o.Sources, o.Target, o.Limit = packets, family.sources, family.target, 60
				// The exit lets the flood pass, up to the socket below.
				f := r.load(t, o, func(taps Taps) *ebpf.Program { return taps.Exit })
				socket := listen(t, r.receiver, "in")
				run(t, r, f)
				for n := range o.Limit {
					checkFrame(t, receive(t, socket), r, o, n)
				}
				counts, err := f.Counts()
				if err != nil {
					t.Fatal(err)
				}
				want := Counts{Forwarded: o.Limit}
				if packets == SYNACK {
					want = Counts{Forwarded: o.Limit / 2, ForwardedACKs: o.Limit / 2}
				}
				if counts != want {
					t.Errorf("counted %+v, want %+v", counts, want)
				}
			})
		}
	}
}

// listen opens a packet socket that keeps the test's packets.
func listen(t *testing.T, ns *namespace.Namespace, device string) int {
	t.Helper()
	fd := -1
	testenv.In(t, ns, func() (err error) {
		link, err := net.InterfaceByName(device)
		if err != nil {
			return err
		}
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 8<<20); err != nil {
			return err
		}
		all := uint16(unix.ETH_P_ALL)
		return unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all<<8 | all>>8, Ifindex: link.Index})
	})
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

// receive returns the next frame with the mark; the kernel's own are left out.
func receive(t *testing.T, fd int) gopacket.Packet {
	t.Helper()
	timeout := unix.NsecToTimeval((10 * time.Second).Nanoseconds())
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout); err != nil {
		t.Fatal(err)
	}
	buffer := make([]byte, 2000)
	for {
		n, err := unix.Read(fd, buffer)
		if errors.Is(err, unix.EINTR) { // the process was stopped
			continue
		}
		if err != nil {
			t.Fatalf("a frame is missing: %v", err)
		}
		packet := gopacket.NewPacket(buffer[:n], layers.LayerTypeEthernet, gopacket.Default)
		if packet.Layer(layers.LayerTypeTCP) != nil || packet.Layer(layers.LayerTypeUDP) != nil {
			return packet
		}
	}
}

func checkFrame(t *testing.T, packet gopacket.Packet, r *rig, o Options, n uint64) {
	t.Helper()
	want := o.twin(n)
	if l4, ok := packet.TransportLayer().(interface {
		SetNetworkLayerForChecksum(gopacket.NetworkLayer) error
	}); ok {
		if err := l4.SetNetworkLayerForChecksum(packet.NetworkLayer()); err != nil {
			t.Fatal(err)
		}
	}
	if e, mismatches := packet.VerifyChecksums(); e != nil || len(mismatches) > 0 {
		t.Fatalf("frame %d: checksums: %v %v\n%v", n, e, mismatches, packet)
	}
	ethernet := packet.LinkLayer().(*layers.Ethernet)
	source, destination := packet.NetworkLayer().NetworkFlow().Endpoints()
	if ethernet.SrcMAC.String() != r.from.String() || ethernet.DstMAC.String() != r.to.String() ||
		source.String() != want.source.String() || destination.String() != o.Target.Addr().String() {
		t.Fatalf("frame %d: %v, want from %v", n, packet, want.source)
	}
	if !o.Sources.Contains(want.source) {
		t.Fatalf("the twin of frame %d has source %v, outside of %v", n, want.source, o.Sources)
	}
	if o.Packets == UDP {
		udp := packet.Layer(layers.LayerTypeUDP).(*layers.UDP)
		if uint16(udp.SrcPort) != want.port || uint16(udp.DstPort) != o.Target.Port() || udp.Checksum == 0 {
			t.Fatalf("frame %d: %v, want port %d", n, packet, want.port)
		}
		return
	}
	tcp := packet.Layer(layers.LayerTypeTCP).(*layers.TCP)
	got := twin{source: want.source, port: uint16(tcp.SrcPort), sequence: tcp.Seq, acks: tcp.Ack, ack: tcp.ACK}
	if got != want || tcp.SYN == want.ack || tcp.RST || tcp.FIN || uint16(tcp.DstPort) != o.Target.Port() ||
		len(tcp.Options) > 0 {
		t.Fatalf("frame %d: %v, want %+v", n, packet, want)
	}
}

// TestSinkCountsAndDrops sends a flood to its own sources: the sink must count all of it as answers, and let nothing
// pass.
func TestSinkCountsAndDrops(t *testing.T) {
	r := newRig(t)
	o := options4()
	o.Target = netip.AddrPortFrom(netip.MustParseAddr("198.19.1.2"), 80)
	f := r.load(t, o, func(taps Taps) *ebpf.Program { return taps.Sink })
	socket := listen(t, r.receiver, "in")
	run(t, r, f)
	counts, err := f.Counts()
	if err != nil {
		t.Fatal(err)
	}
	if want := (Counts{Returned: Answers{Others: frames}}); counts != want {
		t.Errorf("counted %+v, want %+v", counts, want)
	}
	buffer := make([]byte, 2000)
	for {
		n, _, err := unix.Recvfrom(socket, buffer, unix.MSG_DONTWAIT)
		if errors.Is(err, unix.EAGAIN) {
			break
		}
		// The kernel's own frames (neighbour discovery) may pass.
		packet := gopacket.NewPacket(buffer[:max(n, 0)], layers.LayerTypeEthernet, gopacket.Default)
		if err != nil || packet.Layer(layers.LayerTypeTCP) != nil {
			t.Fatalf("passed the sink: %v (error %v)", packet, err)
		}
	}
}

// TestPortSwitches sends a flood through the tap of the attacker's port: frames for a MAC address that is connected go
// to its device, and nowhere else.
func TestPortSwitches(t *testing.T) {
	for _, drop := range []bool{false, true} {
		r := newRig(t)
		behind := testenv.Namespace(t)
		testenv.Veth(t, testenv.End{Namespace: r.receiver, Name: "on"}, testenv.End{Namespace: behind, Name: "end"})
		o := options4()
		o.DropAtPort = drop
		f := r.load(t, o, func(taps Taps) *ebpf.Program { return taps.Port })
		if err := f.Connect(r.to, indexOf(t, r.receiver, "on")); err != nil {
			t.Fatal(err)
		}
		testenv.In(t, behind, func() error {
			link, err := netlink.LinkByName("end")
			if err != nil {
				return err
			}
			return netlink.LinkSetXdpFdWithFlags(link, f.Taps().Exit.FD(), nl.XDP_FLAGS_DRV_MODE)
		})
		run(t, r, f)
		want := Counts{Offered: frames, Forwarded: frames}
		if drop {
			want.Forwarded = 0
		}
		testenv.Eventually(t, testenv.WaitLimit, "all frames are counted", func() bool {
			counts, err := f.Counts()
			return err == nil && counts == want
		})
	}
}

func indexOf(t *testing.T, ns *namespace.Namespace, name string) (index int) {
	t.Helper()
	testenv.In(t, ns, func() error {
		link, err := net.InterfaceByName(name)
		if err == nil {
			index = link.Index
		}
		return err
	})
	return index
}

// TestContextEndsAFlood sends at a rate that would take days to reach the limit,
// and no faster.
func TestContextEndsAFlood(t *testing.T) {
	r := newRig(t)
	o := options4()
	o.Limit, o.Rate = 1<<40, 1000
	f := r.load(t, o, func(taps Taps) *ebpf.Program { return taps.Sink })
	ctx, cancel := context.WithCancel(t.Context())
	began := time.Now()
	ended := make(chan error, 1)
	go func() { ended <- r.sender.Do(func() error { return f.Run(ctx, 0) }) }()
	testenv.Eventually(t, testenv.WaitLimit, "frames are sent", func() bool {
		sent, err := f.Sent()
		return err == nil && sent > 10
	})
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	sent, err := f.Sent()
	if most := uint64(time.Since(began).Seconds()*float64(o.Rate)) + 1; err != nil || sent > most {
		t.Errorf("%d frames sent, error %v; the rate allows %d", sent, err, most)
	}
}
