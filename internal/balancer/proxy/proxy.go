// SPDX-License-Identifier: Apache-2.0

// Package proxy is the engine behind the services of mode proxy: it renders HAProxy's configuration, has HAProxy check
// it, and starts, changes, watches and ends HAProxy. The caller decides which backends take new connections.
package proxy

import (
	"context"
	"errors"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/proxy/snippet"
)

// Errors that a caller may test for.
var (
	// ErrNoProgram: HAProxy is not installed, or not at the configured path.
	ErrNoProgram = errors.New("HAProxy is not there")
	// ErrTooOld: HAProxy is older than MinVersion.
	ErrTooOld = errors.New("HAProxy is too old")
	// ErrRefused: HAProxy does not accept the configuration.
	ErrRefused = errors.New("HAProxy refuses the configuration")
	// ErrSnippet: lines of HAProxy's own language would reach beyond the section that they are for.
	ErrSnippet = snippet.Err
	// ErrValue: a value cannot be written into HAProxy's configuration.
	ErrValue = errors.New("cannot be handed to HAProxy")
	// ErrCertificate: a certificate cannot be served.
	ErrCertificate = errors.New("certificate cannot be served")
	// ErrEnded: Detach or Stop was called before.
	ErrEnded = errors.New("the proxy engine has been left or stopped")
)

// Desired is the desired state of the engine, as a whole.
type Desired struct {
	Engine   lb.ProxyEngine
	Services []Service
}

// Service is a service of mode proxy. Operations, health checks and conditions have been applied to its backends. A
// backend with Draining or weight 0 takes no new connections, and keeps its connections and persistent clients; one
// that is observed Unhealthy gets no connections, and loses those it has if lb.Checks.OnDown says so.
type Service struct {
	lb.Service
	// Observed are the observed states of Backends.
	Observed lb.Observations
	// Out are the indices of the Backends that an operation has taken out. They get no connections, and lose those that
	// they have, in contrast to backends that are no longer among the Backends.
	Out []int
}

// Counts are the counters of a service or a backend since the start of jeoul's data plane: a restart of HAProxy does
// not reset them.
type Counts struct {
	// Connections were accepted, and Active are open now.
	Connections, Active uint64
	// BytesIn came from clients, BytesOut went to them.
	BytesIn, BytesOut uint64
	// Requests were answered; Responses are those by the first digit of their status, 1 to 5, 0 for others.
	Requests  uint64
	Responses [6]uint64
	// Failed are failed connections to backends, Retried and Redispatched those tried again, at the same backend or at
	// another; Denied are clients' connections and requests that a rule rejected. Limits deny none: surplus connections
	// wait in the kernel's queue, where HAProxy does not see them.
	Failed, Retried, Redispatched, Denied uint64
	// Queued are requests that wait for a backend at its limit.
	Queued uint64
}

// Plus returns the sum of both counts. The gauges, Active and Queued, have no sum, and stay those of c.
func (c Counts) Plus(o Counts) Counts { return c.combine(o, func(a, b uint64) uint64 { return a + b }) }

// Minus likewise returns the difference of c and o.
func (c Counts) Minus(o Counts) Counts {
	return c.combine(o, func(a, b uint64) uint64 { return a - b })
}

// combine returns the counts with each counter combined with that of another.
func (c Counts) combine(o Counts, combine func(a, b uint64) uint64) Counts {
	for _, n := range []struct {
		of   *uint64
		more uint64
	}{{&c.Connections, o.Connections}, {&c.BytesIn, o.BytesIn}, {&c.BytesOut, o.BytesOut}, {&c.Requests, o.Requests},
		{&c.Failed, o.Failed}, {&c.Retried, o.Retried}, {&c.Redispatched, o.Redispatched}, {&c.Denied, o.Denied}} {
		*n.of = combine(*n.of, n.more)
	}
	for i := range c.Responses {
		c.Responses[i] = combine(c.Responses[i], o.Responses[i])
	}
	return c
}

// Stats are the engine's counters.
type Stats struct {
	Services map[lb.ServiceKey]Counts
	Backends map[lb.BackendKey]Counts
}

// State is the engine's process.
type State struct {
	// Version of HAProxy, as in "2.6.12-1+deb12u2"; Program is its path.
	Version, Program string
	// PID of the master, 0 where none runs, and since when it does.
	PID     int
	Started time.Time
	// Reloads since the master began, and Workers that run, those that a reload has replaced included.
	Reloads, Workers int
	// Problem names the fault and the remedy; empty: there is none.
	Problem string
}

// Engine is the running engine.
type Engine interface {
	// Validate has HAProxy check a desired state, without changing anything. Its error names the service and the field
	// of its configuration where it can: see FieldError.
	Validate(ctx context.Context, d Desired) error
	// Apply applies the desired state: by commands at the runtime socket if they suffice, otherwise by a reload, which
	// loses no connection. On an error the engine goes on as before. Without services HAProxy is stopped.
	Apply(ctx context.Context, d Desired) error
	// Stats returns the counters.
	Stats(ctx context.Context) (Stats, error)
	// State returns the state of the process.
	State() State
	// Changes is signalled when State has changed.
	Changes() <-chan struct{}
	// RenewCertificates gives HAProxy certificates whose files have changed, by the runtime socket, and authorities of
	// backends, by a reload. Its error is or wraps RenewalErrors if only some files are not taken.
	RenewCertificates(ctx context.Context) error
	// Detach ends the engine's watch, and leaves HAProxy serving, for the next process of this instance to adopt.
	Detach() error
	// Stop ends HAProxy, and removes its files.
	Stop(ctx context.Context) error
}

// FieldError is an error about one field of a service's proxy configuration.
type FieldError struct {
	Service lb.ServiceKey
	// Field is the path below the service, as in "proxy.certificates[0]"; empty where that is not known. Engine
	// says that it is a field of the engine's, not of a service.
	Field  string
	Engine bool
	Err    error
}

// Error returns the text of the error, without the place.
func (e *FieldError) Error() string { return e.Err.Error() }

// Unwrap returns the error, without the place.
func (e *FieldError) Unwrap() error { return e.Err }
