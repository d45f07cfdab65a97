// SPDX-License-Identifier: Apache-2.0

package control

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/control/loop"
	"github.com/jeoul/jeoul/internal/balancer/control/view"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
)

// retally returns the tallies of the next configuration. It reads the counters only where names have other endpoints in
// it; where they cannot be read, such names go on with the counts of their endpoints.
func (n *counting) retally(next *view.View) map[view.BackendName]view.Tally {
	before := n.view
	all, moves := next.Moves(before)
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
			t.Carried = before.Tallies[m.Name].Of(counts.Total(m.From))
		}
		all[m.Name] = t
	}
	return all
}

// counting reads the counters of the data plane and the proxy.
type counting struct {
	*core
	proxies *proxies
	// lost are frames of XDP, by interface, as it was logged last.
	lost       map[string]uint64
	lossesTask *loop.Task
}

// counters reads the counters, those of backends by their names: see tally.
func (n *counting) counters(v *view.View) (view.Counted, error) {
	all, err := n.endpointCounters(v)
	if err != nil {
		return view.Counted{}, err
	}
	return v.Tallied(all), nil
}

// endpointCounters reads the counters. The proxy's counters of backends are merged into those of the data plane, so
// that their readers need not tell the two apart. Where the proxy does not answer, its last answer counts.
func (n *counting) endpointCounters(v *view.View) (view.Counted, error) {
	from, err := n.opt.DataPlane.Counters()
	if err != nil {
		return view.Counted{}, fmt.Errorf("read the counters: %w", err)
	}
	all := view.Counted{Counters: from}
	if len(v.Proxied) == 0 || n.opt.Proxy == nil {
		return all, nil
	}
	all.Proxy, err = n.proxies.askProxy()
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

// capped is a number of connections in 32 bits.
func capped(n uint64) uint32 { return uint32(min(n, math.MaxUint32)) }

// losing are Links that know how many of the frames that XDP sent were lost, by interface.
type losing interface{ XDPLost() []uint64 }

// lossEvery is how often the losses are looked at.
const lossEvery = 10 * time.Second

// lossMessages warns of packets that are lost, or may be, by the hook in use: a frame that a driver does not take was
// counted as forwarded before. One for each interface, empty if there is nothing to say.
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

// xdpLost returns the number of packets that XDP lost on each interface; nil if that is unknown.
func (n *counting) xdpLost() []uint64 {
	if links, ok := n.opt.Links.(losing); ok {
		return links.XDPLost()
	}
	return nil
}

// logLosses logs lost packets, where there are ten times as many as were logged last, and looks again later.
func (n *counting) logLosses() {
	attachments, lost := n.opt.DataPlane.Attachments(), n.xdpLost()
	messages := lossMessages(attachments, lost)
	for i, a := range attachments {
		if frames := lossOf(lost, i); frames > 0 && messages[i] != "" && frames >= 10*n.lost[a.Interface] {
			n.lost[a.Interface] = frames
			n.opt.Log.Warn(messages[i])
		}
	}
	n.lossesTask.In(lossEvery)
}

// leftOf returns the flows that the backends still have, as far as they are known.
func (n *counting) leftOf(names []view.BackendName) map[view.BackendName]*ops.Left {
	counters, err := n.counters(n.view)
	if err != nil {
		n.opt.Log.Warn(fmt.Sprintf("counting the flows left on drained backends: %v", err))
		return nil
	}
	left := map[view.BackendName]*ops.Left{}
	for name, at := range n.view.Locate(slices.Values(names)) {
		left[name] = leftOf(at.Service, at.Service.BackendKey(at.Backend), counters.Counters)
	}
	return left
}

// leftOf returns the flows that a backend still has.
func leftOf(s lb.Service, key lb.BackendKey, counters lb.Counters) *ops.Left {
	count := counters.Backends[key]
	left := &ops.Left{Flows: count.Flows, Tracked: s.Tracked(), Active: count.Active, Packets: count.Packets}
	if t := counters.Services[key.Service].Transition; t != nil && t.Base && !left.Tracked {
		left.Until = t.Until
	}
	return left
}
