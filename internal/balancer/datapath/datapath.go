// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"sync"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/datapath/attach"
	"github.com/jeoul/jeoul/internal/balancer/datapath/checkpath"
	"github.com/jeoul/jeoul/internal/balancer/datapath/flowsync"
	"github.com/jeoul/jeoul/internal/balancer/datapath/flowtable"
	"github.com/jeoul/jeoul/internal/balancer/datapath/generation"
	"github.com/jeoul/jeoul/internal/balancer/datapath/keeper"
	"github.com/jeoul/jeoul/internal/balancer/datapath/loader"
	"github.com/jeoul/jeoul/internal/balancer/datapath/localsockets"
	"github.com/jeoul/jeoul/internal/balancer/datapath/readview"
	"github.com/jeoul/jeoul/internal/balancer/datapath/sharedmaps"
	"github.com/jeoul/jeoul/internal/balancer/datapath/tracing"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// Options say where and how to forward.
type Options struct {
	// Interfaces are the names, in the caller's network namespace, of the interfaces to attach to until a State names
	// others; at least one. Packets for a VIP are taken on each of them, all by the same hook.
	Interfaces []string
	// Hook is the hook to attach to until a State names one.
	Hook lb.Hook
	// TableSize is the number of slots, a prime, of the hash tables of services that do not set one; 0 means by the
	// number of backends: lb.DefaultTableSize.
	TableSize uint32
	// FlowLimit bounds the proven flows that are remembered, and UnprovenLimit the
	// unproven ones; 0 means DefaultFlowLimit (where no service
	// tracks its flows: DefaultPinLimit) and DefaultUnprovenLimit. Each takes 64 bytes
	// of kernel memory, whether there is such a flow or not.
	FlowLimit, UnprovenLimit uint32
	// Timeouts are how long idle flows keep their entries.
	Timeouts lb.Timeouts
	// TooBigRate is how many packets a second each CPU may answer with "too
	// big"; 0 means DefaultTooBigRate.
	TooBigRate uint32
	// DisableFeature switches a feature of an interface off, by the kernel's name for it, until the balancer ends or
	// RestoreFeature switches it on again: the offloads by which a device hides VLAN tags from XDP. Nil where nothing
	// is to be changed on the host.
	DisableFeature, RestoreFeature func(name, feature, why string) error
	// WithClsact gives an interface the queueing discipline clsact if it has none, and calls attach with whether the
	// balancer added it; attach attaches a filter whose name says so. Until attach has returned, a note outside of this
	// process says that clsact is the balancer's. Nil: there is no note.
	WithClsact func(name string, attach func(ours bool) error) error
	// Keep makes the data plane outlive its process, and takes over one that has; nil: it ends with the process. Open's
	// caller closes the store if Open fails.
	Keep *keeper.Location
	// Orphan is how long a kept data plane forwards without a process; 0 is for ever. After it, packets for the VIPs
	// are left to the kernel.
	Orphan time.Duration
}

func (o Options) withDefaults() Options {
	for _, option := range []struct {
		value    *uint32
		standard uint32
	}{
		{&o.UnprovenLimit, lb.DefaultUnprovenLimit},
		{&o.TooBigRate, lb.DefaultTooBigRate},
	} {
		if *option.value == 0 {
			*option.value = option.standard
		}
	}
	return o
}

// Datapath forwards on its interfaces. Its methods may be called from several
// goroutines; those that touch the interfaces must run in their namespace.
type Datapath struct {
	// Reading methods do not wait for a change under way.
	*readview.Reader
	*flowsync.Exchange

	options Options
	// findPorts looks the interfaces up again: a MAC address may have changed.
	findPorts func(names []string) ([]attach.Port, error)
	// attempts lists the methods of attaching; tests replace it.
	attempts func(lb.Hook, []attach.Port) []attach.Attempt
	// programs returns the kind of programs to load for a hook; tests that only attach load a short program.
	programs func(lb.Hook) loader.Kind
	kernel   loader.Kernel
	// detached: programs are loaded and never attached.
	detached bool
	// now returns the time by which windows end; tests replace it.
	now func() time.Time
	// secret seeds the hash of the tables of flows, so that no sender can aim its flows at one bucket.
	secret uint64

	// captures is held while a capture begins or ends: mu is free while programs are loaded for it. It is locked before
	// mu.
	captures sync.Mutex
	// loading is held for reading while programs are loaded without mu, by maps that must stay open. It is locked after
	// mu.
	loading sync.RWMutex

	mu       sync.Mutex
	current  *loader.Programs
	shared   *sharedmaps.Maps
	register *generation.Register
	ledger   sharedmaps.Ledger
	janitor  *flowtable.Janitor
	// previous are further tables of flows that were found at the start; they are kept until the first change.
	previous *sharedmaps.PreviousFlows
	// plan is the kernel memory in use.
	plan lb.MemoryPlan
	// holds[i] keeps the program on the i-th interface; none before the first
	// Apply, and none of a detached datapath.
	holds       []attach.Hold
	attachments []lb.Attachment
	// hook is the requested hook, and method how programs are attached; zero before the first Apply.
	hook   lb.Hook
	method attach.Method
	// tags are the VLAN tags that devices strip from frames, and the offloads switched off so that XDP sees them.
	tags attach.Tags
	// published is the view of the data plane in use, for readers.
	published *readview.Published
	// standby is not 0 where packets for the VIPs are passed to the kernel, because another balancer has the VIPs.
	standby uint16
	// tracing has the maps that programs are loaded with while packets are traced or captured.
	tracing *tracing.Loaded
	// recordNames has the names of the values in trace records; nil until packets are traced.
	recordNames *tracing.Names
	// checks sends health checks, if that is open.
	checks *checkpath.Checks
	// sockets are the programs at sockets of this host; nil where there are none.
	sockets *localsockets.Sockets
	closed  bool
	// noAttachType: the links take programs without an attach type.
	noAttachType bool
	// keeper is nil where nothing outlives the process.
	keeper *keeper.Keeper
	// leftovers are the attachments that a killed process was about to remove.
	leftovers []attach.Leftover
	// corrections say for the next note what others had changed and was changed back; lastPutBackFailure says why
	// programs could not be put back.
	corrections        []string
	lastPutBackFailure string
	// notes are messages about the data plane that was taken over, and absent is for how long it had no process.
	notes  []string
	absent time.Duration
	// flowsCounted signals that flows of full NAT have been counted again.
	flowsCounted chan struct{}
	// stop ends the goroutine that expires flows; expiring says that it runs.
	stop     chan struct{}
	expiring bool
}
