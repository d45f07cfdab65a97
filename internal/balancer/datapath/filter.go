// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Before TCX, TC runs a program as a filter of a queueing discipline, clsact,
// that an interface must be given first. Nothing ties either to a process: what
// a killed balancer left stays, and goes on forwarding as it did. The filter's
// name tells the next one that it is ours, and whether clsact is too.
const (
	filterName         = "jeoul"
	filterNameOnClsact = "jeoul, which brought clsact"
)

// Our filter's place on an interface. Filters run by priority, the lowest number
// first; 'J' lets others be before us, and is before what the kernel numbers itself.
const (
	filterPriority = 'J'
	filterHandle   = 'j'<<24 | 'e'<<16 | 'o'<<8 | 'u'
)

// filter keeps a program on an interface as a filter on what comes in.
type filter struct {
	// netlink stays in the interface's namespace, wherever its user goes.
	netlink *netlink.Handle
	port    port
	name    string
}

func openFilter(p port) (*filter, error) {
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("opening a netlink socket: %w", err)
	}
	return &filter{netlink: handle, port: p, name: filterName}, nil
}

// giveClsact gives an interface clsact if it has none, and calls attach, which is told whether we
// brought it: see Options.
type giveClsact func(name string, attach func(ours bool) error) error

// attachFilter puts a program into our place, or in one step into that of a
// killed balancer's.
func attachFilter(program *ebpf.Program, p port, give giveClsact) (hold, error) {
	f, err := openFilter(p)
	if err != nil {
		return nil, err
	}
	if give == nil {
		give = f.giveClsact
	}
	if err := f.attach(program, give); err != nil {
		f.netlink.Close()
		return nil, err
	}
	return f, nil
}

func (f *filter) attach(program *ebpf.Program, give giveClsact) error {
	left, others, err := f.list(netlink.HANDLE_MIN_INGRESS)
	if err != nil {
		return err
	}
	for _, other := range others {
		if other.Attrs().Priority == filterPriority {
			return fmt.Errorf("%w: a filter of kind %s has the priority %d", syscall.EBUSY, other.Type(), filterPriority)
		}
	}
	if len(left) > 0 {
		f.name = left[0].Name
		return f.Update(program)
	}
	return give(f.port.name, func(ours bool) error {
		if ours {
			f.name = filterNameOnClsact
		}
		return f.Update(program)
	})
}

// giveClsact does it without a note on the host.
func (f *filter) giveClsact(_ string, attach func(ours bool) error) error {
	err := f.netlink.QdiscAdd(f.clsact())
	if err != nil && !errors.Is(err, unix.EEXIST) { // one, or its forerunner ingress, is there
		return fmt.Errorf("adding the clsact qdisc: %w", err)
	}
	if err := attach(err == nil); err != nil {
		return errors.Join(err, f.remove())
	}
	return nil
}

// Update puts another program into our place, in one step: each packet meets the
// old one or the new one.
func (f *filter) Update(program *ebpf.Program) error {
	err := f.netlink.FilterReplace(&netlink.BpfFilter{FilterAttrs: f.place(), Fd: program.FD(), Name: f.name, DirectAction: true})
	if err != nil {
		return fmt.Errorf("putting the TC filter %q into its place: %w", f.name, err)
	}
	return nil
}

// Close removes the filter, and clsact if it came with it and no other program uses it.
func (f *filter) Close() error {
	defer f.netlink.Close()
	return f.remove()
}

// Leave lets go of the filter, which goes on.
func (f *filter) Leave() error {
	f.netlink.Close()
	return nil
}

// remove removes what is there of ours; it need not have been made by this f.
func (f *filter) remove() error {
	ours, _, err := f.list(netlink.HANDLE_MIN_INGRESS)
	if errors.Is(err, unix.ENODEV) {
		return nil // it went with its interface
	}
	if err != nil {
		return err
	}
	for _, left := range ours {
		f.name = left.Name
	}
	if f.name == filterNameOnClsact {
		alone, err := f.alone()
		if err != nil {
			return err
		}
		if alone {
			return f.removeClsact()
		}
	}
	for _, left := range ours {
		if err := f.netlink.FilterDel(left); err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("removing the TC filter %q: %w", left.Name, err)
		}
	}
	return nil
}

// alone says whether clsact has no filters but ours.
func (f *filter) alone() (bool, error) {
	for _, parent := range []uint32{netlink.HANDLE_MIN_INGRESS, netlink.HANDLE_MIN_EGRESS} {
		_, others, err := f.list(parent)
		if err != nil || len(others) > 0 {
			return false, err
		}
	}
	return true, nil
}

// removeClsact removes the qdisc and our filter in one step: a process that is killed between two
// would leave a clsact that nothing tells from another program's.
func (f *filter) removeClsact() error {
	err := f.netlink.QdiscDel(f.clsact())
	// Another process may have removed it, and our filter with it.
	if err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("removing the clsact qdisc: %w", err)
	}
	return nil
}

// ours returns our filters on what comes in.
func (f *filter) ours() ([]*netlink.BpfFilter, error) {
	ours, _, err := f.list(netlink.HANDLE_MIN_INGRESS)
	return ours, err
}

// list returns the filters of one direction: ours, by their name, and the others.
func (f *filter) list(parent uint32) (ours []*netlink.BpfFilter, others []netlink.Filter, err error) {
	all, err := f.netlink.FilterList(&netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: f.port.index}}, parent)
	if err != nil {
		return nil, nil, fmt.Errorf("listing TC filters: %w", err)
	}
	for _, one := range all {
		bpf, is := one.(*netlink.BpfFilter)
		if is && (bpf.Name == filterName || bpf.Name == filterNameOnClsact) {
			ours = append(ours, bpf)
		} else {
			others = append(others, one)
		}
	}
	return ours, others, nil
}

func (f *filter) place() netlink.FilterAttrs {
	return netlink.FilterAttrs{
		LinkIndex: f.port.index,
		Parent:    netlink.HANDLE_MIN_INGRESS,
		Handle:    filterHandle,
		Priority:  filterPriority,
		Protocol:  unix.ETH_P_ALL,
	}
}

func (f *filter) clsact() netlink.Qdisc {
	return &netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: f.port.index,
		Handle:    netlink.MakeHandle(0xffff, 0),
		Parent:    netlink.HANDLE_CLSACT,
	}}
}

// removeFilters removes what a killed balancer left on interfaces that are now
// balanced on in another way, or not at all.
func removeFilters(ports []port) error {
	var errs []error
	for _, p := range ports {
		f, err := openFilter(p)
		if err == nil {
			err = f.Close()
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("removing what a killed balancer left on %s: %v", p.name, err))
		}
	}
	return errors.Join(errs...)
}
