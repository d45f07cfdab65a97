// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/safchain/ethtool"

	"github.com/jeoul/jeoul/internal/test/testenv"
	"github.com/jeoul/jeoul/internal/weigh/flood"
)

// newWireLab builds a lab for loads of packets that ends with the test.
func newWireLab(t *testing.T) *Lab {
	t.Helper()
	testenv.Root(t)
	l, err := New(t.Context(), Spec{Clients: 2, Servers: 2, Wire: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

// TestWireSwitchCarriesEveryFrame sends frames that a program makes from a client to a server; all of them arrive, and
// the bridge sees none.
func TestWireSwitchCarriesEveryFrame(t *testing.T) {
	l := newWireLab(t)
	client, server := l.Clients[1], l.Servers[0]
	device, _, err := client.Indexes()
	if err != nil {
		t.Fatal(err)
	}
	const frames = 50_000
	f, err := flood.New(flood.Options{
		Packets: flood.SYN, Sources: netip.MustParsePrefix("198.19.0.0/16"), Target: netip.AddrPortFrom(l.VIP4, 80),
		From: client.MAC, To: []net.HardwareAddr{server.MAC}, Interface: device, Limit: frames, DropAtExit: true,
		// Far below the capacity of a queue, also on a busy machine.
		Rate: 100_000,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	taps := f.Taps()
	// A device that receives redirected frames needs a program, also the sender's own.
	if err := client.TapDevice(taps.Sink); err != nil {
		t.Fatal(err)
	}
	if err := server.TapDevice(taps.Exit); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), testenv.WaitLimit)
	defer cancel()
	if err := client.Do(func() error { return f.Run(ctx, 0) }); err != nil || ctx.Err() != nil {
		t.Fatalf("the frames were not sent: %v %v", err, ctx.Err())
	}
	// The test compares the frames, and not the devices' drops, which include the kernels' own frames: multicasts that
	// a host sends before its link is up, or into a queue that a neighbour has filled. The drops show where a frame was
	// lost.
	t.Cleanup(func() {
		if t.Failed() {
			for _, h := range []*Host{client, server} {
				drops, err := h.DeviceDrops()
				t.Logf("dropped at %s, the kernel's own frames included: %+v (error %v)", h.Name, drops, err)
			}
		}
	})
	var counts flood.Counts
	eventually(t, "every frame has arrived", func() bool {
		counts, err = f.Counts()
		return err != nil || counts.Forwarded == frames
	})
	if err != nil {
		t.Fatal(err)
	}
	if redirected := portRedirects(t, l, client); redirected < frames {
		t.Errorf("the switch's program has forwarded %d of %d frames", redirected, frames)
	}
}

// portRedirects counts the packets that the program on the switch's port to a host has forwarded.
func portRedirects(t *testing.T, l *Lab, h *Host) (sum uint64) {
	t.Helper()
	err := l.Switch.Do(func() error {
		e, err := ethtool.NewEthtool()
		if err != nil {
			return err
		}
		defer e.Close()
		statistics, err := e.Stats(h.Port)
		for name, n := range statistics {
			if strings.HasSuffix(name, "_xdp_redirect") {
				sum += n
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return sum
}

// TestWireSwitchSendsBack exchanges frames of sockets, which are copied into frames of XDP on arrival, with a host that
// sends them back by XDP_TX.
func TestWireSwitchSendsBack(t *testing.T) {
	l := newWireLab(t)
	attachReflector(t, l.Balancer)
	for _, accept := range []bool{true, false} {
		if err := l.AcceptXDP(accept); err != nil {
			t.Fatal(err)
		}
		for _, h := range []*Host{l.Clients[0], l.Servers[1]} {
			if err := h.Do(func() error { return exchange(h, l.Balancer) }); err != nil {
				t.Errorf("AcceptXDP(%v), %s: %v", accept, h.Name, err)
			}
		}
	}
	if !hasXDP(t, l.Switch, l.Balancer.Port) {
		t.Error("the switch's program is not on the balancer's port any more")
	}
}

// TestWireSwitchServesKernels makes two kernels communicate: ARP through the bridge, everything else through the
// switch's program.
func TestWireSwitchServesKernels(t *testing.T) {
	l := newWireLab(t)
	for _, server := range l.Servers {
		listener := listen(t, server, server.IPv4)
		dial(t, l.Clients[0], listener.Addr())
	}
}
