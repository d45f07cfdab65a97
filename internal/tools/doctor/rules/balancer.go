// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/tools/doctor/evidence"
)

// checkBalancer evaluates the counters and states of Jeoul's balancer on this host.
func checkBalancer(e *evidence.Evidence) (findings []Finding) {
	before, after := e.Before.Balancer, e.After.Balancer
	if before == nil || after == nil || before.PID != after.PID {
		return nil
	}
	was := map[string]uint64{}
	for _, o := range before.Outcomes {
		was[o.Name] = o.Packets
	}
	findings = checkHops(after, was)
	var drops []Figure
	worst := ops.Outcome{}
	for _, o := range after.Outcomes {
		n := evidence.Growth(o.Packets, was[o.Name])
		if n < fewPackets || !isRefusal(o.Name) {
			continue
		}
		drops = append(drops, Figure{Name: o.Name, Value: float64(n), Unit: "packets", Note: o.Help})
		if n > worst.Packets {
			worst = ops.Outcome{Name: o.Name, Packets: n, Help: o.Help}
		}
	}
	if len(drops) > 0 {
		findings = append(findings,
			finding(balancerDrops, fmt.Sprintf("The balancer drops packets: %s (%s)", worst.Name, worst.Help),
				drops...))
	}
	findings = append(findings, checkUnwritten(after)...)
	return append(findings, slices.Concat(checkStates(after), checkHealth(after), checkNarrow(after),
		checkMembers(before, after), checkVRRP(before, after), checkFeeds(after, time.Now()))...)
}

// isRefusal reports whether an outcome is that of packets which are dropped, or answered with a reset or an ICMP error.
func isRefusal(outcome string) bool {
	return strings.HasPrefix(outcome, "dropped_") || strings.HasPrefix(outcome, "reset_") ||
		strings.HasPrefix(outcome, "unreachable_")
}

// checkNarrow finds paths whose MTU, as reported by routers, is smaller than the link's. It uses the balancer's path
// MTUs: a ping of the doctor's own would update the kernel's cache, and change the evidence.
func checkNarrow(s *ops.Status) []Finding {
	var figures []Figure
	for _, service := range s.Services {
		for _, b := range service.Backends {
			if b.Narrow {
				figures = append(figures, Figure{Name: "path MTU", On: service.Name + "/" + b.Name,
					Value: float64(b.MTU), Unit: "bytes", Note: "reported by a router on the path"})
			}
		}
	}
	if len(figures) == 0 {
		return nil
	}
	return []Finding{finding(narrowPath, fmt.Sprintf("The way to backend %s takes only %.0f bytes", figures[0].On,
		figures[0].Value), bounded(figures)...)}
}

// checkUnwritten reports files that only a restart needs, and that the balancer cannot write.
func checkUnwritten(s *ops.Status) []Finding {
	if len(s.Unwritten) == 0 {
		return nil
	}
	var figures []Figure
	for _, f := range s.Unwritten {
		note := f.Error + "; until the machine is rebooted, the kernel keeps it"
		if !f.Kept {
			note = f.Error + "; it ends with the process"
		}
		figures = append(figures, Figure{Name: f.What, On: f.Path, Value: 1, Unit: "file", Note: note})
	}
	title := fmt.Sprintf("%s cannot be written to %s", s.Unwritten[0].What, s.Unwritten[0].Path)
	return []Finding{finding(notDurable, title, bounded(figures)...)}
}

// manyExpired is more packets with an expired TTL than traceroute sends during an examination.
const manyExpired = 20

// checkHops reports packets that arrive with an expired TTL or hop limit.
func checkHops(after *ops.Status, was map[string]uint64) []Finding {
	var figures []Figure
	total := uint64(0)
	for _, o := range after.Outcomes {
		if n := evidence.Growth(o.Packets, was[o.Name]); n > 0 && strings.HasSuffix(o.Name, "_time_exceeded") {
			total += n
			figures = append(figures, Figure{Name: o.Name, Value: float64(n), Unit: "packets", Note: o.Help})
		}
	}
	if total < manyExpired {
		return nil
	}
	return []Finding{finding(forwardingLoop, fmt.Sprintf("%d packets came to the balancer with their hops used up",
		total), figures...)}
}

// checkStates reports backends that get no packets although they should by the configuration.
func checkStates(s *ops.Status) []Finding {
	var figures []Figure
	var means consequences
	for _, service := range s.Services {
		for j, b := range service.Backends {
			if b.State == lb.NoMAC || b.State == lb.NoRoute {
				figures = append(figures, Figure{Name: "state " + string(b.State), On: service.Name + "/" + b.Name,
					Value: 1, Unit: "backend", Note: b.Reason})
				means.add(service.Name, withoutBackend(service, j))
			}
		}
	}
	return aboutBackends(backendDown, figures, means, "Backend %s gets no packets",
		"%d backends get no packets, such as %s")
}

// problemKinds maps problems of a source to kinds of findings. Others become sourceProblem.
var problemKinds = map[ops.ProblemKind]string{ops.ProblemUnreached: sourceOld, ops.ProblemRight: sourceRight,
	ops.ProblemUnclaimed: sourceUnclaimed, ops.ProblemKept: sourceKept}

// checkFeeds finds sources of configuration that are stale, or whose program reports a problem.
func checkFeeds(s *ops.Status, now time.Time) (findings []Finding) {
	for i := range s.Feeds {
		f := &s.Feeds[i]
		if f.Silent {
			findings = append(findings, finding(sourceOld, fmt.Sprintf(
				"The program that keeps the source %s says nothing any more: %d services are as they were", f.Source,
				f.Services), age(f, now)))
		}
		seen, titles, order := map[string][]Figure{}, map[string]string{}, []string{}
		for _, t := range f.Problems {
			kind := problemKinds[t.Kind]
			if kind == "" {
				kind = sourceProblem
			}
			if titles[kind] == "" {
				titles[kind] = fmt.Sprintf("Source %s: %s", f.Source, t.Text())
				order = append(order, kind)
			}
			seen[kind] = append(seen[kind], problemFigure(f, t, now))
		}
		for _, kind := range order {
			findings = append(findings, finding(kind, titles[kind], bounded(seen[kind])...))
		}
	}
	return findings
}

func age(f *ops.Feed, now time.Time) Figure {
	return Figure{Name: "age of the source", On: f.Source, Value: f.SourceAge(now).Truncate(time.Second).Seconds(),
		Unit: "seconds", Note: f.Follows}
}

// problemFigure returns a problem of a source as a figure, with its duration if it is known.
func problemFigure(f *ops.Feed, t ops.FeedProblem, now time.Time) Figure {
	figure := Figure{Name: string(t.Kind), On: t.On, Value: 1, Unit: "trouble", Note: t.Problem}
	if figure.On == "" {
		figure.On = f.Source
	}
	if !t.Since.IsZero() {
		figure.Value, figure.Unit = max(now.Sub(t.Since), 0).Truncate(time.Second).Seconds(), "seconds"
	}
	return figure
}
