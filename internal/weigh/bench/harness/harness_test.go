// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/host/packet"
	"github.com/jeoul/jeoul/internal/test/testenv"
)

// seen runs the harness for n packets and returns the last one as the harness made it: the empty program under test
// does not change it.
func seen(t *testing.T, h *Harness, entry string, f Frame, n uint32) []byte {
	t.Helper()
	out := make([]byte, 512)
	var before xdpHarness
	harness := h.collection.Variables[xdpVarHarness]
	if err := harness.Get(&before); err != nil {
		t.Fatal(err)
	}
	options := ebpf.RunOptions{Data: f.Bytes, DataOut: out, Repeat: n}
	// A signal, such as Go's own to a long-running thread, interrupts a run. The whole run is then repeated, because
	// the harness has counted more packets.
	testenv.Eventually(t, testenv.WaitLimit, "a run that no signal interrupts", func() bool {
		if err := harness.Set(before); err != nil {
			t.Fatal(err)
		}
		options.DataOut = out
		if _, err := h.Program(entry).Run(&options); err != nil {
			t.Fatal(err)
		}
		next, err := h.Next()
		if err != nil {
			t.Fatal(err)
		}
		return next-before.Next == n
	})
	return options.DataOut
}

func load4(t *testing.T, hook lb.Hook) *Harness {
	t.Helper()
	testenv.Root(t)
	h, err := New(hook, 128)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	return h
}

func bothHooks(t *testing.T, test func(t *testing.T, hook lb.Hook)) {
	for _, hook := range []lb.Hook{lb.HookXDP, lb.HookTC} {
		t.Run(string(hook), func(t *testing.T) { test(t, hook) })
	}
}

// TestHarnessFlows: the harness changes the client's address and port, and nothing else in the frame, for all families,
// tags and directions.
func TestHarnessFlows(t *testing.T) {
	frames := func(hook lb.Hook) map[string]Frame {
		return map[string]Frame{
			"ipv4":       ack4(web4),
			"ipv4 tag":   ack4(web4).Tagged(hook),
			"ipv6":       ack6(web6),
			"ipv4 reply": reply(backend4, client4),
			"ipv6 reply": reply(backend6, client6),
		}
	}
	bothHooks(t, func(t *testing.T, hook lb.Hook) {
		h := load4(t, hook)
		for name, f := range frames(hook) {
			for _, at := range []uint32{0, 1, 70_000} {
				if err := h.configure(h.Program(Empty), Stream{Frame: f, Count: 1 << 20, Next: at}); err != nil {
					t.Fatal(err)
				}
				number := at * (stride & (1<<20 - 1)) & (1<<20 - 1)
				want := bytes.Clone(f.Bytes)
				address, port := f.client()
				first := binary.BigEndian.Uint32(want[address:])
				binary.BigEndian.PutUint32(want[address:], first+number&0xffff)
				binary.BigEndian.PutUint16(want[port:], uint16(1024+number>>16))
				if got := seen(t, h, entryCount, f, 1); !bytes.Equal(got, want) {
					t.Errorf("%s, flow %d:\n got %x\nwant %x", name, number, got, want)
				}
			}
		}
	})
}

// TestHarnessRestores: after a program that moved the packet's start, the packet of the next run is correct.
func TestHarnessRestores(t *testing.T) {
	bothHooks(t, func(t *testing.T, hook lb.Hook) {
		h := load4(t, hook)
		f := ack6(web6)
		if err := h.configure(h.Program(Adjust), Stream{Frame: f, Count: 1}); err != nil {
			t.Fatal(err)
		}
		got := seen(t, h, entryCount, f, 5)
		if len(got) != len(f.Bytes)+ipv4Length {
			t.Fatalf("%d bytes after 5 runs, want those of the frame and one header: %d", len(got),
				len(f.Bytes)+ipv4Length)
		}
		if next, err := h.Next(); err != nil || next != 5 {
			t.Errorf("%d of 5 runs, %v", next, err)
		}
		want := bytes.Clone(f.Bytes)
		binary.BigEndian.PutUint16(want[f.transport:], 1024)
		if got := got[ipv4Length+etherLength:]; !bytes.Equal(got, want[etherLength:]) {
			t.Errorf("\n got %x\nwant %x", got, want[etherLength:])
		}
	})
}

// TestOtherFlows: an offset selects other flows, and more than 16 address bits make more clients.
func TestOtherFlows(t *testing.T) {
	h := load4(t, lb.HookXDP)
	f := ack6(web6)
	stream := Stream{Frame: f, Count: 1 << 8, Next: 1, Offset: 1<<20 + 7, AddressBits: 20}
	if err := h.configure(h.Program(Empty), stream); err != nil {
		t.Fatal(err)
	}
	number := uint32(stride&0xff + 1<<20 + 7)
	want := bytes.Clone(f.Bytes)
	address, port := f.client()
	binary.BigEndian.PutUint32(want[address:], number&(1<<20-1))
	binary.BigEndian.PutUint16(want[port:], 1025)
	if got := seen(t, h, entryCount, f, 1); !bytes.Equal(got, want) {
		t.Errorf("\n got %x\nwant %x", got, want)
	}
}

