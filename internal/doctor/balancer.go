// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"strings"

	"github.com/jeoul/jeoul/internal/api"
)

// judgeBalancer takes the counters and the states of our own balancer.
func judgeBalancer(e *Evidence) (findings []Finding) {
	before, after := e.Before.Balancer, e.After.Balancer
	if before == nil || after == nil || before.PID != after.PID {
		return nil
	}
	was := map[string]uint64{}
	for _, o := range before.Outcomes {
		was[o.Name] = o.Packets
	}
	var drops []Figure
	worst := api.Outcome{}
	for _, o := range after.Outcomes {
		n := less(o.Packets, was[o.Name])
		if n < fewPackets || !strings.HasPrefix(o.Name, "dropped_") && !strings.HasPrefix(o.Name, "reset_") {
			continue
		}
		drops = append(drops, Figure{Name: o.Name, Value: float64(n), Unit: "packets", Note: o.Help})
		if n > worst.Packets {
			worst = api.Outcome{Name: o.Name, Packets: n, Help: o.Help}
		}
	}
	if len(drops) > 0 {
		findings = append(findings, finding(balancerDrops, fmt.Sprintf("The balancer drops packets: %s (%s)", worst.Name, worst.Help), drops...))
	}
	return append(findings, judgeStates(after)...)
}

// judgeStates tells of backends that get no packets though the configuration wants
// them to.
func judgeStates(s *api.Status) (findings []Finding) {
	var figures []Figure
	for _, service := range s.Services {
		for _, b := range service.Backends {
			if b.State == api.NoMAC || b.State == api.NoRoute {
				figures = append(figures, Figure{Name: "state " + string(b.State), On: service.Name + "/" + b.Name, Value: 1, Unit: "backend", Note: b.Reason})
			}
		}
	}
	if len(figures) > 0 {
		title := fmt.Sprintf("Backend %s gets no packets: it %s", figures[0].On, figures[0].Note)
		if len(figures) > 1 {
			title = fmt.Sprintf("%d backends get no packets, such as %s: it %s", len(figures), figures[0].On, figures[0].Note)
		}
		findings = append(findings, finding(backendDown, title, bounded(figures)...))
	}
	return findings
}
