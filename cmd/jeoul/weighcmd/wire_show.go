// SPDX-License-Identifier: Apache-2.0

package weighcmd

import (
	"fmt"
	"strings"
	"time"

	"github.com/jeoul/jeoul/internal/weigh/results"
	"github.com/jeoul/jeoul/internal/weigh/wire"
)

// wireLine describes a finished step while others are still to come.
func wireLine(subject string, s wire.Step) string {
	offered := "as many as can be"
	if s.Offered > 0 {
		offered = fmt.Sprintf("%.0f/s", s.Offered)
	}
	words := []string{fmt.Sprintf("%s, %s, offered %s: %.0f %s", subject, s.Kind, offered, s.Metrics()[s.Kind.Metric()],
		wireNoun(s.Kind)),
		fmt.Sprintf("%d begun, %d failed", s.Begun, s.Failed.Total())}
	if l := s.Setup; l.Count > 0 {
		words = append(words, fmt.Sprintf("setup p50 %v p99 %v", l.P50.Round(time.Microsecond/10),
			l.P99.Round(time.Microsecond/10)))
	}
	if l := s.Response; l.Count > 0 {
		words = append(words, fmt.Sprintf("response p50 %v p99 %v", l.P50.Round(time.Microsecond/10),
			l.P99.Round(time.Microsecond/10)))
	}
	if s.FloodSent > 0 {
		words = append(words, fmt.Sprintf("flood %d SYNs, %d arrived", s.FloodSent, s.FloodArrived))
	}
	if !s.KeptUp {
		words = append(words, fmt.Sprintf("the tester did not keep up (%v late)", s.Behind.Round(time.Microsecond)))
	}
	return strings.Join(words, ", ")
}

// wireNoun returns the unit of a load's main metric.
func wireNoun(k wire.Kind) string { return strings.ReplaceAll(k.Metric(), "_per_second", "/s") }

// wireLoss is the share of failures from which a part was the limit.
const wireLoss = 0.001

// wireTrials returns the steps as results. Of a search, it returns the rate that the search found.
func wireTrials(spec wire.Spec, load wire.Load, subject string, steps []wire.Step) []results.Trial {
	var notes []string
	if load.Search != nil && len(steps) > 0 {
		var tried []string
		for _, s := range steps {
			tried = append(tried, fmt.Sprintf("%.0f/s lost %.3g %%", s.Offered, s.Loss()*100))
		}
		notes = []string{"rates that were tried: " + strings.Join(tried, ", ")}
		best, found := wire.Best(steps, load.Search.Loss)
		if !found {
			best = steps[len(steps)-1]
			notes = append([]string{fmt.Sprintf("no rate from %v a second on lost at most %v", load.Search.From,
				load.Search.Loss)}, notes...)
		}
		trial := wireTrial(spec, load, subject, best, notes)
		trial.Valid = trial.Valid && found
		return []results.Trial{trial}
	}
	var trials []results.Trial
	for _, s := range steps {
		trials = append(trials, wireTrial(spec, load, subject, s, notes))
	}
	return trials
}

func wireTrial(spec wire.Spec, load wire.Load, subject string, s wire.Step, notes []string) results.Trial {
	t := results.Trial{Subject: subject, Load: "wire", Repeat: 1, Valid: true, Notes: append([]string{}, notes...),
		Metrics: s.Metrics(),
		Params:  map[string]any{"wire": string(s.Kind), "offered": wireOffered(load, s), "clients": len(spec.Clients)}}
	for name, value := range map[string]int{"request_bytes": load.Request, "response_bytes": load.Response} {
		if value > 0 {
			t.Params[name] = value
		}
	}
	if load.Flood != nil && load.Kind != wire.SYNFlood {
		t.Params["beside"] = "a SYN flood"
	}
	for i, n := range s.PerServer {
		t.Backends = append(t.Backends,
			results.Backend{Name: spec.Servers[i].Name, Address: wireAddress(spec.Servers[i]), Connections: n})
	}
	switch {
	case s.Interrupted:
		t.Valid = false
		t.Notes = append([]string{"the step was ended early"}, t.Notes...)
	case t.Metrics[s.Kind.Metric()] == 0:
		t.Valid = false
		t.Notes = append([]string{fmt.Sprintf("of %d that were begun, none came to anything", s.Begun)}, t.Notes...)
	}
	t.Saturated = wireSaturated(load, subject, s)
	if s.LeftOpen > 0 {
		t.Notes = append(t.Notes, fmt.Sprintf("%d connections could not be reset after the step", s.LeftOpen))
	}
	if !s.KeptUp {
		t.Notes = append(t.Notes, fmt.Sprintf("the tester itself did not keep up: it was %v late",
			s.Behind.Round(time.Microsecond)))
	}
	return t
}

func wireAddress(p wire.Port) string {
	if p.Address.IsValid() {
		return p.Address.String()
	}
	return ""
}

// wireOffered returns the offered rate of a step, in the form of the suites' loads.
func wireOffered(load wire.Load, s wire.Step) any {
	switch {
	case load.Search != nil:
		return "search"
	case s.Offered > 0:
		return s.Offered
	}
	return "as much as possible"
}

// wireSaturated names the saturated part, as far as the tester can determine it.
func wireSaturated(load wire.Load, subject string, s wire.Step) results.Part {
	limited := s.Offered == 0 || load.Search != nil || s.Begun > 0 &&
		float64(s.Failed.Total()) > wireLoss*float64(s.Begun)
	switch {
	case !s.KeptUp, limited && subject == "direct":
		return results.SaturatedClient
	case limited:
		// The balancer, or the server behind it.
		return results.SaturatedUnknown
	}
	return results.SaturatedNone
}
