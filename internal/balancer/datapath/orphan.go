// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"fmt"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/balancer/datapath/attach"
	"github.com/jeoul/jeoul/internal/balancer/datapath/mapmem"
	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
)

// A data plane whose process has died must not send to backends for ever that died after it. A
// timer of the kernel's compares the clock that a process moves (bpf/balancer/orphan.bpf.c), and
// tells packets when it has stood for too long. The timer ends when the last handle and the last
// pin of its map are gone (kernel/bpf/helpers.c, bpf_timer_start), so it goes with its set of pins.

// watchClock begins to watch the clock in a generation's memory. It ends when the collection is
// closed and its map is not pinned.
func watchClock(memory *ebpf.Map) (*ebpf.Collection, error) {
	spec, err := objects.LoadOrphan()
	if err != nil {
		return nil, fmt.Errorf("reading the embedded eBPF program that watches the clock: %v", err)
	}
	spec.Maps[objects.GenerationSection].ValueSize = memory.ValueSize()
	made, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{
		MapReplacements: map[string]*ebpf.Map{objects.GenerationSection: memory}})
	if err != nil {
		return nil, attach.LoadError(err)
	}
	// The kernel asks for a frame, which the program does not read.
	failed, _, err := made.Programs[objects.OrphanProgJeoulOrphan].Test(make([]byte, 64))
	if err == nil && failed != 0 {
		err = unix.Errno(failed)
	}
	if err != nil {
		made.Close()
		return nil, fmt.Errorf("starting the timer that watches the clock: %w", err)
	}
	return made, nil
}

// tryWatch gives the bound up where the kernel has no such timers (Linux 5.15 brought them), and
// says so.
func (d *Datapath) tryWatch() {
	if d.keeper == nil || d.options.Orphan == 0 {
		return
	}
	memory, err := ebpf.NewMap(&ebpf.MapSpec{Name: "generation", Type: ebpf.Array, KeySize: 4,
		ValueSize: mapmem.CacheLine, MaxEntries: 1, Flags: unix.BPF_F_MMAPABLE})
	if err == nil {
		defer memory.Close()
		var watch *ebpf.Collection
		if watch, err = watchClock(memory); err == nil {
			watch.Close()
		}
	}
	if err != nil {
		d.options.Orphan = 0
		d.notes = append(d.notes,
			fmt.Sprintf("without a process the data plane goes on for ever, and not for as long as orphan says: %v",
				err))
	}
}

// Standby has packets for the VIPs left to the kernel, at once and for all services, or has them balanced again. It
// holds for programs that are loaded later, too.
func (d *Datapath) Standby(on bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.standby = 0
	if on {
		d.standby = 1
	}
	// What another build has left may have something else there, and is replaced by the first change.
	if !d.closed && d.current != nil && !d.current.adopted {
		d.current.memory.Head().Standby = d.standby
	}
}
