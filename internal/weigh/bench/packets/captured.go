// SPDX-License-Identifier: Apache-2.0

package packets

import (
	"context"
	"errors"
	"net/netip"

	"github.com/jeoul/jeoul/internal/balancer/capture"
	"github.com/jeoul/jeoul/internal/balancer/datapath"
	"github.com/jeoul/jeoul/internal/balancer/trace"
)

// captured are the filters of captures that run while packets are measured, by name: one that samples one packet in a
// thousand, and others that no packet passes, by its address or by its outcome.
var captured = map[string]capture.Filter{
	"1 in 1000":     {Filter: trace.Filter{Sample: 1000}},
	"other clients": {Filter: trace.Filter{Source: netip.MustParsePrefix("203.0.113.0/24")}},
	"dropped":       {Outcomes: []string{"dropped"}},
}

// capturing is a capture that runs while packets are measured.
type capturing struct {
	end    context.CancelFunc
	result chan error
}

// startCapture starts a capture with a setup's filter in a balancer, and returns when the capture runs; nil means no
// capture.
func startCapture(balancer *datapath.Datapath, s setup) (*capturing, error) {
	if s.captured == "" {
		return nil, nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	c := &capturing{end: cancel, result: make(chan error, 1)}
	started := make(chan struct{})
	request := capture.Request{Filter: captured[s.captured], Rate: capture.MaxRate,
		Seconds: capture.MaxFor.Seconds(), Bytes: 1 << 40}
	go func() {
		c.result <- balancer.Capture(ctx, request, func(e capture.Event) error {
			if e.Started != nil {
				close(started)
			}
			return nil
		})
	}()
	select {
	case <-started:
		return c, nil
	case err := <-c.result:
		cancel()
		return nil, errors.Join(errors.New("the capture ended at once"), err)
	}
}

// stop ends a capture, if there is one.
func (c *capturing) stop() error {
	if c == nil {
		return nil
	}
	c.end()
	return <-c.result
}
