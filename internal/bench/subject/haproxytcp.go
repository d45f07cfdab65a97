// SPDX-License-Identifier: Apache-2.0

package subject

import (
	"context"

	"github.com/jeoul/jeoul/internal/bench/probe"
)

// haproxyTCP is HAProxy in TCP mode: it passes bytes on, and knows nothing of
// what they are.
type haproxyTCP struct{}

func (haproxyTCP) Name() string   { return "haproxy-tcp" }
func (haproxyTCP) HTTPOnly() bool { return false }

func (haproxyTCP) Params() []Param {
	return []Param{{Name: paramThreads, Check: positive(haproxyMaxThreads)}}
}

func (haproxyTCP) Versions(ctx context.Context) (map[string]string, error) {
	return haproxyVersion(ctx)
}

func (haproxyTCP) Obstacle(params Params, concurrency int, limits probe.Limits) string {
	return haproxyObstacle(params, concurrency, limits, haproxySpliceFiles)
}

func (haproxyTCP) Start(ctx context.Context, setup Setup, params Params) (Running, error) {
	return startHAProxy(ctx, setup, params, haproxyTCPConfig, haproxySpliceFiles, func(haproxyValues) string {
		return "HAProxy in TCP mode, round robin, option splice-auto; without health checks, which would be connections to the servers as well"
	})
}
