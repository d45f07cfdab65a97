// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"context"
	"sync"
	"time"
)

// requestInterval is the least time between two requests to a peer for all flows or for early ones, which are
// expensive.
const requestInterval = time.Second

// requestMissed requests all flows from the peers whose flows were refused here, once a change has removed the reason.
func (e *Exchange) requestMissed() error {
	retry, err := e.options.DataPlane.RetryMissed()
	if err != nil || !retry {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for r := range e.receivers {
		if !r.missed {
			continue
		}
		r.missed = false
		signal(r.resend)
	}
	return nil
}

// startRequests starts the sending of a receiver's requests to its peer, and returns a function that ends it.
func (e *Exchange) startRequests(r *receiver) (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	e.mu.Lock()
	e.receivers[r] = struct{}{}
	e.mu.Unlock()
	var asking sync.WaitGroup
	asking.Go(func() { r.requestLoop(ctx, r.resend, kindResend) })
	asking.Go(func() { r.requestLoop(ctx, r.requestEarly, kindRequestEarly) })
	return func() {
		e.mu.Lock()
		delete(e.receivers, r)
		e.mu.Unlock()
		cancel()
		r.conn.Close() // the peer may not be reading
		asking.Wait()
	}
}

// requestLoop sends the peer the requests that are due.
func (r *receiver) requestLoop(ctx context.Context, when <-chan struct{}, k kind) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-when:
		}
		if err := r.conn.SetWriteDeadline(time.Now().Add(r.exchange.options.stallTimeout)); err != nil {
			return
		}
		if _, err := r.conn.Write(appendMessage(nil, k, nil)); err != nil {
			return // sending to the peer ends, too
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(requestInterval):
		}
	}
}
