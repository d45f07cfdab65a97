// SPDX-License-Identifier: Apache-2.0

package main

import (
	"log/slog"

	"github.com/jeoul/jeoul/internal/balancer/discover"
)

// discovery returns what finds backends, with what the process before has found. That outlives the
// data plane: an origin may be away when the next process starts.
func (p *parts) discovery(log *slog.Logger) *discover.Engine {
	return discover.New(discover.Options{Memory: p.instance.noted(kindDiscovered), Log: log})
}
