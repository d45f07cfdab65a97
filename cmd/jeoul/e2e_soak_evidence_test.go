// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jeoul/jeoul/cmd/jeoul/e2e/soak"
	"github.com/jeoul/jeoul/internal/balancer/api"
	"github.com/jeoul/jeoul/internal/balancer/ops"
)

// evidence asks all balancers at once for their flow of a connection that has just broken, and for the state of the
// hand-over.
func (s *soakRun) evidence(c soak.Connection) soak.Evidence {
	s.watch.mu.Lock()
	hops := slices.Clone(s.watch.routes)
	s.watch.mu.Unlock()
	e := soak.Evidence{At: time.Now(), NextHops: hops, Balancers: make([]soak.FlowReport, len(s.balancers))}
	var group sync.WaitGroup
	for n, b := range s.balancers {
		group.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), pollTimeout)
			defer cancel()
			e.Balancers[n] = b.flowReport(ctx, c)
		})
	}
	group.Wait()
	return e
}

// flowReport asks one balancer.
func (b *soakBalancer) flowReport(ctx context.Context, c soak.Connection) soak.FlowReport {
	t := soak.FlowReport{Balancer: b.host.Name}
	client := api.NewClient(b.socket)
	list, err := client.Flows(ctx,
		ops.FlowQuery{Of: []string{c.Service}, Client: netip.PrefixFrom(c.Client.Addr(), c.Client.Addr().BitLen()),
			Limit: ops.MaxFlows})
	if err != nil {
		t.Flow = "it does not say: " + err.Error()
		return t
	}
	t.At = time.Now()
	for _, f := range list.Flows {
		if f.Client == c.Client {
			t.Flow += fmt.Sprintf("%s %s proven %v silent %.1fs; ", f.Backend, f.State, f.Proven, f.SilentSeconds)
		}
	}
	status, err := client.Status(ctx)
	if err != nil {
		t.Members = err.Error()
		return t
	}
	for _, service := range status.Services {
		if service.Name == c.Service {
			t.Service = serviceText(&service)
		}
	}
	if status.Members != nil {
		t.Members = membersText(status.Members.Members)
	}
	return t
}

// serviceText describes the state of a service's table and backends.
func serviceText(s *ops.Service) string {
	var text strings.Builder
	fmt.Fprintf(&text, "table %s", s.TableDigest)
	if of := s.Transition; of != nil {
		fmt.Fprintf(&text, ", in transition since %s, %d of %d slots moved, base %v", of.Since.Format("15:04:05.000"),
			of.MovedSlots, of.Slots, of.Base)
	}
	for _, backend := range s.Backends {
		fmt.Fprintf(&text, ", %s %s", backend.Name, backend.State)
	}
	return text.String()
}

// membersText lists the flows that a balancer has sent to the others, and received from them.
func membersText(all []ops.Member) string {
	var text []string
	for _, m := range all {
		line := fmt.Sprintf("%s %s", m.Name, m.State)
		if f := m.Flows; f != nil {
			line += fmt.Sprintf(
				", sending %v, sent %d, behind %d, resyncs %d, receiving %v, synced %v, added %d, followed %d, refused",
				f.Sending, f.Sent, f.Behind, f.Resyncs, f.Receiving, f.Synced, f.Added, f.Followed)
			for _, reason := range slices.Sorted(maps.Keys(f.Refused)) {
				line += fmt.Sprintf(" %s %d", reason, f.Refused[reason])
			}
		}
		text = append(text, line)
	}
	return strings.Join(text, "; ")
}
