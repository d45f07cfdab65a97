// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"

	"github.com/jeoul/jeoul/internal/balancer/datapath/attach"
	"github.com/jeoul/jeoul/internal/balancer/datapath/keeper"
)

// Repin checks whether the pins are still where the next process looks for them: they are not once a bpf file system
// was unmounted, or another one mounted over it. Then everything is pinned again, without a packet noticing, and the
// note says so; or the note says how many flows the last move of flows had no room for, or that the program was put
// back into libxdp's dispatcher. After an error the data plane ends with this process unless a later call succeeds,
// which every change begins with. Writes and pins that failed are tried again.
func (d *Datapath) Repin() (note string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return "", nil
	}
	if d.keeper == nil {
		return d.rejoinDispatchers(), nil
	}
	err = d.repin()
	d.keeper.RetryWrites()
	note, d.keeper.Note = d.keeper.Note, ""
	if note == "" {
		note = d.rejoinDispatchers()
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

// noteLostFlows makes the next note say for how many flows there was no room in the tables that a change has made.
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

// pinAll pins the attached programs in an empty directory. Programs that an earlier process has loaded are kept by
// their links only: the change that follows at once pins their successors.
func (d *Datapath) pinAll() error {
	for i, h := range d.holds {
		l, is := h.(attach.PinnedLink)
		if !is {
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
	d.keeper.Pin(d.current, d.shared, d.sockets.Maps())
	if d.keeper.Lost {
		return errNotPinned
	}
	return nil
}

// errNotPinned stands for a fault that was noted.
var errNotPinned = errors.New("its programs and maps cannot be pinned")

// rejoinDispatchers puts our programs back into libxdp's dispatchers that others have taken out, such as `xdp-loader
// unload --all`, and returns the news of it.
func (d *Datapath) rejoinDispatchers() (note string) {
	if !d.method.Dispatched || d.current == nil {
		return ""
	}
	for i, p := range d.current.Ports {
		h, is := d.holds[i].(*attach.Dispatched)
		if !is || h.Running() {
			continue
		}
		if err := h.Update(d.current.Programs[i]); err != nil {
			note = fmt.Sprintf(
				"packets on %s are not balanced: the program was taken out of libxdp's dispatcher, and cannot be put back: %v", p.Name, err)
			if note == d.lastRejoinNote {
				return "" // that was reported when it was new
			}
			d.lastRejoinNote = note
			return note
		}
		note = fmt.Sprintf("another has taken the program out of libxdp's dispatcher on %s: it is put back", p.Name)
	}
	d.lastRejoinNote = ""
	return note
}
