// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/procfs"

	"github.com/jeoul/jeoul/internal/host/softirq"
)

// MachineStat is what a machine, of which hosts are or are a part, has done since
// it was started.
type MachineStat struct {
	// Boot is the kernel's number of this start of the machine (boot_id), by which
	// hosts that share it are known.
	Boot  string
	Cores int
	// Of the time of all its cores: programs' (User), the kernel's for them (System), the
	// kernel's packet work and what else comes by interrupt (Softirq), and without work,
	// waiting for disks included (Idle).
	User, System, Softirq, Idle time.Duration
	ContextSwitches             uint64
	// Hosts are the names of those on it.
	Hosts []string
}

func readMachine(hosts ...string) (MachineStat, error) {
	fail := func(err error) (MachineStat, error) {
		return MachineStat{}, fmt.Errorf("reading the machine's CPU times: %w", err)
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return fail(err)
	}
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return fail(err)
	}
	stat, err := proc.Stat()
	if err != nil {
		return fail(err)
	}
	spent := func(seconds float64) time.Duration { return time.Duration(seconds * float64(time.Second)) }
	all := stat.CPUTotal
	return MachineStat{
		Boot: strings.TrimSpace(string(boot)), Cores: runtime.NumCPU(), Hosts: hosts,
		User: spent(all.User + all.Nice), System: spent(all.System), Softirq: spent(all.SoftIRQ + all.IRQ),
		Idle:            spent(all.Idle + all.Iowait),
		ContextSwitches: stat.ContextSwitches,
	}, nil
}

// Machines reads the machines that the lab's hosts are on: this one, for namespaces.
func (l *Lab) Machines() ([]MachineStat, error) {
	if l.far == nil {
		var names []string
		for _, h := range l.Hosts() {
			names = append(names, h.Name)
		}
		stat, err := readMachine(names...)
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

// cpuFar is CPU on machines. The packet work of hosts that share one is read by the
// first of them only: each more that traced the kernel would add to what it costs.
func (l *Lab) cpuFar() (map[string]CPU, error) {
	if l.far.meters == nil {
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
		l.far.meters = meters
	}
	read, err := collect(l.Hosts(), usageTask, func(h *Host) bool { return l.far.meters[h.Name] == h.Name })
	if err != nil {
		return nil, err
	}
	all := map[string]CPU{}
	for _, h := range l.Hosts() {
		all[h.Name] = read[h.Name].CPU.withSoftirqs(read[h.Name].Namespace, read[l.far.meters[h.Name]].reading(), false)
	}
	return all, nil
}

// farUsage reads the host's processes, and with meter the machine's packet work.
func (h *Host) farUsage(meter bool) (farUsage, error) {
	u := &h.lab.usage
	if meter {
		h.lab.here.meterOnce.Do(func() { u.meter, h.lab.here.meterErr = softirq.NewMeter() })
	}
	all, err := u.processTimes([]*Host{h})
	if err != nil {
		return farUsage{}, err
	}
	usage := farUsage{CPU: all[h.Name], Namespace: h.inode}
	if u.meter == nil {
		return usage, nil // without, all is billed to processes
	}
	reading, err := u.meter.Read()
	if err != nil {
		return farUsage{}, err
	}
	usage.Billed = map[uint64]int64{}
	for device, work := range reading.Devices {
		usage.Softirqs = append(usage.Softirqs, farSoftirq{device, work.Nanoseconds()})
	}
	for namespace, billed := range reading.Billed {
		usage.Billed[namespace] = billed.Nanoseconds()
	}
	return usage, nil
}

// reading is the machine's packet work, as the meter reads it.
func (f farUsage) reading() softirq.Reading {
	reading := softirq.Reading{Devices: map[softirq.Device]time.Duration{}, Billed: map[uint64]time.Duration{}}
	for _, s := range f.Softirqs {
		reading.Devices[s.Device] = time.Duration(s.Ns)
	}
	for namespace, ns := range f.Billed {
		reading.Billed[namespace] = time.Duration(ns)
	}
	return reading
}
