// SPDX-License-Identifier: Apache-2.0

package watchcmd

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/jeoul/jeoul/cmd/jeoul/cmdkit"
	"github.com/jeoul/jeoul/internal/balancer/api"
	"github.com/jeoul/jeoul/internal/balancer/events"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
)

var serviceKind = kind[ops.Service]{
	noun: "service", list: (*api.Client).Services,
	name:    func(s ops.Service) string { return s.Name },
	stable:  stableService,
	matches: func(s ops.Service, argument string) bool { return argument == s.Name || argument == s.VIP.String() },
	columns: []getColumn[ops.Service]{
		{name: "name", value: func(s ops.Service) any { return s.Name }},
		{name: "address", value: func(s ops.Service) any {
			return lb.ServiceKey{VIP: s.VIP, Port: s.Port, Protocol: s.Protocol}
		}},
		{name: "mode", value: func(s ops.Service) any { return s.Mode }},
		{name: "scheduler", value: func(s ops.Service) any { return s.Scheduler }},
		{name: "up", right: true, value: func(s ops.Service) any {
			return fmt.Sprintf("%d/%d", upOf(s), len(s.Backends))
		}},
		{name: "serving", showsRemoval: true, value: servingText},
		{name: "owner", value: func(s ops.Service) any { return s.OwnerText() }},
		{name: "active", right: true, wide: true, value: func(s ops.Service) any { return cmdkit.Count(uint64(s.Active)) }},
		{name: "flows", right: true, wide: true, value: func(s ops.Service) any { return cmdkit.Count(s.Flows) }},
		{name: "connections", right: true, value: sumOf(func(b ops.Backend) uint64 { return b.Connections })},
		{name: "packets", right: true, wide: true, value: sumOf(func(b ops.Backend) uint64 { return b.Packets })},
		{name: "bytes", right: true, wide: true, value: sumOf(func(b ops.Backend) uint64 { return b.Bytes })},
		{name: "digest", wide: true, value: func(s ops.Service) any { return cmdkit.OrDash(s.TableDigest) }},
	},
}

var backendKind = kind[ops.ServiceBackend]{
	noun: "backend", list: (*api.Client).Backends, name: nameOf,
	stable: func(b ops.ServiceBackend) ops.ServiceBackend {
		b.Backend = stableBackend(b.Backend)
		return b
	},
	matches: func(b ops.ServiceBackend, argument string) bool {
		service, backend, one := strings.Cut(argument, "/")
		return service == b.Service && (!one || backend == b.Name || backend == b.Address.String() ||
			backend == netip.AddrPortFrom(b.Address, b.Port).String())
	},
	columns: []getColumn[ops.ServiceBackend]{
		{name: "name", value: func(b ops.ServiceBackend) any { return nameOf(b) }},
		{name: "address", value: func(b ops.ServiceBackend) any { return netip.AddrPortFrom(b.Address, b.Port) }},
		{name: "weight", right: true, value: func(b ops.ServiceBackend) any { return b.Weight }},
		{name: "state", showsRemoval: true, value: func(b ops.ServiceBackend) any { return b.State }},
		{name: "health", value: func(b ops.ServiceBackend) any { return healthText(b.Backend) }},
		{name: "from", wide: true, value: func(b ops.ServiceBackend) any { return cmdkit.OrDash(string(b.Origin)) }},
		{name: "neighbour", wide: true, value: func(b ops.ServiceBackend) any { return cmdkit.OrDash(b.Neighbour) }},
		{name: "mac", wide: true, value: func(b ops.ServiceBackend) any { return cmdkit.OrDash(b.MAC) }},
		{name: "interface", wide: true, value: func(b ops.ServiceBackend) any { return cmdkit.OrDash(b.Interface) }},
		{name: "active", right: true, value: func(b ops.ServiceBackend) any { return activeText(b.Backend) }},
		{name: "flows", right: true, wide: true, value: func(b ops.ServiceBackend) any { return cmdkit.Count(b.Flows) }},
		{name: "connections", right: true, value: func(b ops.ServiceBackend) any { return cmdkit.Count(b.Connections) }},
		{name: "packets", right: true, wide: true, value: func(b ops.ServiceBackend) any { return cmdkit.Count(b.Packets) }},
		{name: "bytes", right: true, wide: true, value: func(b ops.ServiceBackend) any { return cmdkit.Count(b.Bytes) }},
		{name: "reason", wide: true, value: func(b ops.ServiceBackend) any { return cmdkit.OrDash(b.Reason) }},
	},
}

