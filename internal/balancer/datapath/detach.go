// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/datapath/attach"
	"github.com/jeoul/jeoul/internal/balancer/datapath/generation"
	"github.com/jeoul/jeoul/internal/balancer/datapath/pins"
	"github.com/jeoul/jeoul/internal/balancer/datapath/snapshot"
)

// Kept is what is known of a data plane without its process.
type Kept struct {
	// Dir is where its pins are.
	Dir string
	// Interfaces are those that it takes packets on; Changed is when its configuration last
	// changed.
	Interfaces []string
	Services   int
	Changed    time.Time
	// FailOpen is when packets for the VIPs begin or began to be left to the kernel, but for a part of a second; zero
	// where that never comes, or cannot be told. IsAside says whether they are left to it now.
	FailOpen   time.Time
	IsFailOpen bool
}

// ReadKept says what is kept, without touching it. What it cannot tell is an error, and Dir
// is known all the same.
func ReadKept(keep *Keep) (Kept, error) {
	k, kept := newKeeper(keep), Kept{Dir: keep.Store.Dir()}
	s, err := k.read()
	if err != nil {
		return kept, err
	}
	for _, i := range s.Interfaces {
		kept.Interfaces = append(kept.Interfaces, i.Name)
	}
	kept.Services, kept.Changed = len(s.Services), s.Written
	kept.FailOpen, kept.IsFailOpen, err = k.failOpenAt()
	return kept, err
}

// FirstInterface returns the interface that carries the VIPs of what a process keeps, or has left:
// its index, and the name that it had. It asks for no lock.
func FirstInterface(keep *Keep) (index int, name string, err error) {
	s, err := newKeeper(keep).read()
	if err != nil {
		return 0, "", err
	}
	if s.Cookie != keep.Cookie || len(s.Interfaces) == 0 {
		return 0, "", fmt.Errorf("it is of another network namespace: %w", attach.ErrNoInterface)
	}
	return s.Interfaces[0].Index, s.Interfaces[0].Name, nil
}

// read returns the newest snapshot.
func (k *keeper) read() (*snapshot.Snapshot, error) { return k.newest(k.latest(0)) }

// failOpenAt returns when what is kept steps aside (zero: never), and whether it has: that is its own to say, for it
// looks at the time four times a second.
func (k *keeper) failOpenAt() (when time.Time, is bool, err error) {
	sets, err := k.Store.Sets()
	if err != nil || len(sets) == 0 {
		return when, false, err
	}
	m, err := generation.OpenMemory(k.Store.Path(pins.Set(sets[len(sets)-1]), generationPin))
	if err != nil {
		return when, false, err
	}
	defer m.Map.Close()
	defer m.Storage.Unmap()
	head := m.Head()
	moved, patience := atomic.LoadUint64(&head.Moved), atomic.LoadUint32(&head.Patience)
	if moved != 0 && patience != 0 {
		when = monotonicZero().Add(time.Duration(moved) + time.Duration(patience)*time.Millisecond)
	}
	return when, head.Orphaned != 0, nil
}

// Sweep removes what is kept where it was attached by links, and none of them is on an interface
// any more: those, or their network namespace, are gone. It says whether it has.
func Sweep(keep *Keep) (swept bool, err error) {
	names, err := keep.Store.Links()
	// Programs at sockets are on no interface.
	names = slices.DeleteFunc(names, func(n string) bool { return strings.HasPrefix(n, socketPrefix) })
	if err != nil || len(names) == 0 {
		return false, err // a filter may be attached, which shows by nothing here
	}
	for _, name := range names {
		on, err := attach.InterfaceOf(keep.Store.Path("", name))
		if err != nil || on != 0 {
			return false, err
		}
	}
	return true, newKeeper(keep).forget()
}
