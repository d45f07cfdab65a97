// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"net"
	"net/netip"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/jeoul/jeoul/internal/weigh/lab/measure"
	"github.com/jeoul/jeoul/internal/weigh/lab/topology"
)

// Place is a machine that becomes a host of a lab.
type Place struct {
	Name, Interface string
	IPv4            netip.Addr
	MAC             net.HardwareAddr
	// Dir is the host's own directory there, Executable the file of the jeoul binary.
	Dir, Executable string
	Machine         Machine
}

// Places are the machines of a lab.
type Places struct {
	Balancer         Place
	Clients, Servers []Place
	VIP4             netip.Addr
	// FullNAT is a free address of the segment, for balancers that send from one; it is not valid where there is none.
	FullNAT netip.Addr
	// OwnPorts are the TCP ports that do not belong to the lab: connections between its hosts with such a port at
	// either end are left alone.
	OwnPorts []uint16
	// Close releases the machines.
	Close func() error
	Notes []string
}

// Assemble makes a lab of machines. It has no switch that can be entered, and its devices stay as they are: Offload and
// AcceptXDP change nothing.
func Assemble(places Places) *Lab {
	l := &Lab{VIP4: places.VIP4, FullNAT: places.FullNAT, Notes: places.Notes, remote: &remote{close: places.Close}}
	add := func(p Place, r topology.Role, n int) *Host {
		l.remote.scope.Addresses = append(l.remote.scope.Addresses, p.IPv4)
		return &Host{Name: p.Name, Interface: p.Interface, MAC: p.MAC, IPv4: p.IPv4, Dir: p.Dir,
			lab: l, role: r, number: n, machine: p.Machine, executable: p.Executable}
	}
	l.Balancer = add(places.Balancer, topology.Balancer, 1)
	for i, p := range places.Clients {
		l.Clients = append(l.Clients, add(p, topology.Client, i+1))
	}
	for i, p := range places.Servers {
		l.Servers = append(l.Servers, add(p, topology.Server, i+1))
	}
	l.remote.scope.Addresses = append(l.remote.scope.Addresses, places.VIP4)
	l.remote.scope.OwnPorts = places.OwnPorts
	return l
}

// Remote reports whether the lab's hosts are machines, and not namespaces of this machine.
func (l *Lab) Remote() bool { return l.remote != nil }

// Remote reports whether the host is a machine, and not a namespace of this machine.
func (h *Host) Remote() bool { return h.machine != nil }

// Executable returns the path of the jeoul binary on the host, which in namespaces is the caller's own.
func (h *Host) Executable(own string) string {
	if h.machine != nil {
		return h.executable
	}
	return own
}

// scope selects those of a host's connections that belong to the lab: all of a namespace's.
func (h *Host) scope() measure.Scope {
	if h.lab == nil || h.lab.remote == nil {
		return measure.Scope{}
	}
	return h.lab.remote.scope
}

// Each calls do for hosts, for all at once if they are machines: there, each call is a round trip.
func Each(hosts []*Host, do func(h *Host) error) error {
	if len(hosts) == 0 || !hosts[0].Remote() {
		for _, h := range hosts {
			if err := do(h); err != nil {
				return err
			}
		}
		return nil
	}
	var group errgroup.Group
	for _, h := range hosts {
		group.Go(func() error { return do(h) })
	}
	return group.Wait()
}

// collect performs a task on hosts and returns the result of each, by its name.
func collect[Args, Result any](hosts []*Host, t Task[Args, Result], args func(h *Host) Args) (map[string]Result,
	error) {
	var mu sync.Mutex
	all := map[string]Result{}
	err := Each(hosts, func(h *Host) error {
		got, err := runTask(t, h, args(h))
		mu.Lock()
		defer mu.Unlock()
		all[h.Name] = got
		return err
	})
	return all, err
}
