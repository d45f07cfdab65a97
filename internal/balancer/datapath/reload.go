// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"

	"github.com/jeoul/jeoul/internal/balancer/datapath/loader"
)

// reload loads the programs again, traced or plain as d.tracing is now, and puts them in the place of the present ones.
// The memory stays. On an error, the present ones go on.
func (d *Datapath) reload() error {
	last := d.current
	made, err := d.install(last.Ports, d.hook, func(kind loader.Kind) (*loader.Programs, error) {
		return d.load(kind, last.Ports, last.Memory, d.shared)
	})
	if err != nil {
		return err
	}
	d.current = made
	d.keeper.RemoveOld(made)
	last.Close()
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
