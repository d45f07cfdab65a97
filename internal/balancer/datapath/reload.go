// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"

	"github.com/jeoul/jeoul/internal/balancer/datapath/loader"
)

// reload loads the programs again, traced or plain as d.tracing says, and replaces the present ones by them. The memory
// stays. On an error, the present programs stay attached.
func (d *Datapath) reload() error {
	old := d.current
	programs, err := d.install(old.Ports, d.hook, func(kind loader.Kind) (*loader.Programs, error) {
		return d.load(kind, old.Ports, old.Memory, d.shared)
	})
	if err != nil {
		return err
	}
	d.current = programs
	d.keeper.RemoveOld(programs)
	old.Close()
	return nil
}

// checkRunning returns an error where no programs are loaded: no Apply yet, or closed.
func (d *Datapath) checkRunning() error {
	if d.closed {
		return ErrClosed
	}
	if d.current == nil {
		return errors.New("the balancer has no configuration yet")
	}
	return nil
}
