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

// Spec describes a lab to build.
type Spec struct {
	// Clients and Servers are from 1 to 99.
	Clients, Servers int
	// Attacker adds a host that floods the others.
	Attacker bool
	// CoreQueues gives every device a queue for each core, as network cards have them, and no queueing discipline:
	// frames that one core sends stay on it all the way, and wait for no other core.
	CoreQueues bool
	// BackQueues gives the switch's port to the balancer a queue for each core for the frames that the balancer sends
	// by XDP, for trials in which no frame may be lost. Nothing holds XDP back, and a queue has 256 frames: where all
	// cores share one, the core that works on it may be kept from it while another fills it.
	BackQueues bool
	// Wire makes a lab for loads of packets: the switch forwards in native XDP, and devices are as with CoreQueues.
	// Every host's frames take the same path, whatever balances them. A sender is not held back, and frames that do not
	// fit a device's queue (256 frames) are lost and counted.
	Wire bool
	// Unmetered omits the measurement of the kernel's packet work for each device, which itself costs instructions: CPU
	// times are those of processes, with the packet work that ran on top of them.
	Unmetered bool
	// KernelSettings leaves hosts the settings that the kernel gives new namespaces, except for those that keep the
	// laboratory quiet.
	KernelSettings bool
	// Containers puts the servers behind a bridge on the balancer, as on a container host: clients reach them only
	// through the balancer, and so do the servers' answers.
	Containers bool
	// Balancers, if not 0, is the number of balancers, from 2 to [MaxBalancers], that share the VIP behind a router:
	// each has its own link to the router besides that to the switch, and packets from clients to the VIP go to the
	// router ([Lab.DetourVIP]).
	Balancers int
	// Dir is the work directory. The caller's own directory is made if it is missing, and kept. By default it is a new
	// directory under the directory for temporary files, and is removed with the lab.
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
	// Balancers are all balancers, Balancer first, and Router is the router before them, where the Spec asked for
	// several; otherwise both are empty.
	Balancers  []*Host
	Router     *Host
	VIP4, VIP6 netip.Addr
	// FullNAT is a free address of the segment, for balancers that send from one. On machines it may be missing, and is
	// then not valid.
	FullNAT netip.Addr
	// Notes are facts about this lab that a figure may depend on, such as
	// settings that the kernel refused.
	Notes []string

	spec   Spec
	lock   *claim.Lock
	ownDir bool
	// offload and xdp are the settings of Offload and AcceptXDP.
	offload, xdp bool
	usage        measure.CPUAccounts
	fastPath     *l2switch.FastPath
	wires        *l2switch.Wires
	refused      []string // the settings that the kernel keeps for the machine
	// remote is set for a lab of machines, local for a lab that is this machine.
	remote    *remote
	local     *local
	closeOnce sync.Once
	closeErr  error
}

// The figures that are read from hosts; see package measure.
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

// note records a fact once, however many hosts it applies to.
func (l *Lab) note(s string) {
	if !slices.Contains(l.Notes, s) {
		l.Notes = append(l.Notes, s)
	}
}

// allBalancers returns the balancers of any laboratory.
func (l *Lab) allBalancers() []*Host {
	if len(l.Balancers) > 0 {
		return l.Balancers
	}
	return []*Host{l.Balancer}
}

// remote is the state of a lab of machines.
type remote struct {
	scope measure.Scope
	close func() error
	// meters maps a host's name to the name of the host that measures the packet work of its machine.
	meters map[string]string
}

// local is the state of a lab that is this machine.
type local struct {
	changes *hostnet.Changes
	// atEnd are the functions that are called when the machine is released.
	mu        sync.Mutex
	atEnd     map[string]func() error
	meterOnce sync.Once
	meterErr  error
}

// Errors that callers may test for.
var (
	// ErrNoRights means that building a lab needs root (CAP_SYS_ADMIN and CAP_NET_ADMIN).
	ErrNoRights = netns.ErrNoRights
	// ErrSpec means that the Spec asks for an impossible lab.
	ErrSpec = errors.New("impossible lab")
	// ErrClosed means that the lab, and with it its hosts, is closed.
	ErrClosed = errors.New("the lab is closed")
	// ErrNoSocketDestroy means that this kernel cannot destroy sockets on request; the end of TIME-WAIT must be waited
	// for.
	ErrNoSocketDestroy = measure.ErrNoSocketDestroy
)
