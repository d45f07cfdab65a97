// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jeoul/jeoul/internal/weigh/bench/load"
	"github.com/jeoul/jeoul/internal/weigh/bench/probe"
	"github.com/jeoul/jeoul/internal/weigh/lab"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// Generators returns the hosts of a point's n generators, one host for each.
func (r *Runner) Generators(p Point, n int) []*lab.Host {
	if p.Local() {
		return slices.Repeat([]*lab.Host{r.Lab.Balancer}, n)
	}
	return r.Lab.Clients[:n]
}

// tryTimeout is the time limit of a generator that tries a subject.
const tryTimeout = 20 * time.Second

// TryFromBalancer starts a program on the balancer's host that sends a subject one request, as the load will. A request
// from this process would not do: a balancer may serve only the programs of a cgroup, and this process is in no cgroup
// of the laboratory.
func (r *Runner) TryFromBalancer(ctx context.Context, kind load.Kind, share load.Share) error {
	nothing := func() error { return nil }
	result, err := load.Drive{Kind: kind, Clients: []load.Client{r.Client(0, r.Lab.Balancer, share)}, Bound: tryTimeout,
		Before: nothing, After: nothing}.Run(ctx)
	switch {
	case err != nil:
		return err
	case len(result.Problems) > 0:
		return fmt.Errorf("%s asking %s: %s", r.Lab.Balancer.Name, share.Target, result.Problems[0])
	case result.Lost > 0:
		return fmt.Errorf("%s asking %s: no answer", r.Lab.Balancer.Name, share.Target)
	}
	return nil
}

// Read returns the probe's reading for the time while the point's load ran. Under a load from the balancer's host there
// are no clients, and the use of that host is that of generators and balancer together.
func (p Point) Read(probing *probe.Probe) probe.Reading {
	reading := probing.Reading()
	if !p.Local() {
		return reading
	}
	reading.Parts = slices.DeleteFunc(reading.Parts, func(u probe.Usage) bool {
		return u.Part == results.SaturatedClient
	})
	for i := range reading.Parts {
		if reading.Parts[i].Part == results.SaturatedBalancer {
			reading.Parts[i].Part = probe.PartHost
		}
	}
	return reading
}

// BalancerWork describes the CPU time of a request on the balancer, or on its host together with the generators there.
func BalancerWork(metrics map[string]float64) string {
	if both, ok := metrics[results.BalancerHostCPUUsPerRequest]; ok {
		return fmt.Sprintf("balancer's host %.1f µs", both)
	}
	return fmt.Sprintf("balancer %.1f µs", metrics[results.BalancerCPUUsPerRequest])
}
