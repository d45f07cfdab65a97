// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	"iter"
	"net/netip"
	"reflect"
	"slices"

	"github.com/jeoul/jeoul/internal/balancer/config"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// Layout is a configuration with its indexes. It is made once for each configuration, so that a change of one backend
// does not walk over all of them.
type Layout struct {
	// Config is the configuration.
	Config *config.Config
	// Addresses are the addresses of the first interface: the VIPs and the addresses of full NAT, each once.
	Addresses []netip.Addr
	// Backends are the backends' addresses, each once, in the configuration's order, and Number is the inverse: the
	// number of each address.
	Backends []netip.Addr
	Number   map[netip.Addr]int
	// At[i][j] is the number of backend j of service i, and Uses[n] are the
	// backends of number n.
	At   [][]int
	Uses [][]Use
	// Named and Keyed are the indexes of services, by name and by key.
	Named map[string]int
	Keyed map[lb.ServiceKey]int
	// Pooled are the endpoints that full NAT sends to, in the configuration's order, and PooledAt has the index of
	// each.
	Pooled   []Pooled
	PooledAt map[Endpoint]int
	// plain[i]: the backends of service i are as configured, unless operations change them.
	plain []bool
	// Ejecting are the indexes of the services with outlier detection.
	Ejecting []int
	// Withdrawable has the services of each VIP that is withdrawn while none of these has a backend that serves; nil if
	// there is no such VIP.
	Withdrawable map[netip.Addr][]int
	// announced has, for each VIP that is announced to routers, the services that it is announced for; nil if there is
	// none.
	announced map[netip.Addr][]int
	// Cgroup is the directory of the control group whose sockets are served, set by the check on this host; empty: none
	// are.
	Cgroup string
	// Proxied are the indexes of the services of mode proxy, which the data plane does not serve, and Watched the
	// addresses of the other services' backends, each once.
	Proxied []int
	Watched []netip.Addr
	// Hairpinned are the numbers of backends of services that serve near clients by hairpins.
	Hairpinned []int
}

// Use is backend J of service I.
type Use struct{ I, J int }

// NewLayout returns the layout of a configuration.
func NewLayout(cfg *config.Config) *Layout {
	l := &Layout{Config: cfg}
	l.numberBackends()
	l.name()
	l.find(nil)
	return l
}

// numberBackends assigns numbers to the backends' addresses.
func (l *Layout) numberBackends() {
	services := l.Config.Services
	l.Backends, l.At = backendAddresses(l.Config), make([][]int, len(services))
	l.Number, l.Uses = make(map[netip.Addr]int, len(l.Backends)), make([][]Use, len(l.Backends))
	for n, addr := range l.Backends {
		l.Number[addr] = n
	}
	for i := range services {
		l.At[i] = make([]int, len(services[i].Backends))
		for j := range services[i].Backends {
			n := l.Number[services[i].Backends[j].Address]
			l.At[i][j], l.Uses[n] = n, append(l.Uses[n], Use{i, j})
		}
	}
}

// name indexes the services by name and by key.
func (l *Layout) name() {
	l.Named = make(map[string]int, len(l.Config.Services))
	l.Keyed = make(map[lb.ServiceKey]int, len(l.Config.Services))
	for i := range l.Config.Services {
		s := &l.Config.Services[i]
		l.Named[s.Name], l.Keyed[s.Key()] = i, i
	}
}

// find collects the services and addresses to which certain modes and keys apply. previous is a layout of services with
// the same VIPs, in the same order; nil: there is none.
func (l *Layout) find(previous *Layout) {
	if previous != nil && previous.Config.VRRP.ID == l.Config.VRRP.ID &&
		reflect.DeepEqual(previous.Config.Pool(), l.Config.Pool()) {
		l.Addresses = previous.Addresses
	} else {
		l.Addresses = addresses(l.Config)
	}
	l.findProxied()
	l.findPooled()
	l.plain = plainServices(l.Config.Services)
	l.Ejecting = ejectingServices(l.Config.Services)
	l.findWithdrawable()
	l.findAnnounced()
	l.findHairpins()
}

// Found is a backend of a configuration, with its service.
type Found struct {
	Use
	Service lb.Service
	Backend lb.Backend
}

// String returns "web/web01", as operations name it.
func (f *Found) String() string { return f.Service.Name + "/" + f.Backend.Name }

// Find returns the backend that has a key; nil if none has.
func (l *Layout) Find(key lb.BackendKey) *Found {
	i, ok := l.Keyed[key.Service]
	n, known := l.Number[key.Address]
	if !ok || !known {
		return nil
	}
	uses := l.Uses[n] // in the order of the services
	first, _ := slices.BinarySearchFunc(uses, i, func(at Use, i int) int { return cmp.Compare(at.I, i) })
	for _, at := range uses[first:] {
		if at.I != i {
			break
		}
		if l.Backend(at).Port == key.Port {
			return &Found{at, l.Service(at), l.Backend(at)}
		}
	}
	return nil
}

// Service returns the service of a backend, as it is configured.
func (l *Layout) Service(at Use) lb.Service { return l.Config.Services[at.I] }

// Backend returns a backend, as it is configured.
func (l *Layout) Backend(at Use) lb.Backend { return l.Config.Services[at.I].Backends[at.J] }

// All returns the numbers of all backends.
func (l *Layout) All() iter.Seq[int] {
	return func(yield func(int) bool) {
		for n := range l.Backends {
			if !yield(n) {
				return
			}
		}
	}
}

// ByName returns the backend of a name; nil if the configuration has none.
func (l *Layout) ByName(name BackendName) *Found {
	return l.Locate(slices.Values([]BackendName{name}))[name]
}

