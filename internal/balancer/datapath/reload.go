// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"

	"github.com/jeoul/jeoul/internal/balancer/datapath/loader"
)

// reload loads the program again, as d.tracing wants it now, and puts that in place of
// what forwards. Its memory stays. On an error, what forwards goes on.
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

// ready says why there is nothing to trace yet, or no more.
func (d *Datapath) ready() error {
	if d.closed {
		return ErrClosed
	}
	if d.current == nil {
		return errors.New("the balancer has no configuration yet")
	}
	return nil
}
