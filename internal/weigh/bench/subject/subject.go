// SPDX-License-Identifier: Apache-2.0

// Package subject defines a balancer that can be measured: its parameters, its requirements of the machine, its start
// in a laboratory and its abilities while it runs. It also has the parts for setting up several subjects: programs,
// configurations, servers that hold the VIP, a router in front of several balancers. The balancers themselves are in
// the folders below, by family; package subjects lists them.
package subject

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"github.com/jeoul/jeoul/internal/weigh/bench/probe"
)

// Errors that callers may test for.
var (
	// ErrParam means that the subject does not accept a parameter's value.
	ErrParam = errors.New("not a possible value")
	// ErrNotUp means that a subject was started and did not become ready.
	ErrNotUp = errors.New("the subject did not come up")
)

// Subject is a method for clients to reach servers.
type Subject interface {
	// Name is the subject's name in suites and results.
	Name() string
	// Params returns the subject's parameters. A suite gives each of them a list of values, and may omit optional ones.
	Params() []Param
	// Versions returns the versions of the subject's programs, by name.
	Versions(ctx context.Context) (map[string]string, error)
	// SkipReason returns the reason why this machine cannot run the subject with params and that many concurrent
	// connections; empty if there is none.
	SkipReason(params Params, concurrency int, limits probe.Limits) string
	// Can returns the subject's abilities.
	Can() Abilities
	// Start sets the subject up. The subject is ready when Start returns. If Start fails, it leaves nothing behind.
	Start(ctx context.Context, setup Setup, params Params) (Running, error)
}

// Running is a started subject.
type Running interface {
	// Target returns the address that client number i (from 0) has to use.
	Target(i int) netip.AddrPort
	// Cores returns the maximum number of cores that the subject can use; 0 if only the machine limits it.
	Cores() float64
	// Notes describe the set-up for readers of the figures.
	Notes() []string
	// Quiesce ends the connections that the subject itself holds, such as those of a proxy to the servers. The clients'
	// connections may still be closing, so all addresses must continue to answer.
	Quiesce(ctx context.Context) error
	// Stop stops the subject, with or without Quiesce before it, and undoes everything that Start did.
	Stop(ctx context.Context) error
}

// Relaying is a running subject that has a process for each server.
type Relaying interface {
	// CPUTimes returns the CPU time of each of the processes by its CPU clock, including the packet work that ran on
	// top of it.
	CPUTimes() ([]time.Duration, error)
}
