// SPDX-License-Identifier: Apache-2.0

// Package flood floods a service of a laboratory with packets that open connections, from random sources that no host
// has, as fast as one core can send, and counts the packets on their path.
//
// A program that BPF_PROG_TEST_RUN runs with live frames makes frames inside the kernel and redirects each of them out
// of one device. The caller chooses where the device leads: to a link of a laboratory, which has no route out. The
// program itself bounds the frames of a flood, and a context bounds its time.
package flood

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"slices"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Packets is the kind of packets of a flood.
type Packets string

// The kinds of packets.
const (
	// SYN: each packet opens a new connection.
	SYN Packets = "syn"
	// SYNACK: for every SYN, the ACK that would follow it is sent as well, by an attacker who does not see the answers
	// and guesses their numbers.
	SYNACK Packets = "syn-ack"
	// UDP: each datagram is a new flow.
	UDP Packets = "udp"
)

// Kinds lists the kinds of packets.
func Kinds() []Packets { return []Packets{SYN, SYNACK, UDP} }

// Errors that callers may test for.
var (
	// ErrOptions means that there is no such flood.
	ErrOptions = errors.New("impossible flood")
	// ErrKernel means that this kernel cannot send frames from a program.
	ErrKernel = errors.New(
		"this kernel does not send live frames (BPF_PROG_TEST_RUN with BPF_F_TEST_XDP_LIVE_FRAMES, Linux 5.18)")
)

// Options describe a flood.
type Options struct {
	Packets Packets
	// Sources is the prefix from which the packets' source addresses are chosen at random, with any port from 1024. An
	// IPv6 prefix has at least 64 bits.
	Sources netip.Prefix
	// Target is the service.
	Target netip.AddrPort
	// From is the sender's MAC address; To are the addresses that frames are sent to, at most 128, with one address for
	// each flow.
	From net.HardwareAddr
	To   []net.HardwareAddr
	// Interface is the index of the device that sends the frames, in the network namespace in which Run is called.
	Interface int
	// Rate is the number of frames a second; 0: as many as one core can send.
	Rate int
	// Limit is the greatest number of frames that are sent.
	Limit uint64
	// Seed makes a flood equal to another one with the same seed.
	Seed uint64
	// DropAtPort and DropAtExit make the taps of these names drop the flood.
	DropAtPort, DropAtExit bool
}

// MaxRate is the highest rate that can be asked for, in frames a second.
const MaxRate = 100_000_000

// maxTargets is MAX_TARGETS.
const maxTargets = 128

func (o Options) check() error {
	most, address := 0, netip.Addr{}
	if o.Sources.IsValid() {
		address = o.Sources.Masked().Addr()
		most = 32
		if address.Is6() {
			most = 128
		}
	}
	wrong := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s", ErrOptions, fmt.Sprintf(format, args...))
	}
	switch {
	case !slices.Contains(Kinds(), o.Packets):
		return wrong("packets %q; use one of %v", o.Packets, Kinds())
	case !address.IsValid() || address.Is4In6():
		return wrong("sources %v are no prefix", o.Sources)
	case !o.Target.IsValid() || o.Target.Addr().Is4() != address.Is4():
		return wrong("sources %v and the target %v are not of one family", o.Sources, o.Target)
	case address.Is6() && o.Sources.Bits() < 64:
		return wrong("sources %v: the prefix of an IPv6 flood has 64 to %d bits", o.Sources, most)
	case len(o.From) != 6 || len(o.To) == 0 || len(o.To) > maxTargets:
		return wrong("it needs the sender's MAC address and 1 to %d to send to", maxTargets)
	case slices.ContainsFunc(o.To, func(mac net.HardwareAddr) bool { return len(mac) != 6 }):
		return wrong("MAC addresses have 6 bytes")
	case o.Interface <= 0:
		return wrong("it needs the index of the device to send by")
	case o.Rate < 0 || o.Rate > MaxRate:
		return wrong("%d frames a second; use 1 to %d, or 0 for as many as one core can send", o.Rate, MaxRate)
	case o.Limit == 0:
		return wrong("a flood needs a limit")
	}
	return nil
}

// Flood is a flood that can be sent, once.
type Flood struct {
	options Options
	objects floodObjects
	frame   []byte
}

// New loads a flood. The caller must close it.
func New(o Options) (*Flood, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	spec, err := loadFlood()
	if err != nil {
		return nil, fmt.Errorf("reading the flood's programs: %w", err)
	}
	f := &Flood{options: o}
	frame := newFrame(o)
	f.frame = frame.bytes
	if err := spec.Variables["settings"].Set(frame.settings()); err != nil {
		return nil, fmt.Errorf("setting up a flood: %w", err)
	}
	if err := spec.LoadAndAssign(&f.objects, nil); err != nil {
		return nil, fmt.Errorf("loading the flood's programs: %w", err)
	}
	return f, nil
}

// Close frees the programs that New has loaded. An attached program stays on its device.
func (f *Flood) Close() error { return f.objects.Close() }

// Sizes of sending.
const (
	// batch is the number of frames that the kernel makes before it sends them: as many as a device's receive loop
	// takes at a time, and far fewer than a veth's ring of 256.
	batch = 64
	// burst is the number of frames that a call to the kernel makes. Each call takes some tens of milliseconds in which
	// nothing is sent. Frames beyond the end of a flood, or before their time, are made and immediately dropped, in
	// some 60 ns each.
	burst = 1 << 22
)

// Run sends the flood from the calling thread, which it pins to the CPU, until the limit is reached, or ctx ends, which
// is no error. The core is busy all the time, even with a rate. Run must be called inside the network namespace of the
// flood's device, on a thread that ends with it.
func (f *Flood) Run(ctx context.Context, cpu int) error {
	runtime.LockOSThread()
	var set unix.CPUSet
	set.Set(cpu)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("tying the flood to CPU %d: %w", cpu, err)
	}
	// ctx does not end the call to the kernel: the program reads a variable.
	defer context.AfterFunc(ctx, func() { f.objects.Stopped.Set(uint32(1)) })()
	for ctx.Err() == nil {
		_, err := f.objects.FloodSend.Run(&ebpf.RunOptions{
			Data: f.frame, Repeat: burst, Flags: unix.BPF_F_TEST_XDP_LIVE_FRAMES, BatchSize: batch,
		})
		switch {
		case errors.Is(err, unix.EINTR):
			// The program counts the packets that were sent until then.
		case errors.Is(err, unix.EINVAL), errors.Is(err, ebpf.ErrNotSupported):
			return fmt.Errorf("%w: %v", ErrKernel, err)
		case err != nil:
			return fmt.Errorf("sending a flood: %w", err)
		}
		if sent, err := f.Sent(); err != nil || sent >= f.options.Limit {
			return err
		}
	}
	return nil
}

// Sent returns the number of frames that were sent.
func (f *Flood) Sent() (uint64, error) {
	var n uint64
	if err := f.objects.Next.Get(&n); err != nil {
		return 0, fmt.Errorf("reading how much of a flood was sent: %w", err)
	}
	return n, nil
}
