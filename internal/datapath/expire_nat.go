// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// A full-NAT flow is forgotten when it has been silent for as long as its state
// allows. A port that is given out again too early brings one client another's
// packets; one that is kept too long is missing.
const (
	// idleEstablished is RFC 5382's two hours and four minutes (REQ-5): keepalives
	// come every two hours.
	idleEstablished = 7440 * time.Second
	// idleClosing is for a connection that one side has ended: the same
	// requirement's four minutes.
	idleClosing = 240 * time.Second
	// idleClosed is as long as Linux keeps a connection in TIME-WAIT, for what
	// is late or sent again.
	idleClosed = 60 * time.Second
	// idleUnanswered is for flows that no backend has answered.
	idleUnanswered = 60 * time.Second
	// idleUDP is RFC 4787's two minutes (REQ-5).
	idleUDP = 120 * time.Second
)

// expireEvery is how often all full-NAT flows are looked at, and expireBatch how many
// at once.
const (
	expireEvery = 5 * time.Second
	expireBatch = 4096
)

// patience returns how long a flow may be silent.
func patience(state uint16) time.Duration {
	has := func(bits xdpNatState) bool { return state&uint16(bits) == uint16(bits) }
	switch {
	case has(xdpNatStateNAT_RESET), has(xdpNatStateNAT_CLIENT_FIN | xdpNatStateNAT_BACKEND_FIN):
		return idleClosed
	case !has(xdpNatStateNAT_REPLIED):
		return idleUnanswered
	case has(xdpNatStateNAT_UDP):
		return idleUDP
	case has(xdpNatStateNAT_CLIENT_FIN), has(xdpNatStateNAT_BACKEND_FIN):
		return idleClosing
	}
	return idleEstablished
}

// monotonic is the clock that the data plane notes times by.
func monotonic() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return 0
	}
	return time.Duration(now.Nano())
}

// expire forgets the full-NAT flows that have been silent for too long by now, and
// returns how many. It holds nobody up: it works on maps of its own.
func (d *Datapath) expire(now time.Duration) (int, error) {
	d.mu.Lock()
	if d.closed || d.shared == nil {
		d.mu.Unlock()
		return 0, nil
	}
	flows, err := d.shared.natFlows.Clone()
	if err != nil {
		d.mu.Unlock()
		return 0, err
	}
	defer flows.Close()
	returns, err := d.shared.natReturns.Clone()
	d.mu.Unlock()
	if err != nil {
		return 0, err
	}
	defer returns.Close()
	expired, left, err := expireFlows(flows, returns, now)
	if err == nil {
		d.natFlows.Store(uint32(left))
	}
	return expired, err
}

func expireFlows(flows, returns *ebpf.Map, now time.Duration) (expired, left int, err error) {
	size := min(expireBatch, int(flows.MaxEntries()))
	keys, values := make([]xdpFlowKey, size), make([]xdpNatFlow, size)
	var cursor ebpf.MapBatchCursor
	for {
		n, err := flows.BatchLookup(&cursor, keys, values, nil)
		for i := range n {
			if silent(values[i], now) && forget(flows, returns, keys[i], now) {
				expired++
				continue
			}
			left++
		}
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			return expired, left, nil
		}
		if err != nil {
			return expired, left, err
		}
	}
}

func silent(flow xdpNatFlow, now time.Duration) bool {
	return now-time.Duration(flow.Seen) > patience(flow.State)
}

// forget removes both ends of a flow, unless it has woken up meanwhile.
func forget(flows, returns *ebpf.Map, key xdpFlowKey, now time.Duration) bool {
	var flow xdpNatFlow
	if flows.Lookup(key, &flow) != nil || !silent(flow, now) {
		return false
	}
	back := xdpNatReturnKey{
		Source: flow.BackendAddress, Destination: flow.Address,
		SourcePort: flow.BackendPort, DestinationPort: flow.Port, Protocol: flow.Protocol,
	}
	// The end that clients' packets find goes first: what came in between would
	// otherwise be sent from a port that is no longer the flow's.
	if flows.Delete(key) != nil {
		return false
	}
	return returns.Delete(back) == nil
}
