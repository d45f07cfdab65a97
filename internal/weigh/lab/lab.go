// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"net/netip"
	"slices"
	"sync"

	"github.com/jeoul/jeoul/internal/host/hostnet"
	"github.com/jeoul/jeoul/internal/weigh/lab/claim"
	"github.com/jeoul/jeoul/internal/weigh/lab/l2switch"
	"github.com/jeoul/jeoul/internal/weigh/lab/measure"
	"github.com/jeoul/jeoul/internal/weigh/lab/netns"
)

// Spec describes a lab that is to be built.
type Spec struct {
	// Clients and Servers are from 1 to 99.
	Clients, Servers int
	// Attacker adds a host that floods the others.
	Attacker bool
	// CoreQueues gives every device a queue for each core, and each core its own,
	// as network cards have them, and no queueing discipline: what one core sends
	// stays on it all the way, and waits for nothing that another core does.
	CoreQueues bool
	// BackQueues gives the switch's port to the balancer a queue for each core for what the
	// balancer sends by XDP, for trials in which no frame may be lost. Nothing holds XDP back,
	// and a queue has 256 frames: where all cores share one, the core that works on it may
	// be kept from it while another fills it.
	BackQueues bool
	// Wire makes a lab for loads of packets: the switch forwards in native XDP, and
	// devices are as with CoreQueues. Every host's frames have the same way, whatever
	// balances them; a sender is not held back, and what does not fit a device's queue
	// (256 frames) is lost and counted.
	Wire bool
	// Unmetered leaves out what measures the kernel's packet work device by device, and
	// itself costs instructions: CPU times are those of processes, with the packet work
	// that ran on top of them.
	Unmetered bool
	// KernelSettings leaves hosts the settings that the kernel gives new namespaces,
	// but for those that keep the laboratory quiet.
	KernelSettings bool
	// Containers puts the servers behind a bridge on the balancer, as a container host has
	// them: clients reach them through the balancer only, and so do their answers.
	Containers bool
	// Balancers, where it is not 0, is how many balancers share the VIP behind a router, of 2 to
	// [MaxBalancers]: each has a link to the router of its own besides that to the switch, and what
	// clients send to the VIP goes to the router ([Lab.DetourVIP]).
	Balancers int
	// Dir is the work directory. The caller's own is made if it is missing, and
	// kept; by default it is a fresh one under the directory for temporary
	// files, and goes with the lab.
	Dir string
}

// Lab is a laboratory. Its methods may be called from several goroutines.
type Lab struct {
	// ID is four hexadecimal digits, unique among the labs of this machine.
	ID               string
	Dir              string
	Switch, Balancer *Host
	Clients, Servers []*Host
	// Attacker is nil where the Spec asked for none.
	Attacker *Host
	// Balancers are all of them, Balancer first, and Router is before them, where the Spec asked
	// for several; else there are none.
	Balancers  []*Host
	Router     *Host
	VIP4, VIP6 netip.Addr
	// FullNAT is a free address of the segment, for balancers that send from one; on
	// machines it may be missing, and then is not valid.
	FullNAT netip.Addr
	// Notes are facts about this lab that a figure may depend on, such as
	// settings that the kernel refused.
	Notes []string

	spec   Spec
	lock   *claim.Lock
	ownDir bool
	// offload and xdp are the switches that Offload and AcceptXDP set.
	offload, xdp bool
	usage        measure.Book
	fastPath     *l2switch.FastPath
	wires        *l2switch.Wires
	refused      []string // the settings that the kernel keeps for the machine
	// far is set for a lab of machines, here for the one that this machine is.
	far       *far
	here      *here
	closeOnce sync.Once
	closeErr  error
}

// The figures that are read of hosts; see package measure.
type (
	CPU         = measure.CPU
	Drops       = measure.Drops
	MachineStat = measure.MachineStat
	SocketCount = measure.SocketCount
	Traffic     = measure.Traffic
)

// Hosts returns the switch, the balancers, the clients, the servers, the attacker and the router.
func (l *Lab) Hosts() []*Host {
	hosts := []*Host{l.Switch, l.Balancer}
	if len(l.Balancers) > 0 {
		hosts = append(hosts, l.Balancers[1:]...)
	}
	hosts = append(append(append(hosts, l.Clients...), l.Servers...), l.Attacker, l.Router)
	return slices.DeleteFunc(hosts, func(h *Host) bool { return h == nil })
}

// note records a fact once, however many hosts it holds for.
func (l *Lab) note(s string) {
	if !slices.Contains(l.Notes, s) {
		l.Notes = append(l.Notes, s)
	}
}

// allBalancers are those of any laboratory.
func (l *Lab) allBalancers() []*Host {
	if len(l.Balancers) > 0 {
		return l.Balancers
	}
	return []*Host{l.Balancer}
}

// far is the state of a lab of machines.
type far struct {
	scope measure.Scope
	close func() error
	// meters maps a host's name to that of the host that measures the packet work of
	// its machine.
	meters map[string]string
}

// here is the state of a lab that is this machine.
type here struct {
	changes *hostnet.Changes
	// atEnd are done when the machine is released.
	mu        sync.Mutex
	atEnd     map[string]func() error
	meterOnce sync.Once
	meterErr  error
}

// Errors that callers may test for.
var (
	// ErrNoRights: building a lab needs root (CAP_SYS_ADMIN and CAP_NET_ADMIN).
	ErrNoRights = netns.ErrNoRights
	// ErrSpec: the Spec asks for something that a lab cannot be.
	ErrSpec = errors.New("impossible lab")
	// ErrClosed: the lab, and so its hosts, are gone.
	ErrClosed = errors.New("the lab is closed")
	// ErrNoSocketDestroy: this kernel cannot destroy sockets on request; TIME-WAIT must be waited for.
	ErrNoSocketDestroy = measure.ErrNoSocketDestroy
)
