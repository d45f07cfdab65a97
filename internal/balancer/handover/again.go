// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"context"
	"sync"
	"time"
)

// askPause is the pause between two requests to a peer to send all flows again, or new ones early: changes may follow
// each other, and all flows are many.
const askPause = time.Second

// regain asks peers to send their flows again that were refused here, once a change has ended the reason.
func (e *Exchange) regain() error {
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
		signal(r.again)
	}
	return nil
}

// listens starts the sending of a receiver's requests to its peer, and returns a function that ends it.
func (e *Exchange) listens(r *receiver) (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	e.mu.Lock()
	e.receivers[r] = struct{}{}
	e.mu.Unlock()
	var asking sync.WaitGroup
	asking.Go(func() { r.ask(ctx, r.again, kindAgain) })
	asking.Go(func() { r.ask(ctx, r.requestEarly, kindRequestEarly) })
	return func() {
		e.mu.Lock()
		delete(e.receivers, r)
		e.mu.Unlock()
		cancel()
		r.conn.Close() // a peer may take nothing
		asking.Wait()
	}
}

// ask asks the peer for something whenever it is to be asked.
func (r *receiver) ask(ctx context.Context, when <-chan struct{}, k kind) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-when:
		}
		if err := r.conn.SetWriteDeadline(time.Now().Add(r.exchange.options.stalled)); err != nil {
			return
		}
		if _, err := r.conn.Write(message(nil, k, nil)); err != nil {
			return // sending to the peer ends, too
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(askPause):
		}
	}
}
