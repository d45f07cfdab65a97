// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
)

// reachInterval is how often the balancer is asked which backends it cannot reach: the answer may be long.
const reachInterval = 30 * time.Second

// maxUnreached bounds the backends that a message names.
const maxUnreached = 5

// readUnreached asks the balancer which backends have no route that their mode could use, such as nodes that are no
// neighbours in mode l2dsr. Where it does not answer, its last answer stays.
func (c *Controller) readUnreached(ctx context.Context) {
	if time.Since(c.unreachedAt) < reachInterval || !c.pushed {
		return
	}
	backends, err := c.opt.Backends(ctx)
	if err != nil {
		return // isPushed says so
	}
	c.unreachedAt = time.Now()
	found := unreachedOf(backends)
	c.mu.Lock()
	c.unreached = found
	c.mu.Unlock()
}

// unreachedOf says which backends cannot be reached, and why, by the name of their service.
func unreachedOf(backends []ops.ServiceBackend) map[string]string {
	texts, counts := map[string]string{}, map[string]int{}
	for _, b := range backends {
		if b.State != lb.NoRoute {
			continue
		}
		counts[b.Service]++
		if counts[b.Service] > maxUnreached {
			continue
		}
		if texts[b.Service] != "" {
			texts[b.Service] += "; "
		}
		texts[b.Service] += fmt.Sprintf("backend %s (%s) %s", b.Name, b.Address, b.Reason)
	}
	for service, n := range counts {
		if n > maxUnreached {
			texts[service] += fmt.Sprintf("; %d more", n-maxUnreached)
		}
	}
	return texts
}