// Locate returns the backends that have these names, as far as the configuration has them. It walks once over the
// backends of each service concerned.
func (l *Layout) Locate(names iter.Seq[BackendName]) map[BackendName]*Found {
	wanted, services := map[BackendName]bool{}, map[int]bool{}
	for name := range names {
		if i, ok := l.Named[name.Service]; ok {
			wanted[name], services[i] = true, true
		}
	}
	all := make(map[BackendName]*Found, len(wanted))
	for i := range services {
		s := l.Config.Services[i]
		for j, b := range s.Backends {
			if name := NameOf(s, b); wanted[name] {
				all[name] = &Found{Use{i, j}, s, b}
			}
		}
	}
	return all
}

// findProxied finds the services of mode proxy, and the backends of the others.
func (l *Layout) findProxied() {
	for i := range l.Config.Services {
		if l.Config.Services[i].Mode.Proxied() {
			l.Proxied = append(l.Proxied, i)
		}
	}
	if len(l.Proxied) == 0 {
		l.Watched = l.Backends
		return
	}
	for n, addr := range l.Backends {
		if slices.ContainsFunc(l.Uses[n], func(at Use) bool { return !l.Config.Services[at.I].Mode.Proxied() }) {
			l.Watched = append(l.Watched, addr)
		}
	}
}

// Endpoint is the destination within which a port of full NAT's pool is unique: two flows may have the same address and
// port of the pool if they go to different endpoints.
type Endpoint struct {
	Address  netip.Addr
	port     uint16
	protocol lb.Protocol
}

// EndpointOf returns the endpoint of a backend of a service.
func EndpointOf(s lb.Service, b lb.Backend) Endpoint { return Endpoint{b.Address, b.Port, s.Protocol} }

// Pooled is an endpoint that full NAT sends to, with the backends that have it, which may be of several services.
type Pooled struct {
	Endpoint
	Uses []Use
}

// findPooled collects the endpoints of full NAT.
func (l *Layout) findPooled() {
	l.PooledAt = map[Endpoint]int{}
	for i := range l.Config.Services {
		if !l.Config.Services[i].Mode.UsesPool() {
			continue
		}
		s := l.Config.Services[i]
		for j, b := range s.Backends {
			e := EndpointOf(s, b)
			at, known := l.PooledAt[e]
			if !known {
				at = len(l.Pooled)
				l.PooledAt[e] = at
				l.Pooled = append(l.Pooled, Pooled{Endpoint: e})
			}
			l.Pooled[at].Uses = append(l.Pooled[at].Uses, Use{i, j})
		}
	}
}

// KeyOf returns the key of a backend.
func (l *Layout) KeyOf(at Use) lb.BackendKey { return l.Service(at).BackendKey(l.Backend(at)) }

// findWithdrawable finds the VIPs that can be withdrawn.
func (l *Layout) findWithdrawable() {
	if !slices.ContainsFunc(l.Config.Services, func(s lb.Service) bool { return s.OnEmpty == lb.WithdrawVIP }) {
		return
	}
	permanent := map[netip.Addr]bool{}
	for i := range l.Config.Services {
		if s := &l.Config.Services[i]; s.OnEmpty != lb.WithdrawVIP {
			permanent[s.VIP] = true
		}
	}
	for i, s := range l.Config.Services {
		if permanent[s.VIP] {
			continue
		}
		if l.Withdrawable == nil {
			l.Withdrawable = map[netip.Addr][]int{}
		}
		l.Withdrawable[s.VIP] = append(l.Withdrawable[s.VIP], i)
	}
}

// findAnnounced finds the services that each VIP is announced for.
func (l *Layout) findAnnounced() {
	if !l.Config.BGP.On() {
		return
	}
	l.announced = map[netip.Addr][]int{}
	for i, s := range l.Config.Services {
		if !s.Announcement.Never {
			l.announced[s.VIP] = append(l.announced[s.VIP], i)
		}
	}
}

// findHairpins collects the addresses of backends of services that use hairpins.
func (l *Layout) findHairpins() {
	near, some := make([]bool, len(l.Config.Services)), false
	for i := range l.Config.Services {
		near[i] = usesHairpins(&l.Config.Services[i])
		some = some || near[i]
	}
	if !some {
		return
	}
	for n, uses := range l.Uses {
		if slices.ContainsFunc(uses, func(at Use) bool { return near[at.I] }) {
			l.Hairpinned = append(l.Hairpinned, n)
		}
	}
}

// usesHairpins reports whether a service serves near clients by hairpins.
func usesHairpins(s *lb.Service) bool { return s.Mode.RepliesByEndpoint() && !s.NoHairpin }

// plainServices reports, for each service, whether its backends are as configured unless operations change them.
func plainServices(services []lb.Service) []bool {
	plain := make([]bool, len(services))
	for i := range services {
		s := &services[i]
		plain[i] = !s.IsMonitored() && s.SlowStart == 0 && !slices.ContainsFunc(s.Backends, func(b lb.Backend) bool {
			return b.Backup
		})
	}
	return plain
}

// ejectingServices returns the indexes of the services with outlier detection.
func ejectingServices(services []lb.Service) (all []int) {
	for i := range services {
		if services[i].Outliers.On() {
			all = append(all, i)
		}
	}
	return all
}

// Holder returns the backend of a service that has b's address and port; nil if none has.
func (l *Layout) Holder(service string, b lb.Backend) *Found {
	i, there := l.Named[service]
	if !there {
		return nil
	}
	return l.Find(l.Config.Services[i].BackendKey(b))
}
