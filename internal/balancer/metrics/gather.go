// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"fmt"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/jeoul/jeoul/internal/balancer/ops"
)

// gatherer makes the metric families of a balancer's status. It is a prometheus.Gatherer and
// not a Collector: a registry hashes and compares every series of every scrape, which for
// 10,000 services takes longer than all the rest. Tests do that comparison instead.
type gatherer struct {
	status func() (ops.Status, error)
	// backends is up to how many of them have series.
	backends int
	// others are gathered beside.
	others prometheus.Gatherer
}

// Gather makes the families of one status, and the others.
func (g *gatherer) Gather() ([]*dto.MetricFamily, error) {
	families, err := g.collect()
	if err != nil {
		return nil, err
	}
	all := make([]*dto.MetricFamily, len(families))
	for i := range families {
		all[i] = families[i].proto(len(families[i].values))
	}
	others, err := g.others.Gather()
	return append(all, others...), err
}

// collect makes the families of one status. Where that cannot be had, the scrape fails as a
// whole: counters that are missing would look like a balancer without traffic.
func (g *gatherer) collect() (all []metricFamily, err error) {
	status, err := g.status()
	if err != nil {
		return nil, fmt.Errorf("read the balancer's status: %w", err)
	}
	all = append(all, series(balancerFamilies, []*ops.Status{&status}, func(s *ops.Status) []string {
		return []string{s.Version}
	})...)
	all = append(all, operationMetrics(status.Operations.InForce)...)
	all = append(all, series([]metric[part]{unwrittenFiles}, unwritten(status.Unwritten), partName)...)
	all = append(all, series([]metric[ops.Outcome]{packetsTotal}, status.Outcomes, func(o ops.Outcome) []string {
		return []string{o.Name}
	})...)
	all = append(all, series(interfaceFamilies, pointers(status.Interfaces), func(i *ops.Interface) []string {
		return []string{i.Name, string(i.Hook.Name), strconv.FormatBool(i.Hook.Generic), i.Hook.Driver}
	})...)
	all = append(all, capacityMetrics(&status)...)
	all = append(all, localMetrics(status.Local)...)
	all = append(all, engineMetrics(status.Proxy)...)
	all = append(all, proxyMetrics(status.Services)...)
	all = append(all, bgpMetrics(status.BGP)...)
	all = append(all, vrrpMetrics(status.VRRP, status.Services)...)
	all = append(all, memberMetrics(status.Members)...)
	return append(all, g.serviceMetrics(status.Services)...), nil
}

// unwritten counts the files that cannot be written by where their content is.
func unwritten(files []ops.Unwritten) []part {
	kernel, process := part{name: "kernel"}, part{name: "process"}
	for _, f := range files {
		if f.Kept {
			kernel.value++
		} else {
			process.value++
		}
	}
	return []part{kernel, process}
}

func partName(p part) []string { return []string{p.name} }

// capacityMetrics makes the families of capacities, and of how much of each is in use.
func capacityMetrics(status *ops.Status) (all []metricFamily) {
	if f := status.Flows; f != nil {
		all = append(all, series([]metric[part]{flowsNow}, []part{{"proven", f.Proven}, {"unproven", f.Unproven}},
			partName)...)
		all = append(all,
			series([]metric[part]{flowsLimit}, []part{{"proven", f.ProvenLimit}, {"unproven", f.UnprovenLimit}},
				partName)...)
	}
	if m := status.Memory; m != nil {
		all = append(all,
			series([]metric[part]{memoryBytes}, []part{{"proven", m.Proven}, {"unproven", m.Unproven},
				{"returns", m.Returns},
				{"configuration", m.Configuration}, {"counters", m.Counters}, {"ways", m.RouteCache},
				{"fragments", m.Fragments},
				{"checks", m.Checks}}, partName)...)
	}
	return all
}

// localMetrics makes the families of clients on the balancer's own host.
func localMetrics(local *ops.Local) []metricFamily {
	if local == nil {
		return nil
	}
	all := series([]metric[*ops.Local]{localSockets}, []*ops.Local{local}, func(*ops.Local) []string { return nil })
	return append(all, series([]metric[ops.LocalEvent]{localEvents}, local.Events, func(e ops.LocalEvent) []string {
		return []string{e.Name}
	})...)
}

// serviceMetrics makes the families of the services, and those of the backends if there are not too
// many.
func (g *gatherer) serviceMetrics(services []ops.Service) []metricFamily {
	all := series(serviceFamilies, pointers(services), func(s *ops.Service) []string {
		return []string{s.Name, s.VIP.String(), strconv.Itoa(int(s.Port)), s.Protocol.String(), string(s.Mode),
			string(s.Scheduler)}
	})
	all = append(all, series([]metric[*ops.Service]{tableInfo}, pointers(services), func(s *ops.Service) []string {
		return []string{s.Name, s.TableDigest}
	})...)
	all = append(all, series(discoveredFamilies, originsOf(services), func(f origin) []string {
		return []string{f.of.Name, string(f.Origin)}
	})...)
	n := 0
	for i := range services {
		n += len(services[i].Backends)
	}
	left := part{value: uint64(n)}
	if n <= g.backends {
		left.value = 0
	}
	all = append(all, series([]metric[part]{backendsWithoutSeries}, []part{left},
		func(part) []string { return nil })...)
	if left.value > 0 {
		return all
	}
	backends := make([]member, 0, n)
	for i := range services {
		for j := range services[i].Backends {
			backends = append(backends, member{&services[i], &services[i].Backends[j]})
		}
	}
	names := func(m member) []string { return []string{m.of.Name, m.Name} }
	return append(append(all, series(backendFamilies, backends, names)...), series(proxiedFamilies, backends, names)...)
}

// originsOf are the origins of services.
func originsOf(services []ops.Service) (all []origin) {
	for i := range services {
		for j := range services[i].Discovered {
			all = append(all, origin{&services[i], &services[i].Discovered[j]})
		}
	}
	return all
}
