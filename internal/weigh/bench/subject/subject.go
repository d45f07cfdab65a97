// SPDX-License-Identifier: Apache-2.0

// Package subject says what a balancer that can be weighed is: what varies in it, what it needs of the machine, how it
// is set up in a laboratory and what it can while it runs. It has what several of them are set up with: programs,
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
	// ErrParam says that a parameter's value is not one that the subject takes.
	ErrParam = errors.New("not a possible value")
	// ErrNotUp says that a subject was started and did not come up.
	ErrNotUp = errors.New("the subject did not come up")
)

// Subject is a way for clients to reach servers.
type Subject interface {
	// Name is the subject's name in suites and results.
	Name() string
	// Params are what can vary in it; a suite gives each of them a list, but for optional
	// ones.
	Params() []Param
	// Versions returns the versions of the programs that it runs, by name.
	Versions(ctx context.Context) (map[string]string, error)
	// Obstacle says what keeps this machine from running the subject with
	// params under so many connections at once; empty if nothing.
	Obstacle(params Params, concurrency int, limits probe.Limits) string
	// Can returns what it declares that it can.
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
	// Notes say what a reader of the figures must know of the set-up.
	Notes() []string
	// Quiesce ends the connections that the subject itself holds: a proxy's to
	// the servers. Those of the clients may still be closing, so all addresses
	// must go on answering.
	Quiesce(ctx context.Context) error
	// Stop takes the subject down, with or without Quiesce before it, and takes
	// back what Start did.
	Stop(ctx context.Context) error
}

// Relaying is a running subject that has a process for each server.
type Relaying interface {
	// CPUTimes returns what each of the processes has used by its CPU clock, the packet
	// work included that ran on top of it.
	CPUTimes() ([]time.Duration, error)
}
