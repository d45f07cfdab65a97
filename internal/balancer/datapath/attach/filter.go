// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/host/netdump"
)

// Before TCX, TC runs a program as a filter of a queueing discipline, clsact, which must be added to the interface
// first. Neither ends with a process: the filter of a killed balancer stays, and goes on forwarding. By its name the
// next process recognises it as ours, and whether clsact is ours, too.
const (
	filterName         = "jeoul"
	FilterNameOnClsact = "jeoul, which brought clsact"
)

// Our filter's place on an interface. Filters run by priority, the lowest number first; 'J' leaves room for others
// before us, and is before those that the kernel numbers itself.
const (
	FilterPriority = 'J'
	filterHandle   = 'j'<<24 | 'e'<<16 | 'o'<<8 | 'u'
)

// filter keeps a program on an interface as a filter at its ingress.
type filter struct {
	// netlink stays in the interface's namespace, whatever namespace the thread changes to.
	netlink *netlink.Handle
	port    Port
	name    string
}

func openFilter(p Port) (*filter, error) {
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("opening a netlink socket: %w", err)
	}
	return &filter{netlink: handle, port: p, name: filterName}, nil
}

// WithClsact gives an interface clsact if it has none, and calls attach; ours says that this process
// brought it: see datapath.Options.
type WithClsact func(name string, attach func(ours bool) error) error

// attachFilter adds a program as our filter, or atomically replaces a killed balancer's filter by it.
func attachFilter(program *ebpf.Program, p Port, withClsact WithClsact) (Hold, error) {
	f, err := openFilter(p)
	if err != nil {
		return nil, err
	}
	if err := f.attach(program, withClsact); err != nil {
		f.netlink.Close()
		return nil, err
	}
	return f, nil
}

func (f *filter) attach(program *ebpf.Program, withClsact WithClsact) error {
	if withClsact == nil {
		withClsact = f.addClsact
	}
	existing, others, err := f.list(netlink.HANDLE_MIN_INGRESS)
	if err != nil {
		return err
	}
	for _, other := range others {
		if other.Attrs().Priority == FilterPriority {
			return fmt.Errorf("%w: a filter of kind %s has the priority %d", syscall.EBUSY, other.Type(),
				FilterPriority)
		}
	}
	if len(existing) > 0 {
		f.name = existing[0].Name
		return f.Update(program)
	}
	return withClsact(f.port.Name, func(ours bool) error {
		if ours {
			f.name = FilterNameOnClsact
		}
		return f.Update(program)
	})
}

// addClsact is a WithClsact that leaves no note on the host.
func (f *filter) addClsact(_ string, attach func(ours bool) error) error {
	err := f.netlink.QdiscAdd(f.clsact())
	if err != nil && !errors.Is(err, unix.EEXIST) { // EEXIST: clsact, or the older ingress qdisc, is there
		return fmt.Errorf("adding the clsact qdisc: %w", err)
	}
	if err := attach(err == nil); err != nil {
		return errors.Join(err, f.remove())
	}
	return nil
}

// Update replaces our program atomically: each packet is processed by the old one or the new one.
func (f *filter) Update(program *ebpf.Program) error {
	err := f.netlink.FilterReplace(&netlink.BpfFilter{FilterAttrs: f.place(), Fd: program.FD(), Name: f.name,
		DirectAction: true})
	if err != nil {
		return fmt.Errorf("putting the TC filter %q into its place: %w", f.name, err)
	}
	return nil
}

// Running reports whether our filter is on the interface. Others can remove it, alone or with clsact.
func (f *filter) Running() bool {
	ours, err := f.ourFilters()
	if err != nil || len(ours) > 0 {
		return true
	}
	_, err = f.netlink.LinkByIndex(f.port.Index)
	return netdump.IsLinkMissing(err)
}

// PutBack adds the program as our filter again, on an interface that may have another name by now.
func (f *filter) PutBack(program *ebpf.Program, withClsact WithClsact) error {
	link, err := f.netlink.LinkByIndex(f.port.Index)
	if err != nil {
		return fmt.Errorf("asking the kernel for the interface of index %d: %w", f.port.Index, err)
	}
	f.port.Name, f.name = link.Attrs().Name, filterName
	return f.attach(program, withClsact)
}

// Close removes the filter, and clsact if it came with it and no other program uses it.
func (f *filter) Close() error {
	defer f.netlink.Close()
	return f.remove()
}

// Release closes the netlink socket; the filter stays attached.
func (f *filter) Release() error {
	f.netlink.Close()
	return nil
}

