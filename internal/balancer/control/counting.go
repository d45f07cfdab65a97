// SPDX-License-Identifier: Apache-2.0

package control

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/control/loop"
	"github.com/jeoul/jeoul/internal/balancer/control/view"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
)

// retally returns the tallies of the next configuration. It reads the counters only if names have other endpoints in
// it; if the counters cannot be read, these names continue with the counts of their new endpoints.
func (n *counting) retally(next *view.View) map[view.BackendName]view.Tally {
	before := n.view
	all, moves := next.RetainTallies(before)
	if len(moves) == 0 {
		return all
	}
	counts, err := n.endpointCounters(before)
	if err != nil {
		n.opt.Log.Warn(fmt.Sprintf(
			"backends that have another address go on with the counters of those that had it before: %v", err))
		return all
	}
	for _, m := range moves {
		t := view.Tally{Base: counts.Total(m.To)}
		if m.Existed {
			t.Carried = before.Tallies[m.Name].Count(counts.Total(m.From))
		}
		all[m.Name] = t
	}
	return all
}

// counting reads the counters of the data plane and the proxy.
type counting struct {
	*core
	proxies *proxies
	// lost are the lost frames of XDP as logged last, by interface.
	lost       map[string]uint64
	losses     lossReader
	lossesTask *loop.Task
}

// counters reads the counters; those of backends are by name: see view.Tally.
func (n *counting) counters(v *view.View) (view.Counted, error) {
	all, err := n.endpointCounters(v)
	if err != nil {
		return view.Counted{}, err
	}
	return v.Tallied(all), nil
}

// countersOf reads the counters of some services, by their numbers. Where they have counters beside those of their own
// endpoints (the proxy's, and the pool's, whose ports services share), it reads all.
func (n *counting) countersOf(v *view.View, services []int) (view.Counted, error) {
	keys := make(map[lb.ServiceKey]bool, len(services))
	for _, i := range services {
		s := &v.Config.Services[i]
		if s.Mode.Proxied() || s.Mode.UsesPool() {
			return n.counters(v)
		}
		keys[s.Key()] = true
	}
	from, err := n.opt.DataPlane.CountersOf(keys)
	if err != nil {
		return view.Counted{}, fmt.Errorf("read the counters: %w", err)
	}
	return v.Tallied(view.Counted{Counters: from}), nil
}

// endpointCounters reads the counters, by endpoint. The proxy's counters of backends are merged into those of the data
// plane, so that readers need not distinguish them. If the proxy does not answer, its last counters are used.
func (n *counting) endpointCounters(v *view.View) (view.Counted, error) {
	from, err := n.opt.DataPlane.Counters()
	if err != nil {
		return view.Counted{}, fmt.Errorf("read the counters: %w", err)
	}
	all := view.Counted{Counters: from}
	if len(v.Proxied) == 0 || n.opt.Proxy == nil {
		return all, nil
	}
	all.Proxy, err = n.proxies.readStats()
	if err != nil {
		n.opt.Log.Debug("the counters of the proxy cannot be read", "why", err)
	}
	all.Backends, all.Services = maps.Clone(from.Backends), maps.Clone(from.Services)
	if all.Backends == nil {
		all.Backends = map[lb.BackendKey]lb.BackendCount{}
	}
	if all.Services == nil {
		all.Services = map[lb.ServiceKey]lb.ServiceCount{}
	}
	for key, n := range all.Proxy.Backends {
		all.Backends[key] = lb.BackendCount{Connections: n.Connections, Active: capped(n.Active), Flows: n.Active,
			Bytes: n.BytesIn, ReturnedBytes: n.BytesOut}
	}
	for key, n := range all.Proxy.Services {
		all.Services[key] = lb.ServiceCount{Active: capped(n.Active), Flows: n.Active}
	}
	return all, nil
}

// capped returns a number of connections in 32 bits.
func capped(n uint64) uint32 { return uint32(min(n, math.MaxUint32)) }

// lossCounter is a Links that counts the frames sent by XDP that were lost, by interface.
type lossCounter interface{ XDPLost() []uint64 }

// lossInterval is how often the losses are read.
const lossInterval = 10 * time.Second

