// SPDX-License-Identifier: Apache-2.0

// Package softirq measures the CPU time of the kernel's packet work, device by device. Packets that arrive are worked
// on in a softirq, on top of whatever process the core was running, and the kernel bills that process. A [Meter] says
// how much of it was done for each device, and how much the processes of each network namespace were billed for devices
// of any namespace.
package softirq

import (
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// Errors that callers may test for.
var (
	// ErrNoRights: the process may not trace the kernel.
	ErrNoRights = errors.New("no right to trace the kernel")
	// ErrUnsupported: the kernel lacks type information or a tracepoint.
	ErrUnsupported = errors.New("the kernel cannot be traced in this way")
)

// Device names a device in a network namespace.
type Device struct {
	// Namespace is the inode number of the network namespace.
	Namespace uint64
	// Index is the device's index in it.
	Index int
}

// Reading is the work since the meter was made.
type Reading struct {
	// Devices is the CPU time for the packets of each device.
	Devices map[Device]time.Duration
	// PerNamespace is how much of it ran on top of processes of a namespace, by its
	// inode number, and is part of their CPU time.
	PerNamespace map[uint64]time.Duration
}

// Meter listens to the kernel's tracepoints until it is closed. It sees the whole machine, and costs each poll of a
// device (up to 64 packets) some hundred nanoseconds, which are part of its figures.
type Meter struct {
	objects meterObjects
	links   []link.Link
	// packets is the link of the program that tells packets in a core's own queue apart; nil while none does.
	packets link.Link
}

// NewMeter starts to measure. Errors: ErrNoRights, ErrUnsupported.
func NewMeter() (*Meter, error) {
	m := &Meter{}
	if err := loadMeterObjects(&m.objects, nil); err != nil {
		return nil, meterError(err)
	}
	// Nothing is charged before SoftirqEntry, which comes last: a softirq whose end is not seen would charge devices
	// with work that nobody is billed for.
	for _, program := range []*ebpf.Program{m.objects.SoftirqExit, m.objects.NapiPoll, m.objects.SoftirqEntry} {
		l, err := link.AttachTracing(link.TracingOptions{Program: program})
		if err != nil {
			return nil, errors.Join(meterError(err), m.Close())
		}
		m.links = append(m.links, l)
	}
	return m, nil
}

// Packets has the meter tell packets in a core's own queue apart, or not, as a new
// one does. There is the work for devices that have no NAPI instance, as a veth
// without GRO or whose peer has TSO: without it, that work is no device's. It takes
// some fifty nanoseconds more for each packet. Error: ErrUnsupported.
func (m *Meter) Packets(on bool) error {
	if on == (m.packets != nil) {
		return nil
	}
	if !on {
		err := m.packets.Close()
		m.packets = nil
		return err
	}
	l, err := link.AttachTracing(link.TracingOptions{Program: m.objects.Receive})
	if err != nil {
		return meterError(err)
	}
	m.packets = l
	return nil
}

func meterError(err error) error {
	var refusal *ebpf.VerifierError
	switch {
	case errors.Is(err, fs.ErrPermission) && !errors.As(err, &refusal):
		return fmt.Errorf("measure packet work: %w (%v): run as root", ErrNoRights, err)
	default:
		return fmt.Errorf("measure packet work: %w: %v", ErrUnsupported, err)
	}
}

// Read returns the work so far. It does not stop the packets: figures of
// different devices may be a poll apart in time.
func (m *Meter) Read() (Reading, error) {
	reading := Reading{Devices: map[Device]time.Duration{}, PerNamespace: map[uint64]time.Duration{}}
	add := func(key meterChargeKey, ns uint64) {
		if key.Ifindex == 0 {
			reading.PerNamespace[uint64(key.Netns)] += time.Duration(ns)
		} else {
			reading.Devices[Device{uint64(key.Netns), int(key.Ifindex)}] += time.Duration(ns)
		}
	}
	var place uint32
	var charges []meterCharge
	entries := m.objects.Charges.Iterate()
	for entries.Next(&place, &charges) {
		for _, charge := range charges {
			if charge.Ns > 0 {
				add(charge.Key, charge.Ns)
			}
		}
	}
	var key meterChargeKey
	var sums []uint64
	others := m.objects.Others.Iterate()
	for others.Next(&key, &sums) {
		for _, ns := range sums {
			add(key, ns)
		}
	}
	if err := errors.Join(entries.Err(), others.Err()); err != nil {
		return Reading{}, fmt.Errorf("read what packet work was measured: %w", err)
	}
	return reading, nil
}

// Close ends the measurement.
func (m *Meter) Close() error {
	errs := []error{m.Packets(false)}
	for _, l := range m.links {
		errs = append(errs, l.Close())
	}
	return errors.Join(append(errs, m.objects.Close())...)
}