// TestFlow: the harness sends the flows that a stream describes.
func TestFlow(t *testing.T) {
	h := load4(t, lb.HookXDP)
	for name, stream := range map[string]Stream{
		"few":     {Frame: ack4(web4), Count: 1 << 4},
		"all":     {Frame: ack4(web4)},
		"others":  {Frame: ack4(web4), Count: 1 << 20, Offset: 3 << 20, AddressBits: 22},
		"replies": {Frame: reply(backend4, client4), Count: 1 << 10},
		"ipv6":    {Frame: ack6(web6), Count: 1 << 18, Offset: 1 << 18},
	} {
		noted, err := h.Record(h.Program(Empty), stream, 20)
		if err != nil {
			t.Fatal(err)
		}
		for n, seen := range noted {
			if want := stream.Flow(uint32(n)); seen.Tuple != want {
				t.Errorf("%s: flow %d is %+v, not %+v", name, n, seen.Tuple, want)
			}
		}
	}
}

// TestHarnessReplays records the flows of a program that does not change addresses: the replies are the requests with
// source and destination exchanged.
func TestHarnessReplays(t *testing.T) {
	pairs := map[string][2]Frame{
		"ipv4": {ack4(web4), reply(netip.IPv4Unspecified(), netip.IPv4Unspecified())},
		"ipv6": {ack6(web6), reply(web6.Addr(), client6)},
	}
	bothHooks(t, func(t *testing.T, hook lb.Hook) {
		h := load4(t, hook)
		for name, pair := range pairs {
			request, back := pair[0], pair[1]
			const flows = 32
			noted, err := h.Record(h.Program(Empty), Stream{Frame: request, Count: flows}, flows)
			if err != nil {
				t.Fatal(err)
			}
			var turned []Tuple
			for _, n := range noted {
				if n.To != binary.BigEndian.Uint32(OwnMAC[2:]) {
					t.Errorf("%s: a frame went to %x", name, n.To)
				}
				turned = append(turned, n.Reply())
			}
			kept, err := h.StoreFlows(back, turned)
			if err != nil {
				t.Fatal(err)
			}
			for n := uint32(1); n <= 3; n++ {
				if err := h.configure(h.Program(Empty), Stream{Frame: request, Count: flows}); err != nil {
					t.Fatal(err)
				}
				sent := seen(t, h, entryCount, request, n)
				if err := h.setLayout(kept.layout); err != nil {
					t.Fatal(err)
				}
				stream := Stream{Frame: back, Count: flows, Recording: kept}
				if err := h.configure(h.Program(Empty), stream); err != nil {
					t.Fatal(err)
				}
				got := seen(t, h, entryReplay, back, n)
				source, destination := request.addresses()
				length := destination - source
				if !bytes.Equal(got[source:destination], sent[destination:destination+length]) ||
					!bytes.Equal(got[destination:destination+length], sent[source:destination]) ||
					!bytes.Equal(got[back.transport:back.transport+2], sent[back.transport+2:back.transport+4]) ||
					!bytes.Equal(got[back.transport+2:back.transport+4], sent[back.transport:back.transport+2]) {
					t.Errorf("%s, flow %d:\n sent %x\nreply %x", name, n, sent, got)
				}
			}
		}
		if _, err := h.StoreFlows(ack4(web4), make([]Tuple, 65)); err == nil {
			t.Error("more flows were kept than there is room for")
		}
	})
}

// The frames under test.
var (
	client4, client6 = Client4, Client6
	backend4         = netip.MustParseAddr("198.19.1.1")
	backend6         = netip.MustParseAddr("2001:2:0:2::1")
	web4             = netip.AddrPortFrom(VIP4(1), 80)
	web6             = netip.AddrPortFrom(VIP6(1), 80)
)

func ack4(vip netip.AddrPort) Frame {
	return NewFrame(netip.AddrPortFrom(client4, 0), vip, lb.TCP, packet.FlagACK)
}

func ack6(vip netip.AddrPort) Frame {
	return NewFrame(netip.AddrPortFrom(client6, 0), vip, lb.TCP, packet.FlagACK)
}

func reply(backend, client netip.Addr) Frame {
	return NewFrame(netip.AddrPortFrom(backend, 80), netip.AddrPortFrom(client, 0), lb.TCP, packet.FlagACK).Reply()
}
