// SPDX-License-Identifier: Apache-2.0

package keeper

import (
	"errors"
	"fmt"
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
	// Dir is the directory of its pins.
	Dir string
	// Interfaces are the interfaces that it is attached to; Changed is when its configuration last changed.
	Interfaces []string
	Services   int
	Changed    time.Time
	// FailOpen is when the data plane passes or passed packets for the VIPs to the kernel, to within a second; zero
	// where it never does, or where that is unknown. IsFailOpen reports whether it passes them now.
	FailOpen   time.Time
	IsFailOpen bool
}

// Read describes the kept data plane, without changing it. With an error it returns Dir only.
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

// FirstInterface returns the index and the recorded name of the interface of the VIPs of a kept data plane, with or
// without its process. It takes no lock.
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

// failOpenAt returns when the kept data plane fails open (zero: never), and whether it has, by the flag in its memory,
// which its timer updates four times a second.
func (k *Keeper) failOpenAt() (when time.Time, ok bool, err error) {
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

// Sweep removes a kept data plane whose links are attached to no interface any more, because the interfaces or their
// network namespace were deleted. It reports whether it removed one.
func Sweep(keep *Location) (swept bool, err error) {
	names, err := keep.Store.Links()
	// Programs at sockets are on no interface.
	names = slices.DeleteFunc(names, func(n string) bool { return strings.HasPrefix(n, SocketPrefix) })
	if err != nil || len(names) == 0 {
		return false, err // a filter may be attached, which has no pin
	}
	for _, name := range names {
		on, err := attach.InterfaceOf(keep.Store.Path("", name))
		if err != nil || on != 0 {
			return false, err
		}
	}
	return true, New(keep).RemoveAll()
}

// Interfaces returns the interfaces that programs may be attached to, according to the snapshots.
func (k *Keeper) Interfaces() (ports []attach.Port) {
	numbers, _ := k.Snapshots()
	for _, number := range numbers {
		data, err := k.load(number)
		if err != nil {
			continue
		}
		s, err := snapshot.DecodeHead(data)
		if err != nil {
			continue // an error matters only in the valid snapshot
		}
		for _, i := range slices.Concat(s.Interfaces, s.Leaving) {
			if p := (attach.Port{Name: i.Name, Index: i.Index}); !slices.ContainsFunc(ports, p.SameInterface) {
				ports = append(ports, p)
			}
		}
	}
	return ports
}

// Unpinned returns a reason if there is a snapshot of a data plane of which nothing is pinned; empty where there is no
// snapshot. If its program is still attached, its pins exist and are hidden, which is an error.
func (k *Keeper) Unpinned() (reason string, err error) {
	s, err := k.read()
	if err != nil || s.Cookie != k.Cookie {
		return "", nil
	}
	for _, i := range s.Interfaces {
		if id, found := attach.OursOn(attach.Port{Name: i.Name, Index: i.Index}); found {
			return "", fmt.Errorf(
				"nothing is pinned in %s of the data plane whose program (id %d) is on %s: if a bpf file system was mounted over the one with its pins, unmount it (`findmnt /sys/fs/bpf`); if it is of another balancer, stop that", k.Store.Dir(), id, i.Name)
		}
	}
	return "nothing of it is pinned any more: its bpf file system was unmounted or mounted anew, or the machine was started anew", nil
}

// Detach detaches the kept data plane from its interfaces, and removes it, also one of another build or one that cannot
// be read. Without a store, where nothing is pinned, it removes filters, which need no pin. interfaces are further ones
// to which the data plane may be attached, besides those in its snapshot. Call it in their network namespace.
func Detach(keep *Location, interfaces []string) error {
	k := New(keep)
	ports := k.Interfaces()
	var unknown error
	for _, name := range interfaces {
		port, err := attach.PortByName(name)
		switch {
		case err == nil:
			ports = append(ports, port)
		case !errors.Is(err, attach.ErrNoInterface):
			unknown = errors.Join(unknown, err)
		}
	}
	err := errors.Join(unknown, attach.RemoveFilters(ports), attach.RemoveDispatched(ports, attach.IsOurs))
	if k.Store == nil {
		return err
	}
	// A process that finds attached programs needs their snapshot: so it is removed after they are detached.
	return errors.Join(err, k.Clear(), k.RemoveAll())
}
