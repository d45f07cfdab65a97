// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"fmt"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/balancer/datapath/attach"
	"github.com/jeoul/jeoul/internal/balancer/datapath/mapmem"
	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
)

// A data plane whose process has died must not send for ever to backends that died after it. A kernel timer watches the
// clock that a process advances (bpf/balancer/orphan.bpf.c), and sets a flag for packets when the clock has stopped for
// too long. The timer is cancelled with the last handle and pin of its map (kernel/bpf/helpers.c, bpf_timer_start), so
// it ends with its set of pins.

// StartWatchdog starts the timer that watches the clock in a generation's memory. The timer ends when the collection is
// closed and its map is not pinned.
func StartWatchdog(memory *ebpf.Map) (*ebpf.Collection, error) {
	spec, err := objects.LoadOrphan()
	if err != nil {
		return nil, fmt.Errorf("reading the embedded eBPF program that watches the clock: %v", err)
	}
	spec.Maps[objects.GenerationSection].ValueSize = memory.ValueSize()
	collection, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{
		MapReplacements: map[string]*ebpf.Map{objects.GenerationSection: memory}})
	if err != nil {
		return nil, attach.LoadError(err)
	}
	if err := startTimer(collection.Programs[objects.OrphanProgJeoulOrphan].Test); err != nil {
		collection.Close()
		return nil, fmt.Errorf("starting the timer that watches the clock: %w", err)
	}
	return collection, nil
}

// startTimer runs the program that starts the timer.
func startTimer(run func(frame []byte) (result uint32, out []byte, err error)) error {
	return mapmem.Allocate(func() error {
		// The kernel requires a frame, which the program does not read.
		failed, _, err := run(make([]byte, 64))
		if err == nil && failed != 0 {
			err = unix.Errno(failed)
		}
		return err
	})
}
