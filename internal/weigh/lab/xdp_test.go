// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/safchain/ethtool"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/test/testenv"
	"github.com/jeoul/jeoul/internal/weigh/lab/netdev"
)

// The numbers of XDP_TX, of the fields of struct xdp_md, and of the parts of an Ethernet header.
const (
	xdpTX          = 3
	offsetData     = 0
	offsetDataEnd  = 4
	ethernetLength = 14
	// etherType is the first of those for local experiments (IEEE 802).
	etherType = 0x88b5
)

// reflector sends every frame of etherType back to where it came from.
func reflector(t *testing.T) *ebpf.Program {
	t.Helper()
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "reflect", Type: ebpf.XDP, License: "Dual BSD/GPL",
		Instructions: asm.Instructions{
			asm.LoadMem(asm.R2, asm.R1, offsetData, asm.Word),
			asm.LoadMem(asm.R3, asm.R1, offsetDataEnd, asm.Word),
			asm.Mov.Reg(asm.R4, asm.R2),
			asm.Add.Imm(asm.R4, ethernetLength),
			asm.JGT.Reg(asm.R4, asm.R3, "pass"),
			asm.LoadMem(asm.R4, asm.R2, 12, asm.Half),
			asm.HostTo(asm.BE, asm.R4, asm.Half),
			asm.JNE.Imm(asm.R4, etherType, "pass"),
			// Swap the addresses: four bytes and two of each.
			asm.LoadMem(asm.R4, asm.R2, 0, asm.Word),
			asm.LoadMem(asm.R5, asm.R2, 4, asm.Half),
			asm.LoadMem(asm.R6, asm.R2, 6, asm.Word),
			asm.LoadMem(asm.R7, asm.R2, 10, asm.Half),
			asm.StoreMem(asm.R2, 0, asm.R6, asm.Word),
			asm.StoreMem(asm.R2, 4, asm.R7, asm.Half),
			asm.StoreMem(asm.R2, 6, asm.R4, asm.Word),
			asm.StoreMem(asm.R2, 10, asm.R5, asm.Half),
			asm.Mov.Imm(asm.R0, xdpTX),
			asm.Return(),
			asm.Mov.Imm(asm.R0, netdev.XDPPass).WithSymbol("pass"),
			asm.Return(),
		},
	})
	if err != nil {
		t.Fatalf("%+v", err)
	}
	t.Cleanup(func() { program.Close() })
	return program
}

// attachReflector puts the reflector on a host's device as native XDP.
func attachReflector(t *testing.T, h *Host) {
	t.Helper()
	program := reflector(t)
	err := h.Do(func() error {
		device, err := netlink.LinkByName(h.Interface)
		if err != nil {
			return err
		}
		attached, err := link.AttachXDP(link.XDPOptions{
			Program: program, Interface: device.Attrs().Index, Flags: link.XDPDriverMode,
		})
		if err == nil {
			t.Cleanup(func() { attached.Close() })
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestNativeXDPSendsBack(t *testing.T) {
	l := newLab(t)
	attachReflector(t, l.Balancer)
	sendBack := func(t *testing.T) {
		for _, h := range []*Host{l.Clients[0], l.Servers[1]} {
			if err := h.Do(func() error { return exchange(h, l.Balancer) }); err != nil {
				t.Errorf("%s: %v", h.Name, err)
			}
		}
	}
	t.Run("in a new lab", sendBack)
	for _, on := range []bool{false, true} {
		if err := l.AcceptXDP(on); err != nil {
			t.Fatal(err)
		}
		if got := hasXDP(t, l.Switch, l.Balancer.Port); got != on {
			t.Errorf("after AcceptXDP(%v) the port has a program: %v", on, got)
		}
	}
	t.Run("after it was off and on", sendBack)
}

// TestBackQueues: frames that the balancer sends by XDP return through a queue of the sending core, and its stack uses
// one queue.
func TestBackQueues(t *testing.T) {
	testenv.Root(t)
	l, err := New(t.Context(), Spec{Clients: 1, Servers: 1, BackQueues: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	for _, end := range []struct {
		of       *Host
		device   string
		receives int
	}{{l.Balancer, l.Balancer.Interface, 1}, {l.Switch, l.Balancer.Port, runtime.NumCPU()},
		{l.Switch, l.Servers[0].Port, 1}} {
		channels := channelsOf(t, end.of, end.device)
		if channels.TxCount != 1 || channels.RxCount != uint32(end.receives) {
			t.Errorf("%s sends by %d queues and receives by %d; want 1 and %d", end.device, channels.TxCount,
				channels.RxCount, end.receives)
		}
	}
	attachReflector(t, l.Balancer)
	client := l.Clients[0]
	for cpu := range runtime.NumCPU() {
		err := client.Do(func() error {
			var set unix.CPUSet
			set.Set(cpu)
			if err := unix.SchedSetaffinity(0, &set); err != nil {
				return err
			}
			return exchange(client, l.Balancer)
		})
		if err != nil {
			t.Errorf("from CPU %d: %v", cpu, err)
		}
	}
}

func channelsOf(t *testing.T, h *Host, device string) (channels ethtool.Channels) {
	t.Helper()
	err := h.Do(func() error {
		e, err := ethtool.NewEthtool()
		if err != nil {
			return err
		}
		defer e.Close()
		channels, err = e.GetChannels(device)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return channels
}

func hasXDP(t *testing.T, h *Host, device string) (attached bool) {
	t.Helper()
	err := h.Do(func() error {
		d, err := netlink.LinkByName(device)
		if err == nil {
			attached = d.Attrs().Xdp != nil && d.Attrs().Xdp.Attached
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return attached
}

// exchange sends a frame from one host to another until one returns, because a busy machine may drop some. It runs
// inside the sender.
func exchange(from, to *Host) error {
	device, err := netlink.LinkByName(from.Interface)
	if err != nil {
		return err
	}
	protocol := uint16(etherType>>8 | etherType&0xff<<8) // network byte order
	socket, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(protocol))
	if err != nil {
		return err
	}
	defer unix.Close(socket)
	address := &unix.SockaddrLinklayer{Protocol: protocol, Ifindex: device.Attrs().Index}
	if err := unix.Bind(socket, address); err != nil {
		return err
	}
	timeout := unix.NsecToTimeval(time.Second.Nanoseconds())
	if err := unix.SetsockoptTimeval(socket, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout); err != nil {
		return err
	}
	sent := frame(to.MAC, from.MAC)
	want := frame(from.MAC, to.MAC)
	got := make([]byte, 2*len(want))
	for deadline := time.Now().Add(waitTimeout); ; {
		if err := unix.Sendto(socket, sent, 0, address); err != nil {
			return err
		}
		for {
			n, _, err := unix.Recvfrom(socket, got, 0)
			if err == unix.EAGAIN {
				break // another second without a frame
			}
			if err != nil && err != unix.EINTR {
				return fmt.Errorf("wait for the frame's return: %w", err)
			}
			if err == nil && bytes.Equal(got[:n], want) {
				return nil
			}
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("no frame of those that were sent for %v has returned", waitTimeout)
		}
	}
}

func frame(destination, source []byte) []byte {
	b := append(append([]byte{}, destination...), source...)
	b = append(b, etherType>>8, etherType&0xff)
	return append(b, bytes.Repeat([]byte{'x'}, 46)...)
}
