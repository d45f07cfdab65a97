// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/host/clock"
)

// reachInterval is the interval of requests for the backends that the balancer cannot reach: the answer may be long.
const reachInterval = 30 * time.Second

// maxUnreached bounds the backends that a message names.
const maxUnreached = 5

// followUnreached polls the balancer, from the first push on, for the backends without a route that their mode can use,
// such as nodes that are no neighbours in mode l2dsr. With many backends the answer takes time, and pushes do not wait
// for it. While the balancer does not answer, its last answer stays.
func (c *Controller) followUnreached(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-c.firstPush:
	}
	for {
		if backends, err := c.opt.Unreached(ctx); err == nil { // isPushed reports a balancer that does not answer
			found := unreachedOf(backends)
			c.mu.Lock()
			changed := !maps.Equal(found, c.unreached)
			c.unreached = found
			c.mu.Unlock()
			if changed {
				select {
				case c.reachChanged <- struct{}{}:
				default:
				}
			}
		}
		if clock.Sleep(ctx, reachInterval) != nil {
			return
		}
	}
}

// unreachedOf names the unreachable backends and the reasons, by the name of their service.
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
