// SPDX-License-Identifier: Apache-2.0

package subject

import (
	"bytes"
	"context"
	"fmt"
)

// Change writes the rules anew. iptables-restore hands a table to the kernel
// whole, with what it flushes and what it adds in one transaction, so that no
// packet meets half of them. What is tracked already keeps its server.
func (r *runningIPTables) Change(ctx context.Context, services []Service) error {
	for _, service := range services {
		for _, server := range service.Servers {
			if weight := service.Weight(server); weight > 1 {
				return fmt.Errorf("%w: a rule of mode nth takes its share of connections, each server the same; "+
					"for a weight of %d one would write %s into %d rules", ErrCannot, weight, server.Name, weight)
			}
		}
	}
	r.setup = r.setup.with(services)
	return r.Reload(ctx)
}

// Reload writes the rules that are there.
func (r *runningIPTables) Reload(ctx context.Context) error {
	rules := bytes.Replace(iptablesRules(r.setup), []byte("*nat\n"), []byte("*nat\n-F PREROUTING\n"), 1)
	return restoreIPTables(ctx, r.setup.Lab.Balancer, rules)
}

// PIDs are none: the kernel does it.
func (*runningIPTables) PIDs() []int { return nil }

func (*runningIPTables) Ways() string {
	return "each change rewrites all rules in one transaction (iptables-restore); tracked connections are left alone, " +
		"so a server that is removed or drains keeps those that it has"
}
