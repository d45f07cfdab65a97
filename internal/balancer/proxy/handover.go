// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"

	"github.com/jeoul/jeoul/internal/balancer/proxy/master"
)

// remembered asks a worker that is about to be replaced which clients are at which servers, by section. HAProxy's own
// way, a section "peers", has a worker without connections end before it has sent its table to the next one (2.6.12).
func (e *engine) remembered(ctx context.Context, worker int) map[string]master.Remembered {
	all := map[string]master.Remembered{}
	for _, b := range e.kept.Rendering.Blocks {
		if !b.Remembers {
			continue
		}
		clients, err := e.socket.Table(ctx, worker, b.Pool)
		if err != nil {
			e.log.Error("clients' persistence could not be read before HAProxy was reloaded", "section", b.Pool,
				"because", err)
			continue
		}
		all[b.Pool] = clients
	}
	return all
}

// remind gives a new worker the persistence tables that remembered has returned, of the sections that there still are.
func (e *engine) remind(ctx context.Context, worker int, r *Rendering, all map[string]master.Remembered) {
	for _, b := range r.Blocks {
		if !b.Remembers || len(all[b.Pool]) == 0 {
			continue
		}
		if err := e.socket.Remind(ctx, worker, b.Pool, all[b.Pool]); err != nil {
			e.log.Error("clients' persistence could not be handed over after HAProxy was reloaded", "section", b.Pool,
				"because", err)
		}
	}
}
