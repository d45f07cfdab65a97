// SPDX-License-Identifier: Apache-2.0

// Package subject defines a balancer that can be weighed: its parameters, its needs of the machine, its start in a
// laboratory and its abilities while it runs. It also has the parts that several of them are set up with: programs,
// configurations, servers that hold the VIP, a router before several balancers. The balancers themselves are in the
// folders below, by family; package subjects lists them.
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
	// ErrParam: the subject does not accept a parameter's value.
	ErrParam = errors.New("not a possible value")
	// ErrNotUp: a subject was started and did not come up.
	ErrNotUp = errors.New("the subject did not come up")
)

// Subject is a way for clients to reach servers.
type Subject interface {
	// Name is the subject's name in suites and results.
	Name() string
	// Params are its parameters; a suite gives each of them a list of values, but for optional ones.
	Params() []Param
	// Versions returns the versions of the programs that it runs, by name.
	Versions(ctx context.Context) (map[string]string, error)
	// Obstacle returns the reason why this machine cannot run the subject with params under so many connections at
	// once; empty if there is none.
	Obstacle(params Params, concurrency int, limits probe.Limits) string
	// Can returns the abilities that it declares.
	Can() Abilities
	// Start sets the subject up. It is ready when Start returns; if Start fails,
	// nothing of it is left.
	Start(ctx context.Context, setup Setup, params Params) (Running, error)
}

// Running is a subject that was started.
type Running interface {
	// Target is the address that client number i (from 0) has to ask.
	Target(i int) netip.AddrPort
	// Cores is how many cores the subject can use at most; 0 if nothing but the
	// machine bounds it.
	Cores() float64
	// Notes describe the set-up, as far as a reader of the figures must know it.
	Notes() []string
	// Quiesce ends the connections that the subject itself holds: a proxy's to
	// the servers. Those of the clients may still be closing, so all addresses
	// must go on answering.
	Quiesce(ctx context.Context) error
	// Stop takes the subject down, with or without Quiesce before it, and undoes what Start did.
	Stop(ctx context.Context) error
}

// Relaying is a running subject that has a process for each server.
type Relaying interface {
	// CPUTimes returns the CPU time of each of the processes by its CPU clock, the packet work included that ran on
	// top of it.
	CPUTimes() ([]time.Duration, error)
}