var checkKind = kind[ops.BackendCheck]{
	noun: "check", list: (*api.Client).Checks,
	name: func(c ops.BackendCheck) string { return fmt.Sprintf("%s/%s/%d", c.Service, c.Backend, c.Index) },
	stable: func(c ops.BackendCheck) ops.BackendCheck {
		c.CheckResult = stableResult(c.CheckResult)
		return c
	},
	matches: func(c ops.BackendCheck, argument string) bool {
		return argument == c.Service || argument == c.Service+"/"+c.Backend ||
			argument == fmt.Sprintf("%s/%s/%d", c.Service, c.Backend, c.Index)
	},
	columns: []getColumn[ops.BackendCheck]{
		{name: "backend", value: func(c ops.BackendCheck) any { return c.Service + "/" + c.Backend }},
		{name: "check", value: func(c ops.BackendCheck) any { return c.Check.Check }},
		{name: "state", showsRemoval: true, value: func(c ops.BackendCheck) any { return c.State }},
		{name: "passed", right: true, value: func(c ops.BackendCheck) any { return c.Passed }},
		{name: "failed", right: true, value: func(c ops.BackendCheck) any { return c.Failed }},
		{name: "last", value: func(c ops.BackendCheck) any { return cmdkit.TimeText(c.Last) }},
		{name: "took", right: true, value: func(c ops.BackendCheck) any { return cmdkit.CheckTime(c.TookSeconds) }},
		{name: "via", wide: true, value: func(c ops.BackendCheck) any { return c.Via }},
		{name: "interval", right: true, wide: true, value: func(c ops.BackendCheck) any {
			return cmdkit.SecondsText(c.IntervalSeconds)
		}},
		{name: "next", wide: true, value: func(c ops.BackendCheck) any { return cmdkit.TimeText(c.Next) }},
		{name: "expected", wide: true, value: func(c ops.BackendCheck) any { return c.Expected }},
		{name: "answer", value: func(c ops.BackendCheck) any { return cmdkit.OrDash(c.Answer) }},
	},
}

var sourceKind = kind[api.Source]{
	noun: "source", list: func(client *api.Client, ctx context.Context, _ ...string) ([]api.Source, error) {
		return client.Sources(ctx)
	},
	name:    func(s api.Source) string { return s.Name },
	stable:  func(s api.Source) api.Source { return s },
	matches: func(s api.Source, argument string) bool { return argument == s.Name },
	columns: []getColumn[api.Source]{
		{name: "name", value: func(s api.Source) any { return s.Name }},
		{name: "services", right: true, value: func(s api.Source) any { return s.Services }},
		{name: "generation", right: true, value: func(s api.Source) any { return s.Generation }},
		{name: "by", showsRemoval: true, value: func(s api.Source) any { return cmdkit.OrDash(s.By) }},
		{name: "changed", value: func(s api.Source) any { return cmdkit.TimeText(s.At) }},
		{name: "backends", right: true, wide: true, value: func(s api.Source) any { return s.Backends }},
		{name: "as of", value: func(s api.Source) any { return cmdkit.TimeText(s.AsOf) }},
		{name: "follows", wide: true, value: func(s api.Source) any { return cmdkit.OrDash(s.Follows) }},
		{name: "problem", wide: true, value: func(s api.Source) any { return cmdkit.OrDash(s.Problem) }},
	},
}

