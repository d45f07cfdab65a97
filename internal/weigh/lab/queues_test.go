// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/safchain/ethtool"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/test/testenv"
	"github.com/jeoul/jeoul/internal/weigh/lab/netdev"
)

// newFloodLab builds the lab of a flood.
func newFloodLab(t *testing.T) *Lab {
	t.Helper()
	testenv.Root(t)
	l, err := New(t.Context(), Spec{Clients: 1, Servers: 1, Attacker: true, CoreQueues: true})
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

// TestEachCoreHasItsQueue sends from one core after the other, and checks in which queue of the server's device the
// frames arrive, after two hops.
func TestEachCoreHasItsQueue(t *testing.T) {
	l := newFloodLab(t)
	server := l.Servers[0]
	const datagrams = 200
	to := netip.AddrPortFrom(server.IPv4, 9)
	for cpu := range runtime.NumCPU() {
		// The first datagram resolves the neighbour.
		sendFrom(t, l.Clients[0], cpu, to, 1)
		before := queueFrames(t, server)
		sendFrom(t, l.Clients[0], cpu, to, datagrams)
		eventually(t, "the frames of the CPU are in its queue", func() bool {
			return queueFrames(t, server)[cpu]-before[cpu] >= datagrams
		})
		for other, frames := range queueFrames(t, server) {
			if other != cpu && frames-before[other] > datagrams/4 {
				t.Errorf("CPU %d sent %d frames into queue %d", cpu, frames-before[other], other)
			}
		}
	}
}

func sendFrom(t *testing.T, h *Host, cpu int, to netip.AddrPort, datagrams int) {
	t.Helper()
	err := h.Do(func() error {
		var set unix.CPUSet
		set.Set(cpu)
		if err := unix.SchedSetaffinity(0, &set); err != nil {
			return err
		}
		conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(to))
		if err != nil {
			return err
		}
		defer conn.Close()
		for sent := 0; sent < datagrams; {
			// No socket listens: the write may return the ICMP error instead of sending.
			_, err := conn.Write([]byte("x"))
			switch {
			case err == nil:
				sent++
			case !errors.Is(err, unix.ECONNREFUSED):
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// queueFrames counts the frames that arrived in each queue of the host's device. A veth counts them only for XDP, so
// the device gets a program.
func queueFrames(t *testing.T, h *Host) []uint64 {
	t.Helper()
	counts := make([]uint64, runtime.NumCPU())
	err := h.Do(func() error {
		if err := netdev.AcceptXDP(h.Interface); err != nil {
			return err
		}
		e, err := ethtool.NewEthtool()
		if err != nil {
			return err
		}
		defer e.Close()
		stats, err := e.Stats(h.Interface)
		for queue := range counts {
			counts[queue] = stats[fmt.Sprintf("rx_queue_%d_xdp_packets", queue)]
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return counts
}

// TestPin pins processes that have pinned themselves, and unpins them, and then gives them priority.
func TestPin(t *testing.T) {
	l := newFloodLab(t)
	p, err := l.Balancer.Start(context.Background(), Command{Path: "sleep", Args: []string{"60"}, CPUs: []int{0}})
	if err != nil {
		t.Fatal(err)
	}
	last := runtime.NumCPU() - 1
	for _, pins := range [][]int{{last}, {}, {0}} {
		if err := l.Balancer.Pin(pins...); err != nil {
			t.Fatal(err)
		}
		var set unix.CPUSet

		if err := unix.SchedGetaffinity(p.PID(), &set); err == unix.ESRCH {
			t.Fatal("the process has ended")
		} else if err != nil {
			t.Fatal(err)
		}
		want := max(len(pins), 1)
		if len(pins) == 0 {
			want = runtime.NumCPU()
		}
		if set.Count() != want || len(pins) > 0 && !set.IsSet(pins[0]) {
			t.Errorf("after Pin(%v) the process may use %d CPUs", pins, set.Count())
		}
	}
	for _, nice := range []int{-20, 0} {
		if err := l.Balancer.Renice(nice); err != nil {
			t.Fatal(err)
		}
		// The system call returns 20 less the nice value (getpriority(2)).
		if got, err := unix.Getpriority(unix.PRIO_PROCESS, p.PID()); err != nil || 20-got != nice {
			t.Errorf("after Renice(%d) the process has %d, error %v", nice, 20-got, err)
		}
	}
}

// TestAttackersRoutes checks the routes to addresses that no host has, and that taps can be attached and detached.
func TestAttackersRoutes(t *testing.T) {
	l := newFloodLab(t)
	nowhere := netip.MustParsePrefix("198.19.0.0/16")
	unknown := netip.MustParseAddr("198.19.3.4")
	server := l.Servers[0]
	if _, err := server.NextHop(unknown); err == nil {
		t.Errorf("%s has a way to %v before it was given one", server.Name, unknown)
	}
	for _, on := range []bool{true, true, false, false} {
		if err := server.RouteThrough(l.Attacker, nowhere, on); err != nil {
			t.Fatal(err)
		}
		next, err := server.NextHop(unknown)
		if on && (err != nil || next != l.Attacker.IPv4) || !on && err == nil {
			t.Errorf("route %v: the next hop to %v is %v, error %v", on, unknown, next, err)
		}
	}
	pass, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.XDP, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, netdev.XDPPass), asm.Return()}})
	if err != nil {
		t.Fatal(err)
	}
	defer pass.Close()
	for _, program := range []*ebpf.Program{pass, nil} {
		if err := l.Attacker.TapDevice(program); err != nil {
			t.Fatal(err)
		}
		if err := l.Attacker.TapPort(program); err != nil {
			t.Fatal(err)
		}
		if got := tapped(t, l.Attacker, l.Attacker.Interface); got != (program != nil) {
			t.Errorf("device with program %v: %v", program, got)
		}
		if got := tapped(t, l.Switch, l.Attacker.Port); got != (program != nil) {
			t.Errorf("port with program %v: %v", program, got)
		}
	}
	if strings.TrimSpace(l.Attacker.Namespace) == "" {
		t.Error("the attacker has no namespace of its own")
	}
}

func tapped(t *testing.T, h *Host, device string) (has bool) {
	t.Helper()
	err := h.Do(func() error {
		link, err := netlink.LinkByName(device)
		if err == nil {
			has = link.Attrs().Xdp != nil && link.Attrs().Xdp.Attached
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return has
}
