// SPDX-License-Identifier: Apache-2.0

package live

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// order is an order of the group to a client, which executes one order at a time.
type order struct {
	// Open opens the load's connections.
	Open *Load `json:",omitempty"`
	// Begin resets the counts.
	Begin bool `json:",omitempty"`
	// Count requests the present counts.
	Count bool `json:",omitempty"`
	// Settle settles within a time, and requests the counts.
	Settle time.Duration `json:",omitempty"`
	// Flows requests the servers that answer at each of a range of local ports.
	Flows *portRange `json:",omitempty"`
	// Stay makes connections of Load.ReusedPorts stay open, and waits for at most that time until every port has one.
	// Go releases them.
	Stay time.Duration `json:",omitempty"`
	Go   bool          `json:",omitempty"`
}

type portRange struct{ First, Count int }

// report is the answer to an order.
type report struct {
	Error  string         `json:",omitempty"`
	Counts *Counts        `json:",omitempty"`
	Flows  map[int]string `json:",omitempty"`
	// Stay counts the connections that stay open, by server.
	Stay map[string]uint64 `json:",omitempty"`
}

// Hold runs a client's process. It connects to the group at a unix socket, and executes the group's orders until the
// group closes the connection or ctx ends.
func Hold(ctx context.Context, socket string) error {
	group, err := new(net.Dialer).DialContext(ctx, "unix", socket)
	if err != nil {
		return fmt.Errorf("connecting to the bench: %w", err)
	}
	defer group.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	context.AfterFunc(ctx, func() { group.Close() })
	var h *loadClient
	orders, reports := json.NewDecoder(group), json.NewEncoder(group)
	for {
		var o order
		if err := orders.Decode(&o); err != nil {
			if ctx.Err() != nil || errors.Is(err, io.EOF) {
				return nil
			}
			return fmt.Errorf("listening to the bench: %w", err)
		}
		if o.Open != nil {
			h = newLoadClient(ctx, *o.Open)
		}
		r, err := h.execute(ctx, o)
		if err != nil {
			r.Error = err.Error()
		}
		if err := reports.Encode(r); err != nil && ctx.Err() == nil {
			return fmt.Errorf("telling the bench: %w", err)
		}
	}
}

// execute executes an order.
func (h *loadClient) execute(ctx context.Context, o order) (r report, err error) {
	switch {
	case o.Open != nil:
		return r, h.open(ctx)
	case h == nil:
		return r, errors.New("no connections were opened yet")
	case o.Begin:
		h.counter.begin()
		return r, nil
	case o.Flows != nil:
		r.Flows, err = h.flows(ctx, o.Flows.First, o.Flows.Count)
		return r, err
	case o.Count:
		counts, err := h.counter.snapshot()
		r.Counts = &counts
		return r, err
	case o.Go:
		h.releaseReused()
		return r, nil
	case o.Stay > 0:
		waiting, cancel := context.WithTimeout(ctx, o.Stay)
		defer cancel()
		r.Stay = h.holdReused(waiting)
		return r, ctx.Err()
	}
	bounded, cancel := context.WithTimeout(ctx, o.Settle)
	defer cancel()
	if settled := h.settle(bounded); settled != nil {
		err = fmt.Errorf("within %v not every connection was answered or opened again", o.Settle)
	}
	counts, encoding := h.counter.snapshot()
	r.Counts = &counts
	return r, errors.Join(err, encoding)
}