var eventKind = kind[events.Event]{
	noun: "event", list: eventsAfter(""), absent: true,
	name: func(e events.Event) string { return e.ID },
	matches: func(e events.Event, argument string) bool {
		service, backend, one := strings.Cut(argument, "/")
		return argument == e.ID || service == e.Service && (!one || backend == e.Backend)
	},
	columns: []getColumn[events.Event]{
		{name: "at", value: func(e events.Event) any { return cmdkit.TimeText(e.At) }},
		{name: "level", value: func(e events.Event) any { return e.Level }},
		{name: "kind", value: func(e events.Event) any { return e.Kind }},
		{name: "id", wide: true, value: func(e events.Event) any { return e.ID }},
		{name: "about", value: func(e events.Event) any { return aboutText(e) }},
		{name: "by", wide: true, value: func(e events.Event) any { return cmdkit.OrDash(e.By) }},
		{name: "message", value: func(e events.Event) any { return e.Message }},
	},
}

// stableService leaves out the fields that change with each packet and each check.
func stableService(s ops.Service) ops.Service {
	s.Active, s.Flows, s.Proxy = 0, 0, nil
	s.Discovered = slices.Clone(s.Discovered)
	for i := range s.Discovered {
		s.Discovered[i].Taken, s.Discovered[i].AgeSeconds = time.Time{}, 0
	}
	was := s.Backends
	s.Backends = make([]ops.Backend, len(was))
	for i, b := range was {
		s.Backends[i] = stableBackend(b)
	}
	return s
}

// stableBackend leaves out counters, and the states that a neighbour entry passes through by itself.
func stableBackend(b ops.Backend) ops.Backend {
	b.Neighbour, b.Ports, b.Proxied = "", nil, nil
	b.Packets, b.Bytes, b.ReturnedPackets, b.ReturnedBytes, b.Connections, b.Active, b.Flows = 0, 0, 0, 0, 0, 0, 0
	b.Answered, b.Refused, b.Unreachable = 0, 0, 0
	if b.Health != nil {
		health := *b.Health
		health.Checks = make([]ops.CheckResult, len(b.Health.Checks))
		for i, result := range b.Health.Checks {
			health.Checks[i] = stableResult(result)
		}
		b.Health = &health
	}
	return b
}

// stableResult leaves out the fields that change with each check.
func stableResult(r ops.CheckResult) ops.CheckResult {
	return ops.CheckResult{State: r.State, Reason: r.Reason}
}

// eventsAfter lists the kept events after the event with an id, or all of them. It lists those of all services, because
// many events are about no single service.
func eventsAfter(id string) func(*api.Client, context.Context, ...string) ([]events.Event, error) {
	return func(client *api.Client, ctx context.Context, _ ...string) (list []events.Event, err error) {
		err = client.Events(ctx, id, false, func(event *events.Event, _ *events.Lost) error {
			if event != nil {
				list = append(list, *event)
			}
			return nil
		})
		return list, err
	}
}

func nameOf(b ops.ServiceBackend) string { return b.Service + "/" + b.Name }

// upOf counts the backends that are up.
func upOf(s ops.Service) (up int) {
	for _, b := range s.Backends {
		if b.State == lb.Up {
			up++
		}
	}
	return up
}

// servingText describes which backends take new flows.
func servingText(s ops.Service) any {
	if s.Withdrawn {
		return "withdrawn"
	}
	return s.Serving
}

// sumOf sums a counter over the backends of a service.
func sumOf(of func(ops.Backend) uint64) func(ops.Service) any {
	return func(s ops.Service) any {
		var sum uint64
		for _, b := range s.Backends {
			sum += of(b)
		}
		return cmdkit.Count(sum)
	}
}

// aboutText names the service or the backend of an event.
func aboutText(e events.Event) string {
	if e.Backend == "" {
		return cmdkit.OrDash(e.Service)
	}
	return e.Service + "/" + e.Backend
}