// remove removes our filter and clsact, which need not have been made by this f.
func (f *filter) remove() error {
	ours, _, err := f.list(netlink.HANDLE_MIN_INGRESS)
	if errors.Is(err, unix.ENODEV) {
		return nil // the interface was deleted, and the filter with it
	}
	if err != nil {
		return err
	}
	for _, old := range ours {
		f.name = old.Name
	}
	if f.name == FilterNameOnClsact {
		alone, err := f.isSole()
		if err != nil {
			return err
		}
		if alone {
			return f.removeClsact()
		}
	}
	for _, old := range ours {
		if err := f.netlink.FilterDel(old); err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("removing the TC filter %q: %w", old.Name, err)
		}
	}
	return nil
}

// isSole reports whether clsact has no filters but ours.
func (f *filter) isSole() (bool, error) {
	for _, parent := range []uint32{netlink.HANDLE_MIN_INGRESS, netlink.HANDLE_MIN_EGRESS} {
		_, others, err := f.list(parent)
		if err != nil || len(others) > 0 {
			return false, err
		}
	}
	return true, nil
}

// removeClsact removes the qdisc and our filter in one step: a process killed between two steps would leave a clsact
// that looks like another program's.
func (f *filter) removeClsact() error {
	err := f.netlink.QdiscDel(f.clsact())
	// Another process may have removed it, and our filter with it.
	if err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("removing the clsact qdisc: %w", err)
	}
	return nil
}

// ourFilters returns our filters at the ingress.
func (f *filter) ourFilters() ([]*netlink.BpfFilter, error) {
	ours, _, err := f.list(netlink.HANDLE_MIN_INGRESS)
	return ours, err
}

// list returns the filters of one direction: ours, by their name, and the others.
func (f *filter) list(parent uint32) (ours []*netlink.BpfFilter, others []netlink.Filter, err error) {
	link := &netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: f.port.Index}}
	all, err := netdump.Consistent(func() ([]netlink.Filter, error) { return f.netlink.FilterList(link, parent) })
	if err != nil {
		return nil, nil, fmt.Errorf("listing TC filters: %w", err)
	}
	for _, one := range all {
		bpf, ok := one.(*netlink.BpfFilter)
		if ok && (bpf.Name == filterName || bpf.Name == FilterNameOnClsact) {
			ours = append(ours, bpf)
		} else {
			others = append(others, one)
		}
	}
	return ours, others, nil
}

func (f *filter) place() netlink.FilterAttrs {
	return netlink.FilterAttrs{
		LinkIndex: f.port.Index,
		Parent:    netlink.HANDLE_MIN_INGRESS,
		Handle:    filterHandle,
		Priority:  FilterPriority,
		Protocol:  unix.ETH_P_ALL,
	}
}

func (f *filter) clsact() netlink.Qdisc {
	return &netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: f.port.Index,
		Handle:    netlink.MakeHandle(0xffff, 0),
		Parent:    netlink.HANDLE_CLSACT,
	}}
}

// RemoveFilters removes the filters of a killed balancer from interfaces whose program is now attached by another
// method, or that have none.
func RemoveFilters(ports []Port) error {
	var errs []error
	for _, p := range ports {
		f, err := openFilter(p)
		if err == nil {
			err = f.Close()
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("removing the filter that a killed balancer left on %s: %v", p.Name, err))
		}
	}
	return errors.Join(errs...)
}

// FilterOn returns our filter on an interface and the id of its program; the hold is nil where there is none.
func FilterOn(p Port) (Hold, ebpf.ProgramID, error) {
	f, err := openFilter(p)
	if err != nil {
		return nil, 0, err
	}
	ours, err := f.ourFilters()
	if errors.Is(err, unix.ENODEV) {
		err = nil // the interface was deleted, and the filter with it
	}
	if err != nil || len(ours) == 0 {
		return nil, 0, errors.Join(err, f.Release())
	}
	f.name = ours[0].Name
	return f, ebpf.ProgramID(ours[0].Id), nil
}

// AddFilter gives a device clsact and a program as its filter in one direction, netlink.HANDLE_MIN_INGRESS or
// HANDLE_MIN_EGRESS. Both are removed with the device, and by nothing else.
func AddFilter(program *ebpf.Program, index int, direction uint32) error {
	f := &filter{port: Port{Index: index}}
	if err := netlink.QdiscAdd(f.clsact()); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("adding the clsact qdisc: %w", err)
	}
	place := f.place()
	place.Parent = direction
	err := netlink.FilterReplace(&netlink.BpfFilter{FilterAttrs: place, Fd: program.FD(), Name: filterName,
		DirectAction: true})
	if err != nil {
		return fmt.Errorf("adding a TC filter: %w", err)
	}
	return nil
}
