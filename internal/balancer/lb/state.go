// SPDX-License-Identifier: Apache-2.0

package lb

import (
	"bytes"
	"errors"
	"net"
	"net/netip"
	"slices"
	"unsafe"
)

// ErrTooLarge is a data plane's error for a State that does not fit into the memory that is left.
var ErrTooLarge = errors.New("not enough memory")

// State is everything that a data plane must know. Its slices must not be changed after the
// data plane has had it: services that share them with the state before are taken for
// unchanged there, without another look.
type State struct {
	// Services are of PacketModes only.
	Services []RoutedService
	// Pool is where full NAT takes source addresses and ports from.
	Pool Pool
	// Hairpin has the clients of mode NAT that are served through full NAT, and the ports for that.
	Hairpin Hairpin
	// Interfaces are the names of those that packets are to be taken on, each once; none means where they are, and at
	// first the interfaces that the data plane was opened with.
	Interfaces []string
	// Hook is where packets are to be taken; "" means where they are, and at first the hook that the data plane was
	// opened with.
	Hook Hook
	// Local is the directory of the control group (cgroup v2) whose sockets get their backends when they
	// connect or send; empty: no sockets do.
	Local string
	// Fresh: no packet has come for the tables of before, because the VIPs are not announced yet. So a change of them
	// begins no transition: flows that come later were begun at other balancers.
	Fresh bool
}

// Pool is a set of source addresses and ports. TCP and UDP ports FirstPort..LastPort of each
// address are full NAT's: packets to them that belong to no flow are dropped.
type Pool struct {
	// Addresses belong to the balancer, whose new flows get their ports.
	Addresses []netip.Addr
	// Others belong to other balancers: flows that come from there go on, and replies to them are turned back, but no
	// new flow gets a port of theirs. Where there are some, packets that belong to no flow known here are not answered,
	// for another balancer may know it.
	Others              []netip.Addr
	FirstPort, LastPort uint16
}

// All are the balancer's addresses, and then those of others.
func (p Pool) All() []netip.Addr { return slices.Concat(p.Addresses, p.Others) }

// Equal reports whether two pools have the same addresses, in the same order, and ports.
func (p Pool) Equal(o Pool) bool {
	return p.FirstPort == o.FirstPort && p.LastPort == o.LastPort && slices.Equal(p.Addresses, o.Addresses) &&
		slices.Equal(p.Others, o.Others)
}

// Has reports whether the address is one of the pool's, the balancer's or another's.
func (p Pool) Has(address netip.Addr) bool {
	return slices.Contains(p.Addresses, address) || slices.Contains(p.Others, address)
}

// RoutedService is a service, and how its backends are reached.
type RoutedService struct {
	Service
	// Paths[i] leads to Backends[i]. A backend without a usable path gets no
	// traffic.
	Paths []Path
	// Observed are the observed states of Backends.
	Observed Observations
	// HasHairpin: another service serves its near clients; see State.WithHairpins.
	HasHairpin bool
}

// Reachable reports whether packets can be sent to backend i. In mode ModeProxy the kernel sends them, and health
// checks find the faults of its paths.
func (s RoutedService) Reachable(i int) bool {
	return s.Mode.Proxied() || i < len(s.Paths) && s.Paths[i].Usable()
}

// Up reports whether packets of the service's flows may be sent to backend i: it is reachable, and goes on with its
// flows if it is unhealthy.
func (s RoutedService) Up(i int) bool {
	o := s.Observed.Of(i)
	return s.Reachable(i) && (o.Unhealthy == "" || s.Checks.OnDown.Keeps() || o.Ejected && s.Protocol == TCP)
}

// Serves reports whether a backend of the service can be reached and is healthy. One that takes no new flow serves
// those that it has.
func (s RoutedService) Serves() bool {
	for i := range s.Backends {
		if s.Observed.Of(i).Unhealthy == "" && s.Reachable(i) {
			return true
		}
	}
	return false
}

// Admits reports whether backend i takes new flows while it is up.
func (s *RoutedService) Admits(i int) bool {
	return s.Backends[i].TakesFlows() && s.Observed.Of(i).TakesFlows()
}

// TakesFlows reports whether backend i takes new flows.
func (s RoutedService) TakesFlows(i int) bool { return s.Up(i) && s.Admits(i) }

// Same reports whether two services are the same in all that a data plane knows of them. Slices that are the same
// memory are the same: see State.
func (s *RoutedService) Same(o *RoutedService) bool {
	a, b := &s.Service, &o.Service
	return a.Name == b.Name && a.VIP == b.VIP && a.Port == b.Port && a.Protocol == b.Protocol &&
		a.Mode == b.Mode && a.Scheduler == b.Scheduler && a.Hash == b.Hash && a.TableSize == b.TableSize &&
		a.Persistence == b.Persistence && a.Limits == b.Limits && a.Transition == b.Transition &&
		a.DSCP == b.DSCP && a.MSS == b.MSS && a.Checks.OnDown == b.Checks.OnDown &&
		slices.Equal(a.Untranslated, b.Untranslated) && a.SameClients(b) &&
		a.IsHairpin == b.IsHairpin && s.HasHairpin == o.HasHairpin &&
		SameBackends(a.Backends, b.Backends) &&
		s.Observed.Equal(o.Observed) && sameSlice(s.Paths, o.Paths, Path.Equal)
}

// SameBackends reports whether two lists have the same backends. Where they are the same memory, it looks at none.
func SameBackends(a, b []Backend) bool {
	return sameSlice(a, b, func(x, y Backend) bool { return x == y })
}

// Identical reports whether two services are copies of one, with the same memory in their slices. Others may be equal
// all the same.
func Identical(a, b *Service) bool {
	const size = unsafe.Sizeof(Service{})
	return *(*[size]byte)(unsafe.Pointer(a)) == *(*[size]byte)(unsafe.Pointer(b))
}

func sameSlice[T any](a, b []T, same func(T, T) bool) bool {
	if len(a) != len(b) {
		return false
	}
	return len(a) == 0 || &a[0] == &b[0] || slices.EqualFunc(a, b, same)
}

// Path is how packets reach an address.
type Path struct {
	// Interface is the index of the interface that they leave by; 0 means the one
	// that they came in on.
	Interface int
	// MAC is the next hop's, 6 bytes; nil while it is unknown: nothing is sent.
	MAC net.HardwareAddr
	// Source is the MAC address of that interface, 6 bytes.
	Source net.HardwareAddr
	// MTU is the size of the largest IP packet, in bytes; 0 means DefaultMTU.
	MTU uint16
	// Local is the address that the host itself would send from: the source of
	// tunnel packets, of the backend's family.
	Local netip.Addr
}

// MACLength is the length of an Ethernet address in bytes.
const MACLength = 6

// Usable reports whether packets can be sent along the path.
func (p Path) Usable() bool { return len(p.MAC) == MACLength }

// LargestPacket is the size of the largest IP packet that fits, in bytes.
func (p Path) LargestPacket() uint16 {
	if p.MTU == 0 {
		return DefaultMTU
	}
	return p.MTU
}

// Equal reports whether two paths are the same.
func (p Path) Equal(o Path) bool {
	return p.Interface == o.Interface && p.MTU == o.MTU && p.Local == o.Local &&
		bytes.Equal(p.MAC, o.MAC) && bytes.Equal(p.Source, o.Source)
}
