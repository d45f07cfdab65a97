// SPDX-License-Identifier: Apache-2.0

package subject

import (
	"context"

	"github.com/jeoul/jeoul/internal/weigh/bench/probe"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// haproxyTCP is HAProxy in TCP mode: it passes bytes on, and knows nothing of
// what they are.
type haproxyTCP struct{}

// paramSplice says whether HAProxy may have the kernel move bytes from socket to
// socket (option splice-auto), which pays for some traffic only.
const (
	paramSplice = "splice"
	spliceAuto  = "auto"
	spliceOff   = "off"
)

// haproxyTCPFiles are the open files for 100 connections.
func haproxyTCPFiles(params Params) uint64 {
	if params[paramSplice] == spliceAuto {
		return haproxySpliceFiles
	}
	return haproxyFiles
}

func (haproxyTCP) Name() string   { return "haproxy-tcp" }
func (haproxyTCP) HTTPOnly() bool { return false }

func (haproxyTCP) Params() []Param {
	return []Param{
		{Name: paramThreads, Check: positive(haproxyMaxThreads)},
		{Name: paramSplice, Check: oneOf(spliceAuto, spliceOff)},
	}
}

func (haproxyTCP) can() abilities {
	return abilities{changes: true, restarts: true, machines: anywhere[*lab.Lab], containers: anywhere[bool]}
}

func (haproxyTCP) Versions(ctx context.Context) (map[string]string, error) {
	return haproxyVersion(ctx)
}

func (haproxyTCP) Obstacle(params Params, concurrency int, limits probe.Limits) string {
	return haproxyObstacle(params, concurrency, limits, haproxyTCPFiles(params))
}

func (haproxyTCP) Start(ctx context.Context, setup Setup, params Params) (Running, error) {
	setup.Certificate = "" // it passes TLS on
	running, err := startHAProxy(ctx, setup, params, haproxyTCPConfig, haproxyTCPFiles(params),
		func(v haproxyValues) string {
			if len(v.Services) > 0 && v.Services[0].Check != nil {
				return "HAProxy in TCP mode, round robin; with health checks (httpchk), and redispatch of connections that a server refuses"
			}
			return "HAProxy in TCP mode, round robin; without health checks, which would be connections to the servers as well"
		})
	if err != nil {
		return nil, err
	}
	return running, nil
}
