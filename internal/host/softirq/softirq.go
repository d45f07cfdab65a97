// SPDX-License-Identifier: Apache-2.0

// Package softirq measures the CPU time of the kernel's packet processing, device by device. The kernel processes
// received packets in a softirq, which interrupts the process that runs on the core, and accounts the time to that
// process, unless it accounts interrupts by themselves. A [Meter] returns the time per device, and the time that was
// accounted to the processes of each network namespace, for devices of any namespace.
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
	// ErrNoRights means that the process may not trace the kernel.
	ErrNoRights = errors.New("no right to trace the kernel")
	// ErrUnsupported means that the kernel lacks type information or a tracepoint.
	ErrUnsupported = errors.New("the kernel cannot be traced in this way")
)

// Device names a device in a network namespace.
type Device struct {
	// Namespace is the inode number of the network namespace.
	Namespace uint64
	// Index is the device's index in the namespace.
	Index int
}

// Reading is the packet processing since the meter was created.
type Reading struct {
	// Devices is the CPU time for the packets of each device.
	Devices map[Device]time.Duration
	// PerNamespace is the part of that time that was accounted to the processes of a namespace, by the namespace's
	// inode number. Where the kernel accounts interrupts by themselves, that is only what its threads ksoftirqd did.
	PerNamespace map[uint64]time.Duration
}

// Meter traces the kernel's tracepoints, of the whole machine, until it is closed. It costs about a hundred nanoseconds
// per poll of a device (up to 64 packets), which its figures include.
type Meter struct {
	objects meterObjects
	links   []link.Link
	// packets is the link of the program that attributes the packets of a core's backlog queue to devices; nil while
	// they are not attributed.
	packets link.Link
}

// NewMeter starts to measure. Errors: ErrNoRights, ErrUnsupported.
func NewMeter() (*Meter, error) {
	leavesOut, err := clockLeavesOut()
	if err != nil {
		return nil, fmt.Errorf("measure packet processing: %w: look up what clocks of processes leave out: %v",
			ErrUnsupported, err)
	}
	return newMeter(leavesOut)
}

func newMeter(leavesOut bool) (*Meter, error) {
	m := &Meter{}
	spec, err := meterSpec(leavesOut)
	if err != nil {
		return nil, meterError(err)
	}
	if err := spec.LoadAndAssign(&m.objects, nil); err != nil {
		return nil, meterError(err)
	}
	// Nothing is charged before SoftirqEntry is attached, so it is attached last: a softirq whose end is not traced
	// would charge devices with time that is accounted to no namespace.
	for _, program := range []*ebpf.Program{m.objects.SoftirqExit, m.objects.NapiPoll, m.objects.SoftirqEntry} {
		l, err := link.AttachTracing(link.TracingOptions{Program: program})
		if err != nil {
			return nil, errors.Join(meterError(err), m.Close())
		}
		m.links = append(m.links, l)
	}
	return m, nil
}

// meterSpec returns the programs for a kernel whose clocks of processes leave softirqs out, or not.
func meterSpec(leavesOut bool) (*ebpf.CollectionSpec, error) {
	spec, err := loadMeter()
	if err != nil {
		return nil, err
	}
	return spec, spec.Variables[meterVarClockLeavesOut].Set(leavesOut)
}

// Packets sets whether the meter attributes the packets of a core's backlog queue to devices; a new meter does not.
// Devices without a NAPI instance use that queue, as does a veth without GRO or whose peer has TSO: without this, their
// processing is charged to no device. It costs about fifty nanoseconds more per packet. Error: ErrUnsupported.
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
		return fmt.Errorf("measure packet processing: %w (%v): run as root", ErrNoRights, err)
	default:
		return fmt.Errorf("measure packet processing: %w: %v", ErrUnsupported, err)
	}
}

// Read returns the time so far. It does not stop the packets: the figures of different devices may be a poll apart.
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
		return Reading{}, fmt.Errorf("read the CPU time of packet processing: %w", err)
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
