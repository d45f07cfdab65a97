// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"

	"github.com/jeoul/jeoul/internal/balancer/datapath/checkpath"
	"github.com/jeoul/jeoul/internal/balancer/datapath/loader"
)

// OpenChecks sets up the path for health checks, which lasts as long as the datapath; nothing of it outlives the
// process. Where packets are balanced already, their programs are loaded again, so that they recognise answers to
// checks. Errors: checknet.ErrNoRights, ErrUnsupported, ErrClosed, lb.ErrTooLarge.
func (d *Datapath) OpenChecks() (*checkpath.Checks, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, ErrClosed
	}
	if d.checks != nil {
		return d.checks, nil
	}
	ports, err := d.findPorts(d.options.Interfaces)
	if err != nil {
		return nil, err
	}
	c, err := checkpath.Open(d.published, ports)
	if err != nil {
		return nil, fmt.Errorf("setting up the path of health checks through the data plane: %w", err)
	}
	d.checks = c
	// Programs that another process has loaded are replaced by the first Apply.
	if d.current == nil || d.current.Adopted {
		return c, nil
	}
	if err := d.exchange(d.tracing, loader.Kind{}, nil); err != nil {
		d.checks = nil
		return nil, errors.Join(fmt.Errorf("loading the programs that know answers to health checks: %w", err),
			c.Close())
	}
	d.plan.Checks = c.Plan().Checks
	d.publishView()
	return c, nil
}
