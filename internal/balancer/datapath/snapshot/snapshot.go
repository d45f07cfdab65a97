// SPDX-License-Identifier: Apache-2.0

// Package snapshot encodes and decodes the state of a data plane that only its process has and that the maps do not:
// the owners of indices, the recipes of tables, the bases of transitions. A snapshot is a file that is written before
// each change, and from which the next process restores the state.
package snapshot

import (
	"errors"
	"maps"
	"net/netip"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// Errors that a caller may test for.
var (
	// ErrDamaged: the file is no snapshot, incomplete or inconsistent.
	ErrDamaged = errors.New("the snapshot of the data plane is damaged")
	// ErrVersion: this version of jeoul does not support the format.
	ErrVersion = errors.New("the snapshot of the data plane is of another version of jeoul")
)

const (
	format = "jeoul-data-plane"
	// Version is the version of this format, and oldest the oldest supported one. Version 3 added Flows, 4 added
	// Elements, 5 services that are hairpins, and 6 added Pool.
	Version = 6
	oldest  = 2
)

// Snapshot is a data plane at one time.
type Snapshot struct {
	Head
	Services []Service
}

// Head is the first line of a snapshot: all that does not belong to a single service.
type Head struct {
	Format  string `json:"format"`
	Version int    `json:"version"`
	// Number counts snapshots; the data plane's memory has the number of the valid one.
	Number  uint64    `json:"number"`
	Written time.Time `json:"written"`
	// Cookie identifies the network namespace: the directory's name may be that of a deleted namespace.
	Cookie uint64 `json:"cookie"`
	// Layouts identify, by the name of a shared map, the layout of its elements.
	Layouts map[string]string `json:"layouts"`
	// Flows is the layout of the tables of flows, by which another build reads them.
	Flows *FlowLayout `json:"flow_layout,omitempty"`
	// Elements are the layouts of other maps that another build reads, by their names.
	Elements map[string]ElementLayout `json:"element_layouts,omitempty"`
	// Outcomes are the names of the counters of outcomes, in their order, and CountedOutcomes the counts of maps that
	// were replaced.
	Outcomes        []string          `json:"outcomes,omitempty"`
	CountedOutcomes map[string]uint64 `json:"counted_outcomes,omitempty"`
	// Interfaces are the interfaces of the programs, in order.
	Interfaces []Interface `json:"interfaces"`
	// Leaving are interfaces that the change removes.
	Leaving []Interface `json:"leaving,omitempty"`
	// Hook is the requested hook.
	Hook lb.Hook `json:"hook"`
	// Secret seeds the hash of the tables of flows.
	Secret uint64 `json:"secret"`
	// Generations[i] counts the owners of backend index i, and their removals.
	Generations []uint16 `json:"generations"`
	// Free are the free indices, the longest free one first.
	Free []uint32 `json:"free,omitempty"`
	// IDs is the first service id that no service has had; FreeIDs may be reused, and Quarantine not yet.
	IDs        uint32   `json:"ids"`
	FreeIDs    []uint32 `json:"free_ids,omitempty"`
	Quarantine []uint32 `json:"quarantine,omitempty"`
	// GroupIDs is the first id that no group has had.
	GroupIDs uint32 `json:"group_ids,omitempty"`
	// Pool are full NAT's addresses by their numbers, first IPv4 and then IPv6, including some that are no longer in
	// the pool.
	Pool []netip.Addr `json:"pool,omitempty"`
	// LastList is the last number that was given to a list of prefixes.
	LastList uint32 `json:"last_list,omitempty"`
	// Previous are the endpoints of removed backends. Earlier builds read them by the name "former".
	Previous []Endpoint `json:"former,omitempty"`
	// Before has the counts of backend indices when their owners got them, and Carried their counts in maps that were
	// replaced.
	Before  []Count `json:"before,omitempty"`
	Carried []Count `json:"carried,omitempty"`
	// Shown are features of interfaces that were switched off, so that XDP sees VLAN tags.
	Shown []Feature `json:"shown,omitempty"`
	// Lines is the number of services.
	Lines int `json:"services"`
}

// FlowLayout has the offsets of the fields of a table of flows.
type FlowLayout struct {
	// Bucket is the size of an element of the table in bytes, and Flow that of a flow in it.
	Bucket int `json:"bucket"`
	Flow   int `json:"flow"`
	// Fields are the fields of a bucket and, with the prefix "flows.", those of a flow.
	Fields map[string]Field `json:"fields"`
	// States are the values of enum flow_state, Numbers those of enum flow_table.
	States  map[string]uint64 `json:"states"`
	Numbers map[string]uint64 `json:"numbers"`
}

// ElementLayout has the offsets of the fields of an element of a map, and its size in bytes.
type ElementLayout struct {
	Size   int              `json:"size"`
	Fields map[string]Field `json:"fields"`
}

// Equal reports whether two layouts are the same.
func (l ElementLayout) Equal(o ElementLayout) bool {
	return l.Size == o.Size && maps.Equal(l.Fields, o.Fields)
}

// Field is the offset and size of a field, in bytes.
type Field struct {
	Offset int `json:"offset"`
	Size   int `json:"size"`
}

// Interface is an interface with a program.
type Interface struct {
	Name  string `json:"name"`
	Index int    `json:"index"`
}

// Feature is a feature of an interface, by the kernel's name for it.
type Feature struct {
	Link string `json:"link"`
	Name string `json:"name"`
}

// Endpoint is the endpoint of a removed backend (mode nat), and the source to which its replies are translated.
type Endpoint struct {
	Address    netip.AddrPort `json:"address"`
	Protocol   lb.Protocol    `json:"protocol"`
	VIP        netip.AddrPort `json:"vip"`
	MSS        uint16         `json:"mss,omitempty"`
	Index      uint32         `json:"index"`
	Exceptions uint32         `json:"exceptions,omitempty"`
	Until      time.Time      `json:"until"`
}

// Count has the counters of a backend index.
type Count struct {
	Index           uint32 `json:"index"`
	Packets         uint64 `json:"packets"`
	Bytes           uint64 `json:"bytes"`
	Connections     uint64 `json:"connections"`
	ReturnedPackets uint64 `json:"returned_packets"`
	ReturnedBytes   uint64 `json:"returned_bytes"`
	Answered        uint64 `json:"answered,omitempty"`
	Refused         uint64 `json:"refused,omitempty"`
	Unreachable     uint64 `json:"unreachable,omitempty"`
}

// Service is a service with its numbers, tables and transition.
type Service struct {
	// Service is without its backends, which are Backends.
	lb.Service
	Backends   []Backend `json:"backends"`
	ID         uint32    `json:"id"`
	GroupID    uint32    `json:"group_id,omitempty"`
	Exceptions uint32    `json:"exceptions,omitempty"`
	// Clients is the number of the list of the clients that it serves.
	Clients uint32 `json:"clients,omitempty"`
	// Places[i] is the place of Backends[i].
	Places []Place `json:"places"`
	// Table is the table for new flows; Base is the table before the first change of a transition, and Last the last
	// one with members where Table has none.
	Table Recipe  `json:"table"`
	Base  *Recipe `json:"base,omitempty"`
	Last  *Recipe `json:"last,omitempty"`
	// Moved are the slots whose backend has changed.
	Moved *Slots    `json:"moved,omitempty"`
	Since time.Time `json:"since,omitzero"`
	Until time.Time `json:"until,omitzero"`
}

// Backend is a backend with its observed condition, which includes readiness by its origin (lb.Backend.NotReady).
type Backend struct {
	lb.Backend
	Unhealthy string `json:"unhealthy,omitempty"`
	Ejected   bool   `json:"ejected,omitempty"`
	Standby   bool   `json:"standby,omitempty"`
}

// BackendsOf returns the backends of a service for a snapshot.
func BackendsOf(s *lb.RoutedService) []Backend {
	all := make([]Backend, len(s.Backends))
	for i, b := range s.Backends {
		o := s.Observed.Of(i)
		all[i] = Backend{Backend: b, Unhealthy: o.Unhealthy, Ejected: o.Ejected, Standby: o.Standby}
	}
	return all
}

// Unrouted returns the service with its backends, with their observed condition and without paths.
func (s *Service) Unrouted() lb.RoutedService {
	service := lb.RoutedService{Service: s.Service}
	service.Backends = make([]lb.Backend, len(s.Backends))
	for i, b := range s.Backends {
		service.Backends[i] = b.Backend
	}
	service.Observed = lb.ObservationsOf(len(s.Backends), func(i int) lb.Observed {
		b := &s.Backends[i]
		return lb.Observed{Unhealthy: b.Unhealthy, Ejected: b.Ejected, Standby: b.Standby}
	})
	return service
}

// Place is a backend's index and generation; the generation distinguishes owners of an index, and is not 0.
type Place struct {
	Index      uint32 `json:"index"`
	Generation uint16 `json:"generation"`
}

// Recipe has the inputs of a table: see the data plane's tables.
type Recipe struct {
	Scheduler lb.Scheduler     `json:"scheduler"`
	Size      uint32           `json:"size"`
	All       []netip.AddrPort `json:"all"`
	Shares    []uint32         `json:"shares"`
	Owners    []netip.AddrPort `json:"owners"`
	Weights   []uint32         `json:"weights"`
	// Absent lists which of All, by number, are not among Owners.
	Absent []int `json:"absent,omitempty"`
}

// Slots is a set of slots of a table of Size, a bit for each, 64 to a word.
type Slots struct {
	Size uint32   `json:"size"`
	Bits []uint64 `json:"bits"`
}
