// SPDX-License-Identifier: Apache-2.0

// Package probe reads what the parts of a laboratory did while a load was on.
package probe

import (
	"fmt"
	"time"

	"github.com/prometheus/procfs"

	"github.com/jeoul/jeoul/internal/lab"
	"github.com/jeoul/jeoul/internal/results"
)

// The kernel's counters that are read, by their names in nstat(8).
const (
	passiveOpens    = "TcpPassiveOpens"
	listenDrops     = "TcpExtListenDrops"
	listenOverflows = "TcpExtListenOverflows"
	datagramsIn     = "UdpInDatagrams"
	datagramsFull   = "UdpRcvbufErrors"
)

// Probe reads a laboratory around a load. CPU times are read last before it and
// first behind it, so that reading the rest is not in them.
type Probe struct {
	lab           *lab.Lab
	before, after snapshot
}

type snapshot struct {
	network network
	usage   usage
}

// network is what every host's network stack has counted.
type network struct {
	connections                 []uint64 // of each server
	datagrams                   []uint64 // of each server
	listenDrops, listenOverflow uint64   // of balancer and servers
	datagramDrops               uint64   // of balancer and servers
	deviceDrops                 uint64   // of all links
}

// usage is what everybody has used of the machine's CPUs.
type usage struct {
	at   time.Time
	cpu  map[string]lab.CPU
	stat procfs.Stat
}

// Reading is what happened between Begin and End.
type Reading struct {
	// Interval is the time between the two readings of the CPU times.
	Interval time.Duration
	// Parts are clients, balancer, backends and the switch.
	Parts []Usage
	// Idle is the time that the machine's cores had nothing to do, in cores.
	Idle float64
	// Machine is what the whole machine did with its cores.
	Machine Machine
	// ContextSwitches are those of the whole machine, per second.
	ContextSwitches float64
	// Connections are those that each server accepted, in the order of the lab.
	Connections []uint64
	// Datagrams are those that each server's programs were handed over UDP, in the
	// same order; DatagramDrops those that found a full socket, of balancer and
	// servers.
	Datagrams     []uint64
	DatagramDrops uint64
	// ListenDrops and ListenOverflows are those of balancer and servers,
	// DeviceDrops those of all links.
	ListenDrops, ListenOverflows, DeviceDrops uint64
}

// Machine is what a machine's cores did, in cores: programs, the kernel for them,
// the kernel's packet work and whatever else comes by interrupt, and nothing.
type Machine struct{ User, System, Softirq, Idle float64 }

// New returns a probe of l.
func New(l *lab.Lab) *Probe { return &Probe{lab: l} }

// Begin reads the laboratory before a load.
func (p *Probe) Begin() (err error) {
	if p.before.network, err = readNetwork(p.lab); err != nil {
		return err
	}
	p.before.usage, err = readUsage(p.lab)
	return err
}

// End reads the laboratory behind a load.
func (p *Probe) End() (err error) {
	if p.after.usage, err = readUsage(p.lab); err != nil {
		return err
	}
	p.after.network, err = readNetwork(p.lab)
	return err
}

// Reading returns what happened in between.
func (p *Probe) Reading() Reading {
	from, to := p.before, p.after
	interval := to.usage.at.Sub(from.usage.at)
	r := Reading{
		Interval:        interval,
		ListenDrops:     to.network.listenDrops - from.network.listenDrops,
		ListenOverflows: to.network.listenOverflow - from.network.listenOverflow,
		DeviceDrops:     to.network.deviceDrops - from.network.deviceDrops,
		DatagramDrops:   to.network.datagramDrops - from.network.datagramDrops,
	}
	for i := range to.network.connections {
		r.Connections = append(r.Connections, to.network.connections[i]-from.network.connections[i])
		r.Datagrams = append(r.Datagrams, to.network.datagrams[i]-from.network.datagrams[i])
	}
	if seconds := interval.Seconds(); seconds > 0 {
		r.Machine = machine(from.usage.stat.CPUTotal, to.usage.stat.CPUTotal, seconds)
		r.Idle = r.Machine.Idle
		r.ContextSwitches = float64(to.usage.stat.ContextSwitches-from.usage.stat.ContextSwitches) / seconds
	}
	for _, part := range p.parts() {
		r.Parts = append(r.Parts, part.usage(from.usage, to.usage, interval))
	}
	return r
}

// machine is what happened between two readings, so many seconds apart.
func machine(from, to procfs.CPUStat, seconds float64) Machine {
	spent := func(of func(procfs.CPUStat) float64) float64 { return max(of(to)-of(from), 0) / seconds }
	return Machine{
		User:    spent(func(s procfs.CPUStat) float64 { return s.User + s.Nice }),
		System:  spent(func(s procfs.CPUStat) float64 { return s.System }),
		Softirq: spent(func(s procfs.CPUStat) float64 { return s.SoftIRQ + s.IRQ }),
		Idle:    spent(func(s procfs.CPUStat) float64 { return s.Idle + s.Iowait }),
	}
}

// hosts is a part and the machines that it is.
type hosts struct {
	part  results.Part
	hosts []*lab.Host
}

func (p *Probe) parts() []hosts {
	return []hosts{
		{results.SaturatedClient, p.lab.Clients},
		{results.SaturatedBalancer, []*lab.Host{p.lab.Balancer}},
		{results.SaturatedBackend, p.lab.Servers},
		{PartSwitch, []*lab.Host{p.lab.Switch}},
	}
}

func (h hosts) usage(from, to usage, interval time.Duration) Usage {
	u := Usage{Part: h.part}
	if interval <= 0 {
		return u
	}
	for _, host := range h.hosts {
		used := to.cpu[host.Name].Sub(from.cpu[host.Name])
		u.Cores += used.Total.Seconds() / interval.Seconds()
		if thread, time := used.Busiest(); time.Seconds()/interval.Seconds() > u.Busiest {
			u.Busiest, u.BusiestName = time.Seconds()/interval.Seconds(), thread+" on "+host.Name
		}
	}
	return u
}

func readUsage(l *lab.Lab) (usage, error) {
	cpu, err := l.CPU()
	if err != nil {
		return usage{}, err
	}
	at := time.Now()
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return usage{}, fmt.Errorf("reading the machine's CPU times: %w", err)
	}
	stat, err := proc.Stat()
	if err != nil {
		return usage{}, fmt.Errorf("reading the machine's CPU times: %w", err)
	}
	return usage{at: at, cpu: cpu, stat: stat}, nil
}

func readNetwork(l *lab.Lab) (network, error) {
	var n network
	for i, host := range append([]*lab.Host{l.Balancer}, l.Servers...) {
		counters, err := host.NetStat(passiveOpens, listenDrops, listenOverflows, datagramsIn, datagramsFull)
		if err != nil {
			return network{}, err
		}
		n.listenDrops += counters[listenDrops]
		n.listenOverflow += counters[listenOverflows]
		n.datagramDrops += counters[datagramsFull]
		if i > 0 {
			n.connections = append(n.connections, counters[passiveOpens])
			n.datagrams = append(n.datagrams, counters[datagramsIn])
		}
	}
	for _, host := range l.Hosts() {
		drops, err := host.DeviceDrops()
		if err != nil {
			return network{}, err
		}
		n.deviceDrops += drops.Total()
	}
	return n, nil
}
