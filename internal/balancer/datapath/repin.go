// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"strings"

	"github.com/jeoul/jeoul/internal/balancer/datapath/attach"
	"github.com/jeoul/jeoul/internal/balancer/datapath/keeper"
)

// Repin checks whether the pins are still where the next process looks for them: they are not after a bpf file system
// was unmounted, or another one mounted over it. Then Repin pins everything again, without an effect on packets, and
// the note says so. The note may also say how many flows the last move of flows had no room for, that a program that
// another program had removed was put back, or that VLAN tags are left in frames on a further device. After an error
// the data plane ends with this process unless a later call succeeds; every change begins with a call. Repin retries
// failed writes and pins.
func (d *Datapath) Repin() (note string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return "", nil
	}
	if d.keeper != nil {
		err = d.repin()
		d.keeper.RetryWrites()
		note, d.keeper.Note = d.keeper.Note, ""
	}
	d.putBack()
	d.leaveTags()
	if note == "" {
		note, d.corrections = strings.Join(d.corrections, "; "), nil
	}
	return note, err
}

func (d *Datapath) repin() error {
	k := d.keeper
	before := k.Store.Dir()
	renewed, err := k.Store.Renew()
	if renewed {
		k.Lost = true
	}
	lost := k.Lost
	if err == nil && lost {
		err = d.pinAll()
	}
	if err != nil {
		k.Lost = lost
		err = fmt.Errorf(
			"the pins of the data plane in %s are gone, and making them anew fails: %w: mount a bpf file system (`mount -t bpf bpf /sys/fs/bpf`)", before, err)
		k.Files.RecordResult(keeper.PinsSubject, before, err, false)
		return err
	}
	if lost {
		k.Note = fmt.Sprintf(
			"the pins of the data plane were not in %s any more, where a bpf file system was unmounted or mounted anew: they are in %s now",
			before, k.Store.Dir())
		k.Lost = false
		k.Files.RecordResult(keeper.PinsSubject, before, nil, false)
	}
	return nil
}

// noteLostFlows makes the next note say how many flows had no room in the tables of a change.
func (d *Datapath) noteLostFlows(flows int) {
	if flows > 0 && d.keeper != nil {
		d.keeper.Note = fmt.Sprintf(
			"of the flows that were moved into other tables, %d had no room: their connections are balanced as new ones; raise flows.limit", flows)
	}
}

// noteSocketError makes the next note say why a program is still attached to sockets that should not be.
func (d *Datapath) noteSocketError(err error) {
	if err != nil && d.keeper != nil {
		d.keeper.Note = err.Error()
	}
}

// pinAll pins the attached programs in an empty directory. Of programs that an earlier process has loaded only the
// links are pinned: the change that follows at once pins their successors.
func (d *Datapath) pinAll() error {
	for i, h := range d.holds {
		l, ok := h.(attach.PinnedLink)
		if !ok {
			continue
		}
		if err := l.Unpin(); err != nil {
			return fmt.Errorf("forgetting where a link was pinned: %w", err)
		}
		if err := l.Pin(d.keeper.Store.Path("", d.method.LinkPin(d.current.Ports[i].Index))); err != nil {
			return fmt.Errorf("pinning the link of %s: %w", d.method.Name, err)
		}
	}
	if err := d.sockets.Repin(d.keeper); err != nil {
		return err
	}
	if d.current == nil || d.current.Adopted {
		return nil
	}
	d.keeper.Lost = false
	d.keeper.Pin(d.current, d.shared, d.sockets.Pinned())
	if d.keeper.Lost {
		return errNotPinned
	}
	return nil
}

// errNotPinned is returned after a fault that was recorded with its details.
var errNotPinned = errors.New("its programs and maps cannot be pinned")

// putBack attaches programs again that others have removed, such as by `tc qdisc del dev eth0 clsact` or `xdp-loader
// unload --all`, and makes the next note say so.
func (d *Datapath) putBack() {
	if d.current == nil {
		return
	}
	var failures []string
	for i, hold := range d.holds {
		h, ok := hold.(attach.Removable)
		if !ok || h.Running() {
			continue
		}
		removed := fmt.Sprintf("another program has removed the balancer's from %s (%s)", d.current.Ports[i].Name, d.method.Name)
		if err := h.PutBack(d.current.Programs[i], d.options.WithClsact); err != nil {
			failures = append(failures, fmt.Sprintf("%s, and it cannot be put back, so packets there are not balanced: %v",
				removed, err))
			continue
		}
		d.corrections = append(d.corrections, removed+": it is put back")
	}
	failure := strings.Join(failures, "; ")
	if failure != d.lastPutBackFailure { // else it is already reported
		d.corrections = append(d.corrections, failures...)
	}
	d.lastPutBackFailure = failure
}

// leaveTags makes devices leave VLAN tags in frames that do not so yet, and makes the next note say so.
func (d *Datapath) leaveTags() {
	if d.current == nil || d.holds == nil {
		return
	}
	changed, err := d.tags.RepeatDisabling(d.current.Ports, d.method)
	for _, name := range changed {
		d.corrections = append(d.corrections, name+" took VLAN tags out of frames before XDP, such as a new port of a bond "+
			"does: that is switched off")
	}
	if err != nil {
		d.corrections = append(d.corrections, strings.ReplaceAll(err.Error(), "\n", "; "))
	}
}
