// SPDX-License-Identifier: Apache-2.0

package control

import (
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/config"
	"github.com/jeoul/jeoul/internal/balancer/control/view"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/balancer/paths"
	"github.com/jeoul/jeoul/internal/host/iface"
	"github.com/jeoul/jeoul/internal/host/neigh"
)

// still is a world that does nothing, so that only the controller is measured.
type still struct {
	*world
	entries map[netip.Addr]paths.Entry
	changed map[netip.Addr]paths.Entry
	changes chan struct{}
}

func (s still) Changed() (map[netip.Addr]paths.Entry, bool) {
	changed := maps.Clone(s.changed)
	clear(s.changed)
	return changed, false
}

func (s still) Apply(lb.State) error                 { return nil }
func (s still) Attachments() []lb.Attachment         { return []lb.Attachment{{Interface: "eth9"}} }
func (still) SetInterfaces([]string) error           { return nil }
func (s still) SetAddresses([]netip.Addr) error      { return nil }
func (s still) Entries() map[netip.Addr]paths.Entry  { return s.entries }
func (s still) Changes() <-chan struct{}             { return s.changes }
func (s still) Counters() (c lb.Counters, err error) { return c, nil }

func (s still) CountersOf(map[lb.ServiceKey]bool) (c lb.Counters, err error) { return c, nil }
func (s still) KnownRoutes([]netip.Addr) (map[netip.Addr]paths.Route, bool)  { return nil, false }

func (s still) Lookup(addrs []netip.Addr) (map[netip.Addr]paths.Route, error) {
	routes := make(map[netip.Addr]paths.Route, len(addrs))
	for _, addr := range addrs {
		routes[addr] = s.entries[addr].Route
	}
	return routes, nil
}

type manyLinks struct{ links }

func (manyLinks) Changes() <-chan struct{} { return nil }

type anyHost struct{ host }

// large is a configuration of this many services with this many backends each, and
// a world in which all of them answer; each service has backends of its own.
func large(b *testing.B, services, backends int) (*Controller, still) {
	cfg, err := config.Parse("f", []byte(web))
	if err != nil {
		b.Fatal(err)
	}
	cfg.Services = nil
	world := still{newWorld(nil), map[netip.Addr]paths.Entry{}, map[netip.Addr]paths.Entry{}, make(chan struct{}, 1)}
	next := netip.MustParseAddr("10.0.0.1")
	for i := range services {
		vip := netip.AddrFrom4([4]byte{172, 16, byte(i >> 8), byte(i)})
		s := lb.Service{Name: fmt.Sprintf("s%05d", i), VIP: vip, Port: 80, Protocol: lb.TCP, Mode: lb.IPIP,
			Scheduler: lb.Maglev}
		for j := range backends {
			s.Backends = append(s.Backends, lb.Backend{Name: fmt.Sprintf("b%05d", j), Address: next, Port: 80,
				Weight: 1})
			world.answer(next, 1)
			next = next.Next()
		}
		cfg.Services = append(cfg.Services, s)
		world.links[0].Addresses = append(world.links[0].Addresses, netip.PrefixFrom(vip, 32))
	}
	c := New(Options{DataPlane: world, Paths: world, Host: anyHost{host{world.world}},
		Links:    manyLinks{links{world.world}},
		Announce: func(string, ...netip.Addr) error { return nil }, Log: slog.New(slog.DiscardHandler), Version: "v0"},
		cfg)
	v := view.New(c.view.Layout, nil, c.knownPaths(c.view.Layout, world.links, nil), c.verdictsFor(c.view.Layout, nil),
		nil, nil, time.Now())
	v.Links = world.links
	if err := c.install(v); err != nil {
		b.Fatal(err)
	}
	clear(world.changed)
	c.setLinks([]iface.State{{Name: "eth9", Up: true, MAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}}})
	return c, world
}

// answer gives an address a MAC address that ends in last.
func (s still) answer(addr netip.Addr, last byte) {
	s.changed[addr] = paths.Entry{Address: addr, MAC: net.HardwareAddr{2, 0, 0, 0, 1, last},
		Source:    net.HardwareAddr{2, 0, 0, 0, 0, 1},
		Neighbour: neigh.Reachable, Route: paths.Route{Interface: "eth9", Index: 9, MTU: 1500,
			Local: netip.MustParseAddr("10.255.255.1")}}
	s.entries[addr] = s.changed[addr]
}

// BenchmarkChange measures the time that the controller itself takes for one change, without the data plane, the
// kernel's tables and the settle time.
func BenchmarkChange(b *testing.B) {
	for _, size := range []struct{ services, backends int }{{10000, 10}, {10, 10000}} {
		c, world := large(b, size.services, size.backends)
		last := c.view.Config.Services[size.services-1]
		name := fmt.Sprintf("%dx%d", size.services, size.backends)
		weight := int64(2)
		b.Run(name+"/weight", func(b *testing.B) {
			for range b.N {
				weight = 5 - weight
				if _, err := c.operator.operate(ops.Order{Verb: ops.Weight, Service: last.Name,
					Backend: last.Backends[0].Name, Weight: weight}); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(name+"/neighbour", func(b *testing.B) {
			for i := range b.N {
				world.answer(last.Backends[0].Address, byte(i))
				c.paths.MarkStale()
				if err := c.reconcile(); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(name+"/reload", func(b *testing.B) {
			cfg := *c.view.Config
			cfg.Services = append([]lb.Service{}, cfg.Services...)
			for i := range b.N {
				s := &cfg.Services[0]
				s.Backends = append([]lb.Backend{}, s.Backends...)
				s.Backends[0].Weight = uint16(i%2 + 1)
				r := &reload{layout: view.NewLayout(&cfg), done: make(chan error, 1)}
				c.prepare(r)
				if err := <-r.done; err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(name+"/status", func(b *testing.B) {
			for range b.N {
				if _, err := c.Status(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
