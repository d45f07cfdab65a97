// SPDX-License-Identifier: Apache-2.0

// Package probe reads the counters and the CPU use of a laboratory's parts while a load runs.
package probe

import (
	"slices"
	"sync"
	"time"

	"github.com/jeoul/jeoul/internal/weigh/lab"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// Counters of the kernel, by their names in nstat(8).
const (
	passiveOpens    = "TcpPassiveOpens"
	listenDrops     = "TcpExtListenDrops"
	listenOverflows = "TcpExtListenOverflows"
	datagramsIn     = "UdpInDatagrams"
	datagramsFull   = "UdpRcvbufErrors"
)

// Probe reads a laboratory before and after a load. It reads CPU times last before the load and first after it, so that
// they do not include the other readings.
type Probe struct {
	lab           *lab.Lab
	before, after snapshot
}

type snapshot struct {
	network network
	usage   usage
}

// network has the counters of the network stacks of all hosts.
type network struct {
	connections                 []uint64 // of each server
	datagrams                   []uint64 // of each server
	listenDrops, listenOverflow uint64   // of balancer and servers
	datagramDrops               uint64   // of balancer and servers
	deviceDrops                 uint64   // of all links
}

// usage has the use of the machines' CPUs by all hosts.
type usage struct {
	at       time.Time
	cpu      map[string]lab.CPU
	machines []lab.MachineStat
}

// Reading has the differences between Begin and End.
type Reading struct {
	// Interval is the time between the two readings of the CPU times.
	Interval time.Duration
	// Parts are clients, balancer, backends and the switch.
	Parts []Usage
	// Machines are the machines of the parts; for namespaces, one machine.
	Machines []MachineParts
	// Idle is the time that the machines' cores were idle, in cores.
	Idle float64
	// Machine is the use of the cores of all machines.
	Machine Machine
	// ContextSwitches is the number of context switches of all machines, per second.
	ContextSwitches float64
	// Connections is the number of connections that each server accepted, in the order of the lab.
	Connections []uint64
	// Datagrams is the number of UDP datagrams that each server's programs received, in the same order. DatagramDrops
	// is the number of those dropped because a socket was full, at balancer and servers.
	Datagrams     []uint64
	DatagramDrops uint64
	// ListenDrops and ListenOverflows are those of balancer and servers, DeviceDrops those of all links.
	ListenDrops, ListenOverflows, DeviceDrops uint64
}

// Machine is the use of a machine's cores, in cores: by programs, by the kernel on their behalf, by the kernel's packet
// work and other interrupts, and idle.
type Machine struct{ User, System, Softirq, Idle float64 }

// New returns a probe of a laboratory.
func New(l *lab.Lab) *Probe { return &Probe{lab: l} }

// Begin reads the laboratory before a load.
func (p *Probe) Begin() (err error) {
	if p.before.network, err = readNetwork(p.lab); err != nil {
		return err
	}
	p.before.usage, err = readUsage(p.lab)
	return err
}

// End reads the laboratory after a load.
func (p *Probe) End() (err error) {
	if p.after.usage, err = readUsage(p.lab); err != nil {
		return err
	}
	p.after.network, err = readNetwork(p.lab)
	return err
}

// Reading returns the differences between Begin and End.
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
	for i := range to.usage.machines {
		m := p.machine(from.usage, to.usage, i, interval)
		r.Machines = append(r.Machines, m)
		r.Machine = r.Machine.add(m.Machine)
		if seconds := interval.Seconds(); seconds > 0 {
			switches := to.usage.machines[i].ContextSwitches - from.usage.machines[i].ContextSwitches
			r.ContextSwitches += float64(switches) / seconds
		}
	}
	r.Idle = r.Machine.Idle
	for _, part := range p.parts() {
		r.Parts = append(r.Parts, part.usage(from.usage, to.usage, interval))
	}
	return r
}

// Cores returns the number of cores of all machines together.
func (r Reading) Cores() float64 {
	all := 0.0
	for _, m := range r.Machines {
		all += m.Cores
	}
	return all
}

// add returns the sum of two machines.
func (m Machine) add(other Machine) Machine {
	return Machine{m.User + other.User, m.System + other.System, m.Softirq + other.Softirq, m.Idle + other.Idle}
}

// MachineParts is a machine with one or more parts of a laboratory.
type MachineParts struct {
	Machine
	// Cores is the number of the machine's cores.
	Cores float64
	// Parts are the parts of the laboratory with a host on the machine.
	Parts []Usage
}

// machine returns the CPU use of machine number i between two readings.
func (p *Probe) machine(from, to usage, i int, interval time.Duration) MachineParts {
	before, after := from.machines[i], to.machines[i]
	m := MachineParts{Cores: float64(after.Cores)}
	if seconds := interval.Seconds(); seconds > 0 {
		spent := func(from, to time.Duration) float64 { return max((to-from).Seconds(), 0) / seconds }
		m.Machine = Machine{
			User: spent(before.User, after.User), System: spent(before.System, after.System),
			Softirq: spent(before.Softirq, after.Softirq), Idle: spent(before.Idle, after.Idle),
		}
	}
	for _, part := range p.parts() {
		part.hosts = slices.DeleteFunc(part.hosts, func(h *lab.Host) bool {
			return !slices.Contains(after.Hosts, h.Name)
		})
		if len(part.hosts) > 0 {
			m.Parts = append(m.Parts, part.usage(from, to, interval))
		}
	}
	return m
}

// hosts is a part of the laboratory, and its hosts.
type hosts struct {
	part  results.Part
	hosts []*lab.Host
}

func (p *Probe) parts() []hosts {
	all := []hosts{
		{results.SaturatedClient, slices.Clone(p.lab.Clients)},
		{results.SaturatedBalancer, []*lab.Host{p.lab.Balancer}},
		{results.SaturatedBackend, slices.Clone(p.lab.Servers)},
	}
	if p.lab.Switch != nil {
		all = append(all, hosts{PartSwitch, []*lab.Host{p.lab.Switch}})
	}
	return all
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
	machines, err := l.Machines()
	if err != nil {
		return usage{}, err
	}
	return usage{at: at, cpu: cpu, machines: machines}, nil
}

func readNetwork(l *lab.Lab) (network, error) {
	n := network{connections: make([]uint64, len(l.Servers)), datagrams: make([]uint64, len(l.Servers))}
	var mu sync.Mutex
	err := lab.Each(append([]*lab.Host{l.Balancer}, l.Servers...), func(host *lab.Host) error {
		counters, err := host.NetStat(passiveOpens, listenDrops, listenOverflows, datagramsIn, datagramsFull)
		mu.Lock()
		defer mu.Unlock()
		n.listenDrops += counters[listenDrops]
		n.listenOverflow += counters[listenOverflows]
		n.datagramDrops += counters[datagramsFull]
		if i := slices.Index(l.Servers, host); i >= 0 {
			n.connections[i], n.datagrams[i] = counters[passiveOpens], counters[datagramsIn]
		}
		return err
	})
	if err != nil {
		return network{}, err
	}
	err = lab.Each(l.Hosts(), func(host *lab.Host) error {
		drops, err := host.DeviceDrops()
		mu.Lock()
		defer mu.Unlock()
		n.deviceDrops += drops.Total()
		return err
	})
	if err != nil {
		return network{}, err
	}
	return n, nil
}
