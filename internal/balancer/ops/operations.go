// SPDX-License-Identifier: Apache-2.0

package ops

import (
	"errors"
	"net/netip"
	"time"
)

// Errors of operations that callers may test for. Nothing was changed then.
var (
	// ErrNotFound: no service or backend has that name.
	ErrNotFound = errors.New("not found")
	// ErrRefused: it would do harm, or have no effect.
	ErrRefused = errors.New("refused")
	// ErrBadRequest: it is invalid in any state of the balancer.
	ErrBadRequest = errors.New("not possible")
	// ErrStopping: the balancer is stopping, and its operations end with it.
	ErrStopping = errors.New("the balancer is stopping")
	// ErrNotReloaded: the configuration file could not be put in force.
	ErrNotReloaded = errors.New("not reloaded; the balancer goes on as it was")
)

// Reloaded is a reload that was put in force.
type Reloaded struct {
	File string `json:"file"`
	// Warnings name the parts of it that a restart may lose, although they are in force.
	Warnings []string `json:"warnings,omitempty"`
}

// Verb names the kind of an operation.
type Verb string

// The operations.
const (
	// Drain lets a backend finish its flows, and gives it no new ones.
	Drain Verb = "drain"
	// Disable takes a backend out of its service at once, which ends its flows.
	Disable Verb = "disable"
	// Enable gives a drained or disabled backend new flows again; by force, also one whose health
	// checks fail.
	Enable Verb = "enable"
	// Weight gives a backend another share of new flows.
	Weight Verb = "weight"
	// Undo undoes the latest operation that was not undone yet.
	Undo Verb = "undo"
)

// Order is a request for an operation.
type Order struct {
	Verb Verb
	// Service and Backend are names; Undo has none.
	Service, Backend string
	// AllServices means the backends of that address in every service.
	AllServices bool
	// Deadline of Drain: a backend that is still drained after this time is taken
	// out of its service; 0 means never.
	Deadline time.Duration
	// Weight of Weight, 0..65535.
	Weight int64
	// Force of Enable: new flows whatever health checks and ejections say.
	Force bool
	// By is the name of the requesting client, for the log.
	By string
}

// Target is a backend of a service.
type Target struct {
	Service string     `json:"service"`
	Backend string     `json:"backend"`
	Address netip.Addr `json:"address"`
	Port    uint16     `json:"port"`
}

// String returns "web/web01", as the command line has it.
func (t Target) String() string { return t.Service + "/" + t.Backend }

// Operation is an operation that was done.
type Operation struct {
	Verb    Verb      `json:"verb"`
	Targets []Target  `json:"targets"`
	By      string    `json:"by"`
	At      time.Time `json:"at"`
	// Deadline of Drain; zero: none.
	Deadline time.Time `json:"deadline,omitzero"`
	// Weight of Weight.
	Weight *uint16 `json:"weight,omitempty"`
	// Forced: Enable by force.
	Forced bool `json:"forced,omitempty"`
	// Notes are remarks on the operation, a line each.
	Notes []string `json:"notes,omitempty"`
	// Lost is the reason why it can no longer be undone; empty if it can.
	Lost string `json:"lost,omitempty"`
	// Undone is the operation that was undone.
	Undone *Operation `json:"undone,omitempty"`
}

// Operations are the changes made at run time, which end with the process.
type Operations struct {
	// InForce are the backends that differ from the configuration, in its order, and then absent ones.
	InForce []Overlay `json:"in_force"`
	// History are operations that can be undone, the latest first.
	History []Operation `json:"history"`
}

// Overlay is the state of one backend that operations have changed. It stays with the names of the service and the
// backend, whatever addresses these have.
type Overlay struct {
	Target
	// Absent is the time since which a discovered backend has been missing; zero: it is present. Target has its last
	// address.
	Absent time.Time `json:"absent,omitzero"`
	Drain  *Drained  `json:"drain,omitempty"`
	Weight *Weighted `json:"weight,omitempty"`
	Forced *Forced   `json:"forced,omitempty"`
	// Left has the flows that the backend still has.
	Left Left `json:"left"`
}

// Drained is a backend that operations have drained or, where the configuration
// drains it, enabled.
type Drained struct {
	// On is false where the configuration drains the backend and operations do not.
	On bool      `json:"on"`
	By string    `json:"by"`
	At time.Time `json:"at"`
	// Deadline is when it is taken out of the service; zero: never.
	Deadline time.Time `json:"deadline,omitzero"`
	// Out: it was taken out, at its deadline or because it was disabled; then AtDeadline has the flows that were left,
	// if they could be read.
	Out        bool  `json:"out"`
	AtDeadline *Left `json:"at_deadline,omitempty"`
}

// StateName names the backend's state: "drain", "disable", "out" after the deadline of a drain, or "enable" where the
// configuration drains it.
func (d Drained) StateName() string {
	switch {
	case d.Out && d.Deadline.IsZero():
		return string(Disable)
	case d.Out:
		return "out"
	case d.On:
		return string(Drain)
	}
	return string(Enable)
}

// Weighted is a weight that operations have set.
type Weighted struct {
	Value uint16 `json:"value"`
	// Configured is the weight in the configuration.
	Configured uint16    `json:"configured"`
	By         string    `json:"by"`
	At         time.Time `json:"at"`
}

// Forced is a backend that takes new flows whatever health checks and ejections say.
type Forced struct {
	By string    `json:"by"`
	At time.Time `json:"at"`
}

// Left are the flows that a backend still has.
type Left struct {
	// Flows is the number of remembered flows to it, including ended ones until they expire; at most some seconds old.
	Flows uint64 `json:"flows"`
	// Tracked: the service remembers every flow; then Active are those that have not ended.
	Tracked bool   `json:"tracked"`
	Active  uint32 `json:"active"`
	// Packets were sent to it so far.
	Packets uint64 `json:"packets"`
	// Until is the end of the transition if flows are not tracked: an idle flow is remembered from its next packet on,
	// if that comes before. Zero: it is over.
	Until time.Time `json:"until,omitzero"`
}
