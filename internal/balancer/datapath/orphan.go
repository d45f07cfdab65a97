// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"fmt"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/balancer/datapath/loader"
	"github.com/jeoul/jeoul/internal/balancer/datapath/mapmem"
)

// probeWatchdog drops Options.Orphan where the kernel has no timers for eBPF programs (Linux 5.15 brought them), and
// notes that.
func (d *Datapath) probeWatchdog() {
	if d.keeper == nil || d.options.Orphan == 0 {
		return
	}
	memory, err := ebpf.NewMap(&ebpf.MapSpec{Name: "generation", Type: ebpf.Array, KeySize: 4,
		ValueSize: mapmem.CacheLine, MaxEntries: 1, Flags: unix.BPF_F_MMAPABLE})
	if err == nil {
		defer memory.Close()
		var watch *ebpf.Collection
		if watch, err = loader.StartWatchdog(memory); err == nil {
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

// Standby passes packets for the VIPs to the kernel, at once and for all services, or balances them again. It applies
// to programs that are loaded later, too.
func (d *Datapath) Standby(on bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.standby = 0
	if on {
		d.standby = 1
	}
	// The memory of another build may have another field there, and is replaced by the first change.
	if !d.closed && d.current != nil && !d.current.Adopted {
		d.current.Memory.Head().Standby = d.standby
	}
}