// lossMessages warns of packets that the hook in use loses, or may lose: a frame that a driver does not accept was
// counted as forwarded already. There is one message per interface, empty if there is nothing to warn of.
func lossMessages(attachments []lb.Attachment, lost []uint64) []string {
	messages := make([]string, len(attachments))
	for i, a := range attachments {
		if a.Hook != lb.HookXDP {
			continue
		}
		switch frames := lossOf(lost, i); {
		case frames > 0 && a.Warning != "":
			messages[i] = fmt.Sprintf("%d frames that XDP sent are lost, though they are counted as forwarded: %s",
				frames, a.Warning)
		case frames > 0:
			messages[i] = fmt.Sprintf(
				"%d frames that XDP sent on %s are lost, though they are counted as forwarded: its driver (%s) did not take them; see `ethtool -S %s`, and set hook: tc if it goes on",
				frames, a.Interface, a.Driver, a.Interface)
		case a.Warning != "":
			messages[i] = a.Warning
		}
	}
	return messages
}

func lossOf(lost []uint64, i int) uint64 {
	if i < len(lost) {
		return lost[i]
	}
	return 0
}

// xdpLost returns the number of packets that XDP lost on each interface; nil if that is unknown, or XDP is not used:
// asking a driver for its counters takes more than a megabyte of memory each time.
func (n *counting) xdpLost(attachments []lb.Attachment) []uint64 {
	links, ok := n.opt.Links.(lossCounter)
	if !ok || !slices.ContainsFunc(attachments, func(a lb.Attachment) bool { return a.Hook == lb.HookXDP }) {
		return nil
	}
	return n.losses.read(links.XDPLost)
}

// lossWait is how long a status waits for the drivers' counters. Mostly reading takes less than a millisecond.
const lossWait = 250 * time.Millisecond

// lossReader reads the drivers' counters in a goroutine of its own. The kernel reads them under the RTNL lock, which
// all changes of interfaces in all network namespaces need: while others hold it, a status would have to wait.
type lossReader struct {
	mu sync.Mutex
	// reading is closed when the reading under way ends; nil: none is.
	reading chan struct{}
	latest  []uint64
}

// read returns the counters that get reads or, where that takes longer than lossWait, those of its last reading.
func (r *lossReader) read(get func() []uint64) []uint64 {
	r.mu.Lock()
	if r.reading == nil {
		reading := make(chan struct{})
		r.reading = reading
		go func() {
			defer close(reading)
			lost := get()
			r.mu.Lock()
			defer r.mu.Unlock()
			r.latest, r.reading = lost, nil
		}()
	}
	reading := r.reading
	r.mu.Unlock()
	timer := time.NewTimer(lossWait)
	defer timer.Stop()
	select {
	case <-reading:
	case <-timer.C:
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.latest
}

// logLosses logs lost packets, each time that their number has grown tenfold, and schedules the next run.
func (n *counting) logLosses() {
	attachments := n.opt.DataPlane.Attachments()
	lost := n.xdpLost(attachments)
	messages := lossMessages(attachments, lost)
	for i, a := range attachments {
		if frames := lossOf(lost, i); frames > 0 && messages[i] != "" && frames >= 10*n.lost[a.Interface] {
			n.lost[a.Interface] = frames
			n.opt.Log.Warn(messages[i])
		}
	}
	n.lossesTask.Schedule(lossInterval)
}

// remainingFlows returns the flows that backends still have; nil if the counters cannot be read.
func (n *counting) remainingFlows(names []view.BackendName) map[view.BackendName]*ops.Left {
	counters, err := n.counters(n.view)
	if err != nil {
		n.opt.Log.Warn(fmt.Sprintf("counting the flows left on drained backends: %v", err))
		return nil
	}
	remaining := map[view.BackendName]*ops.Left{}
	for name, at := range n.view.Locate(slices.Values(names)) {
		remaining[name] = remainingOf(at.Service, at.Service.BackendKey(at.Backend), counters.Counters)
	}
	return remaining
}

// remainingOf returns the flows that a backend still has.
func remainingOf(s lb.Service, key lb.BackendKey, counters lb.Counters) *ops.Left {
	count := counters.Backends[key]
	remaining := &ops.Left{Flows: count.Flows, Tracked: s.Tracked(), Active: count.Active, Packets: count.Packets}
	if t := counters.Services[key.Service].Transition; t != nil && t.Base && !remaining.Tracked {
		remaining.Until = t.Until
	}
	return remaining
}
