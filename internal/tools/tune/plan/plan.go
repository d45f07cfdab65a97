// SPDX-License-Identifier: Apache-2.0

// Package plan proposes which cores of a host process packets of a network card and which run programs. It only
// computes, from numbers.
package plan

import (
	"fmt"
	"slices"

	"k8s.io/utils/cpuset"
)

// Topology describes a machine's processors.
type Topology struct {
	// Nodes are the CPUs that are online, by NUMA node. A machine without NUMA has node 0.
	Nodes map[int]cpuset.CPUSet
	// Siblings has the threads of a core, by each of its CPUs. A CPU without an entry is a core of its own.
	Siblings map[int]cpuset.CPUSet
}

// Online returns all CPUs that are online.
func (t Topology) Online() cpuset.CPUSet {
	all := cpuset.New()
	for _, node := range t.Nodes {
		all = all.Union(node)
	}
	return all
}

// NodeOf returns the node of a CPU, 0 if it is in none.
func (t Topology) NodeOf(cpu int) int {
	for node, cpus := range t.Nodes {
		if cpus.Contains(cpu) {
			return node
		}
	}
	return 0
}

// core returns the CPUs of a CPU's core.
func (t Topology) core(cpu int) cpuset.CPUSet {
	if core, ok := t.Siblings[cpu]; ok && core.Contains(cpu) {
		return core
	}
	return cpuset.New(cpu)
}

// firstThreads returns the first CPU of each core in a set, in order.
func (t Topology) firstThreads(set cpuset.CPUSet) []int {
	return slices.DeleteFunc(set.List(), func(cpu int) bool {
		return t.core(cpu).Intersection(set).List()[0] != cpu
	})
}

// withSiblings returns a set with the other threads of its cores added.
func (t Topology) withSiblings(set cpuset.CPUSet) cpuset.CPUSet {
	for _, cpu := range set.List() {
		set = set.Union(t.core(cpu))
	}
	return set
}

// Card is the network card whose packets the plan distributes.
type Card struct {
	Name string
	// Node is the NUMA node; -1 if it is not known.
	Node int
	// MaxQueues is the maximum number of combined queues, and Queues the current number.
	MaxQueues, Queues int
	// RSSEntries is the length of the indirection table; 0 if unknown.
	RSSEntries int
	// IRQs are the interrupts of the queues, in the queues' order; none for a virtual card.
	IRQs []int
}

// Share is the share of a machine that packets get.
type Share string

// The shares.
const (
	// Most gives packets every core of the card's node except the system's core: a balancer in eBPF runs nothing else.
	Most Share = "most"
	// Quarter gives packets a quarter of the cores, because a program answers them.
	Quarter Share = "quarter"
)

// Plan assigns the CPUs.
type Plan struct {
	Card Card
	// Packets are the CPUs that process packets, one for each queue, in the queues' order.
	Packets []int
	// Programs run everything else that this host is for. System runs the rest of the system.
	Programs, System cpuset.CPUSet
	// Idle are the other threads of the packet cores. Processes there would take time from the core's packets.
	Idle cpuset.CPUSet
	// Shared means that there are too few cores to divide. Each core processes packets and runs programs.
	Shared bool
	// Notes give the reasons, for the operator.
	Notes []string
	top   Topology
}

// fewCores is the minimum number of cores for dividing them.
const fewCores = 4

// Make proposes a plan for the card. If given is not empty, it has the CPUs that must process packets. An error
// explains why given is not possible.
func Make(top Topology, card Card, share Share, given cpuset.CPUSet) (*Plan, error) {
	p := &Plan{Card: card, top: top, Programs: cpuset.New(), System: cpuset.New(), Idle: cpuset.New()}
	online := top.Online()
	if online.IsEmpty() {
		return nil, fmt.Errorf("plan the cores: no CPU is known to be online")
	}
	if rest := given.Difference(online); !rest.IsEmpty() {
		return nil, fmt.Errorf("plan the cores: CPUs %v are not online here: use some of %v", rest, online)
	}
	cores := top.firstThreads(online)
	switch {
	case !given.IsEmpty():
		p.Packets = given.List()
		p.note("the CPUs that take packets were given")
	case len(cores) < fewCores:
		p.share(cores)
		return p, nil
	default:
		p.part(cores, share)
	}
	p.fit()
	p.rest(online)
	return p, nil
}

func (p *Plan) note(format string, args ...any) {
	p.Notes = append(p.Notes, fmt.Sprintf(format, args...))
}

// share makes every core do everything.
func (p *Plan) share(cores []int) {
	p.Shared = true
	p.Packets = cores
	p.Programs = p.top.Online()
	p.note("fewer than %d cores: parting them would leave one side too little, so each takes packets and runs programs",
		fewCores)
	p.limit()
}

