// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"

	"github.com/jeoul/jeoul/internal/weigh/bench/probe"
	"github.com/jeoul/jeoul/internal/weigh/bench/subject"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// haproxyTCP is HAProxy in TCP mode. It forwards bytes without parsing them.
type haproxyTCP struct{}

// haproxyTCPFiles returns the number of open files for 100 connections.
func haproxyTCPFiles(params subject.Params) uint64 {
	if params[paramSplice] == spliceAuto {
		return haproxySpliceFiles
	}
	return haproxyFiles
}

func (haproxyTCP) Name() string { return "haproxy-tcp" }

func (haproxyTCP) Params() []subject.Param {
	return []subject.Param{
		{Name: ParamThreads, Check: subject.Positive(haproxyMaxThreads)},
		{Name: paramSplice, Check: subject.OneOf(spliceAuto, spliceOff)},
	}
}

func (haproxyTCP) Can() subject.Abilities {
	return subject.Abilities{Changes: true, Restarts: true, Machines: subject.Anywhere[*lab.Lab],
		Containers: subject.Anywhere[bool]}
}

func (haproxyTCP) Versions(ctx context.Context) (map[string]string, error) {
	return haproxyVersion(ctx)
}

func (haproxyTCP) SkipReason(params subject.Params, concurrency int, limits probe.Limits) string {
	return haproxySkipReason(params, concurrency, limits, haproxyTCPFiles(params))
}

func (haproxyTCP) Start(ctx context.Context, setup subject.Setup, params subject.Params) (subject.Running, error) {
	setup.Certificate = "" // it forwards TLS
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
