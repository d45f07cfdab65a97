// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"slices"
	"time"

	"github.com/jeoul/jeoul/internal/host/softirq"
	"github.com/jeoul/jeoul/internal/weigh/lab/measure"
)

// CPU returns the CPU time of the host.
func (h *Host) CPU() (CPU, error) {
	all, err := h.lab.CPU()
	return all[h.Name], err
}

// CPUTime returns the Total of CPU.
func (h *Host) CPUTime() (time.Duration, error) {
	c, err := h.CPU()
	return c.Total, err
}

// CPU returns the CPU time of every host, by name, from one walk through /proc.
func (l *Lab) CPU() (map[string]CPU, error) {
	if l.remote != nil {
		return l.cpuRemote()
	}
	return l.usage.Read(measured(l.Hosts()))
}

// Machines reads the machines that the lab's hosts run on: this machine, for namespaces.
func (l *Lab) Machines() ([]MachineStat, error) {
	if l.remote == nil {
		var names []string
		for _, h := range l.Hosts() {
			names = append(names, h.Name)
		}
		stat, err := measure.ReadMachine(names...)
		return []MachineStat{stat}, err
	}
	read, err := collect(l.Hosts(), machineTask, func(*Host) nothing { return nothing{} })
	if err != nil {
		return nil, err
	}
	var all []MachineStat
	for _, h := range l.Hosts() {
		stat := read[h.Name]
		i := slices.IndexFunc(all, func(m MachineStat) bool { return m.Boot == stat.Boot })
		if i < 0 {
			all = append(all, stat)
			continue
		}
		all[i].Hosts = append(all[i].Hosts, h.Name)
	}
	return all, nil
}

// cpuRemote is CPU on machines. Of several hosts on a machine, only the first reads the packet work: each further host
// that traced the kernel would add to the cost of that work.
func (l *Lab) cpuRemote() (map[string]CPU, error) {
	if l.remote.meters == nil {
		machines, err := l.Machines()
		if err != nil {
			return nil, err
		}
		meters := map[string]string{}
		for _, m := range machines {
			for _, name := range m.Hosts {
				meters[name] = m.Hosts[0]
			}
		}
		l.remote.meters = meters
	}
	read, err := collect(l.Hosts(), usageTask, func(h *Host) bool { return l.remote.meters[h.Name] == h.Name })
	if err != nil {
		return nil, err
	}
	all := map[string]CPU{}
	for _, h := range l.Hosts() {
		meter := read[l.remote.meters[h.Name]]
		all[h.Name] = read[h.Name].CPU.WithSoftirqs(read[h.Name].Namespace, meter.reading(), false)
	}
	return all, nil
}

// remoteUsage reads the host's processes, and with meter also the machine's packet work.
func (h *Host) remoteUsage(meter bool) (remoteUsage, error) {
	u := &h.lab.usage
	if meter {
		h.lab.local.meterOnce.Do(func() { u.Meter, h.lab.local.meterErr = softirq.NewMeter() })
	}
	all, err := u.ProcessTimes(measured([]*Host{h}))
	if err != nil {
		return remoteUsage{}, err
	}
	usage := remoteUsage{CPU: all[h.Name], Namespace: h.inode}
	if u.Meter == nil {
		return usage, nil // without the meter, all is billed to processes
	}
	reading, err := u.Meter.Read()
	if err != nil {
		return remoteUsage{}, err
	}
	usage.Billed = map[uint64]int64{}
	for device, work := range reading.Devices {
		usage.Softirqs = append(usage.Softirqs, remoteSoftirq{device, work.Nanoseconds()})
	}
	for namespace, billed := range reading.PerNamespace {
		usage.Billed[namespace] = billed.Nanoseconds()
	}
	return usage, nil
}

// reading returns the machine's packet work in the form of the meter.
func (f remoteUsage) reading() softirq.Reading {
	reading := softirq.Reading{Devices: map[softirq.Device]time.Duration{}, PerNamespace: map[uint64]time.Duration{}}
	for _, s := range f.Softirqs {
		reading.Devices[s.Device] = time.Duration(s.Ns)
	}
	for namespace, ns := range f.Billed {
		reading.PerNamespace[namespace] = time.Duration(ns)
	}
	return reading
}

// remoteUsage is the CPU time of a machine's processes, and of its packet work.
type remoteUsage struct {
	CPU CPU
	// Namespace is the inode number of the host's network namespace.
	Namespace uint64
	// Softirqs is the packet work of the whole machine, by device and namespace.
	Softirqs []remoteSoftirq
	Billed   map[uint64]int64
}

type remoteSoftirq struct {
	Device softirq.Device
	Ns     int64
}

var (
	usageTask = NewTask("cpu", func(_ context.Context, h *Host, meter bool) (remoteUsage, error) {
		return h.remoteUsage(meter)
	})
	machineTask = NewTask("machine", func(_ context.Context, h *Host, _ nothing) (MachineStat, error) {
		return measure.ReadMachine(h.Name)
	})
)

// measured returns the hosts in the form in which their processes are found.
func measured(hosts []*Host) (all []measure.Host) {
	for _, h := range hosts {
		all = append(all, measure.Host{Name: h.Name, Inode: h.inode})
	}
	return all
}