// part selects the packets' cores: those of the card's node first, and never the core of CPU 0, which runs work that
// the kernel does not move (timers, the boot CPU's work).
func (p *Plan) part(cores []int, share Share) {
	system := p.top.core(cores[0])
	p.System = system
	near, far := []int{}, []int{}
	for _, cpu := range cores {
		switch {
		case system.Contains(cpu):
		case p.Card.Node < 0 || p.top.NodeOf(cpu) == p.Card.Node:
			near = append(near, cpu)
		default:
			far = append(far, cpu)
		}
	}
	if p.Card.Node < 0 && len(p.top.Nodes) > 1 {
		p.note("the card's NUMA node is not known: any node's cores are as good")
	}
	want := len(cores) / 4
	if share == Most {
		// On a host with one node, a core remains for programs: the control plane's.
		want = len(near)
		if len(far) == 0 {
			want = max(want-1, 1)
		}
	}
	if len(near) == 0 {
		near = far
		p.note("no core but the system's is on the card's node: packets cross to another")
	}
	p.Packets = near[:min(max(want, 1), len(near))]
	p.limit()
}

// limit limits the packets' CPUs to the card's number of queues.
func (p *Plan) limit() {
	if most := p.Card.MaxQueues; most > 0 && len(p.Packets) > most {
		p.note("%s has %d queues at most: no more cores than that take its packets", p.Card.Name, most)
		p.Packets = p.Packets[:most]
	}
}

// fit drops the CPUs that would bring nothing because of the indirection table: the busiest of n queues gets
// ceil(entries/n) of its entries, which limits the throughput of all.
func (p *Plan) fit() {
	n, entries := len(p.Packets), p.Card.RSSEntries
	if entries < n || entries == 0 {
		return
	}
	busiest := (entries + n - 1) / n
	if enough := (entries + busiest - 1) / busiest; enough < n {
		p.note("%d queues: of the %d entries of the card's indirection table the busiest gets %d, and with %d queues it would get as many",
			enough, entries, busiest, n)
		p.Packets = p.Packets[:enough]
	}
}

// rest assigns the remaining CPUs to programs.
func (p *Plan) rest(online cpuset.CPUSet) {
	packets := cpuset.New(p.Packets...)
	p.Idle = p.top.withSiblings(packets).Intersection(online).Difference(packets)
	p.System = p.System.Difference(packets)
	p.Programs = online.Difference(packets).Difference(p.Idle).Difference(p.System)
	if p.Programs.IsEmpty() {
		p.Programs = p.System
	}
	if p.Programs.IsEmpty() {
		p.Programs = online
		p.note("every core takes packets: programs share them")
	}
}

// PacketSet returns Packets as a set.
func (p *Plan) PacketSet() cpuset.CPUSet { return cpuset.New(p.Packets...) }

// Queues returns the number of queues that the card should have.
func (p *Plan) Queues() int {
	if p.Card.MaxQueues > 0 {
		return min(len(p.Packets), p.Card.MaxQueues)
	}
	return len(p.Packets)
}

// CPUOf returns the CPU that takes the packets of a queue.
func (p *Plan) CPUOf(queue int) int { return p.Packets[queue%len(p.Packets)] }

// Isolated returns the CPUs to keep free of programs and the kernel's housekeeping. There are none if cores are shared.
func (p *Plan) Isolated() cpuset.CPUSet {
	if p.Shared {
		return cpuset.New()
	}
	return p.PacketSet().Union(p.Idle)
}

// Housekeeping returns all CPUs that are not isolated.
func (p *Plan) Housekeeping() cpuset.CPUSet { return p.top.Online().Difference(p.Isolated()) }

// Spread returns the CPUs that process a queue's packets after the card's interrupt (RPS). If there are fewer queues
// than CPUs for packets, each queue gets its part of the CPUs. Otherwise there are none, because the queue's own CPU
// processes its packets already.
func (p *Plan) Spread(queue int) cpuset.CPUSet {
	queues := p.Queues()
	if p.Card.Queues > 0 {
		queues = min(queues, p.Card.Queues)
	}
	if queues == 0 || queues >= len(p.Packets) {
		return cpuset.New()
	}
	set := cpuset.New()
	for i, cpu := range p.Packets {
		if i%queues == queue%queues {
			set = set.Union(cpuset.New(cpu))
		}
	}
	return set
}

// Senders returns the CPUs that send by a queue (XPS): the queue's own CPU, and its part of the other CPUs. Those are
// divided among the queues of their node, or among all queues if their node has none.
func (p *Plan) Senders(queue int) cpuset.CPUSet {
	queues := p.Queues()
	if queues <= 1 {
		return p.top.Online()
	}
	own := p.Packets[:queues]
	set := cpuset.New(p.CPUOf(queue))
	for _, node := range p.top.Nodes {
		near := p.queuesOn(node)
		for i, cpu := range node.Difference(cpuset.New(own...)).List() {
			if near[i%len(near)] == queue {
				set = set.Union(cpuset.New(cpu))
			}
		}
	}
	return set
}

// queuesOn lists the queues whose CPUs are on a node, or all queues if there are none.
func (p *Plan) queuesOn(node cpuset.CPUSet) []int {
	var near, all []int
	for queue := range p.Queues() {
		all = append(all, queue)
		if node.Contains(p.CPUOf(queue)) {
			near = append(near, queue)
		}
	}
	if len(near) == 0 {
		return all
	}
	return near
}
