// SPDX-License-Identifier: Apache-2.0

package keeper

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/datapath/attach"
	"github.com/jeoul/jeoul/internal/balancer/datapath/flowtable"
	"github.com/jeoul/jeoul/internal/balancer/datapath/generation"
	"github.com/jeoul/jeoul/internal/balancer/datapath/pins"
	"github.com/jeoul/jeoul/internal/balancer/datapath/snapshot"
)

// Kept describes a data plane that is kept without its process.
type Kept struct {
	// Dir is where its pins are.
	Dir string
	// Interfaces are those that it takes packets on; Changed is when its configuration last
	// changed.
	Interfaces []string
	Services   int
	Changed    time.Time
	// FailOpen is when packets for the VIPs begin or began to be left to the kernel, to within a second; zero where
	// they never will be, or where that is unknown. IsFailOpen reports whether they are left to it now.
	FailOpen   time.Time
	IsFailOpen bool
}

// Read describes the data plane that is kept, without touching it. Of one that cannot be read it returns an error, and
// Dir all the same.
func Read(keep *Location) (Kept, error) {
	k, kept := New(keep), Kept{Dir: keep.Store.Dir()}
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

// FirstInterface returns the interface that carries the VIPs of a data plane that a process keeps, or has left: its
// index, and the name that it had. It takes no lock.
func FirstInterface(keep *Location) (index int, name string, err error) {
	s, err := New(keep).read()
	if err != nil {
		return 0, "", err
	}
	if s.Cookie != keep.Cookie || len(s.Interfaces) == 0 {
		return 0, "", fmt.Errorf("it is of another network namespace: %w", attach.ErrNoInterface)
	}
	return s.Interfaces[0].Index, s.Interfaces[0].Name, nil
}

// read returns the newest snapshot.
func (k *Keeper) read() (*snapshot.Snapshot, error) { return k.Newest(k.Latest(0)) }

// failOpenAt returns when the kept data plane fails open (zero: never), and whether it has: its own memory says so,
// since its timer checks four times a second.
func (k *Keeper) failOpenAt() (when time.Time, is bool, err error) {
	sets, err := k.Store.Sets()
	if err != nil || len(sets) == 0 {
		return when, false, err
	}
	m, err := generation.OpenMemory(k.Store.Path(pins.Set(sets[len(sets)-1]), GenerationPin))
	if err != nil {
		return when, false, err
	}
	defer m.Map.Close()
	defer m.Storage.Unmap()
	head := m.Head()
	moved, bound := atomic.LoadUint64(&head.Moved), atomic.LoadUint32(&head.OrphanTimeout)
	if moved != 0 && bound != 0 {
		when = flowtable.MonotonicZero().Add(time.Duration(moved) + time.Duration(bound)*time.Millisecond)
	}
	return when, head.Orphaned != 0, nil
}

// Sweep removes a kept data plane that was attached by links of which none is on an interface any more: the interfaces,
// or their network namespace, are gone. It reports whether it removed one.
func Sweep(keep *Location) (swept bool, err error) {
	names, err := keep.Store.Links()
	// Programs at sockets are on no interface.
	names = slices.DeleteFunc(names, func(n string) bool { return strings.HasPrefix(n, SocketPrefix) })
	if err != nil || len(names) == 0 {
		return false, err // a filter may be attached, of which there is no sign here
	}
	for _, name := range names {
		on, err := attach.InterfaceOf(keep.Store.Path("", name))
		if err != nil || on != 0 {
			return false, err
		}
	}
	return true, New(keep).RemoveAll()
}

// Interfaces are those that programs may be on, according to the snapshots.
func (k *Keeper) Interfaces() (ports []attach.Port) {
	numbers, _ := k.Snapshots()
	for _, number := range numbers {
		data, err := k.load(number)
		if err != nil {
			continue
		}
		s, err := snapshot.DecodeHead(data)
		if err != nil {
			continue // it matters only if it is the one that holds
		}
		for _, i := range slices.Concat(s.Interfaces, s.Leaving) {
			if p := (attach.Port{Name: i.Name, Index: i.Index}); !slices.ContainsFunc(ports, p.SameInterface) {
				ports = append(ports, p)
			}
		}
	}
	return ports
}

// Unpinned says that a process has left a snapshot, and that nothing of the data plane in it is pinned; empty where
// there is none. Where its program is attached all the same, its pins are out of sight, and that is an error.
func (k *Keeper) Unpinned() (because string, err error) {
	s, err := k.read()
	if err != nil || s.Cookie != k.Cookie {
		return "", nil
	}
	for _, i := range s.Interfaces {
		if id, there := attach.OursOn(attach.Port{Name: i.Name, Index: i.Index}); there {
			return "", fmt.Errorf(
				"nothing is pinned in %s of the data plane whose program (id %d) is on %s: if a bpf file system was mounted over the one with its pins, unmount it (`findmnt /sys/fs/bpf`); if it is of another balancer, stop that", k.Store.Dir(), id, i.Name)
		}
	}
	return "nothing of it is pinned any more: its bpf file system was unmounted or mounted anew, or the machine was started anew", nil
}

// Detach takes the kept data plane off its interfaces, and removes it, also where another build has made it or it
// cannot be read. Without a store, since nothing is pinned, it removes filters, which need no pin. The interfaces are
// those that the data plane may be attached to besides those that its snapshot names. Call it in their network
// namespace.
func Detach(keep *Location, interfaces []string) error {
	k := New(keep)
	ports := k.Interfaces()
	for _, name := range interfaces {
		if nic, err := net.InterfaceByName(name); err == nil {
			ports = append(ports, attach.Port{Name: name, Index: nic.Index})
		}
	}
	err := errors.Join(attach.RemoveFilters(ports), attach.RemoveDispatched(ports, attach.IsOurs))
	if k.Store == nil {
		return err
	}
	// A start that finds programs attached needs their snapshot: so that is removed after they are detached.
	return errors.Join(err, k.Clear(), k.RemoveAll())
}
