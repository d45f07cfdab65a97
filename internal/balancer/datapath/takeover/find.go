// SPDX-License-Identifier: Apache-2.0

package takeover

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cilium/ebpf"

	"github.com/jeoul/jeoul/internal/balancer/datapath/attach"
	"github.com/jeoul/jeoul/internal/balancer/datapath/flowtable"
	"github.com/jeoul/jeoul/internal/balancer/datapath/generation"
	"github.com/jeoul/jeoul/internal/balancer/datapath/keeper"
	"github.com/jeoul/jeoul/internal/balancer/datapath/localsockets"
	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
	"github.com/jeoul/jeoul/internal/balancer/datapath/pins"
	"github.com/jeoul/jeoul/internal/balancer/datapath/sharedmaps"
	"github.com/jeoul/jeoul/internal/balancer/datapath/snapshot"
)

// Found is an opened data plane of an earlier process. It is unchanged.
type Found struct {
	Store *pins.Store
	// Set is the number of the newest set of pins whose programs are attached, and Method is how they are attached.
	Set    uint64
	Method attach.Method
	// attached are all programs of ours on the interfaces.
	attached []attached
	// pinned are the programs of the set, by the index of their interface.
	pinned   map[int]*ebpf.Program
	Memory   *generation.Memory
	Snapshot *snapshot.Snapshot
	// Stale: changes were made after the snapshot.
	Stale  bool
	Shared *sharedmaps.Maps
	// Differ lists the shared maps that are recreated; Previous and Backends are the earlier counters, if theirs are
	// among these.
	Differ   []string
	Previous *sharedmaps.PreviousOutcomes
	Backends *sharedmaps.ForeignElements
	// Flows are tables of flows that are not among the shared maps; foreignLayout is the layout of the snapshot's
	// tables where it differs from this build's.
	Flows         *sharedmaps.PreviousFlows
	foreignLayout *flowtable.ForeignLayout
	// Ports are the interfaces of the snapshot, and Holds[i] keeps Programs[i] on Ports[i].
	Ports    []attach.Port
	Holds    []attach.Hold
	Programs []*ebpf.Program
	// Others are the attachments of other programs.
	Others []attach.Leftover
	// Sockets are the programs at sockets, nil where there are none. SocketsNote says why those that were attached
	// could not be opened.
	Sockets     *localsockets.Sockets
	SocketsNote string
}

// Unusable is the reason why no process can use the kept data plane.
type Unusable struct{ reason string }

// Error returns the reason.
func (u *Unusable) Error() string { return u.reason }

// Find finds and opens the kept data plane. After an error, attached programs stay. Errors: *Unusable.
func Find(k *keeper.Keeper, sets []uint64) (*Found, error) {
	f := &Found{Store: k.Store}
	if err := f.find(k, sets); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// find opens the kept data plane.
func (f *Found) find(k *keeper.Keeper, sets []uint64) error {
	if err := f.findAttached(sets, k.Interfaces()); err != nil {
		return err
	}
	var err error
	if f.Memory, err = generation.OpenMemory(f.Store.Path(pins.Set(f.Set), keeper.GenerationPin)); err != nil {
		return err
	}
	number := f.Memory.Head().Snapshot
	if f.Snapshot, err = k.Newest(number); err != nil {
		return err
	}
	if err := f.check(k, number); err != nil {
		return err
	}
	if err := f.selectOurs(); err != nil {
		return err
	}
	if f.Shared, err = f.openShared(f.Set); err != nil {
		return err
	}
	if f.Sockets, f.SocketsNote, err = localsockets.Find(f.Store, f.Set); err != nil {
		return err
	}
	return f.findUnfinishedTables(k, sets)
}

// check compares the snapshot with the pinned set.
func (f *Found) check(k *keeper.Keeper, number uint64) error {
	s := f.Snapshot
	f.Stale = s.Number != number
	if s.Cookie != k.Cookie {
		return &Unusable{"it is of a network namespace that is gone"}
	}
	var err error
	if f.Differ, err = sharedmaps.OtherLayouts(s.Layouts, s.Elements); err != nil {
		return err
	}
	f.Flows = &sharedmaps.PreviousFlows{}
	if !slices.Contains(f.Differ, objects.XDPMapFlows) {
		return nil
	}
	if f.foreignLayout, err = flowtable.NewForeignLayout(s.Flows); err != nil {
		return fmt.Errorf("%w: its maps %s are laid out differently, and %v", snapshot.ErrVersion,
			strings.Join(sharedmaps.FlowMaps, ", "), err)
	}
	return nil
}
