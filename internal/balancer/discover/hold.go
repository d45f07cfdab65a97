// SPDX-License-Identifier: Apache-2.0

package discover

import (
	"net/netip"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// holding is for how long backends are held, and for how long the set of an origin that fails is used.
type holding struct{ hold, stale time.Duration }

// addHeld adds the backends of the set before that an answer lacks, and that have not been lacking for as long as they
// are held. Some servers answer with a random part of the records, in which a backend that is missing has not gone.
func (k *originState) addHeld(before *originState, h holding, now time.Time) {
	var failed time.Duration // for which no answer could have named them
	if !before.since.IsZero() {
		failed = now.Sub(before.since)
	}
	if h.hold == 0 || failed >= h.stale {
		return
	}
	answer := newAnswerIndex(k.found)
	for _, f := range before.found {
		if answer.hasReplaced(f) {
			continue
		}
		lacking, held := before.held[endpointOf(f)]
		if lacking = lacking.Add(failed); !held {
			lacking = now
		}
		if now.Sub(lacking) >= h.hold {
			continue
		}
		if k.held == nil {
			k.held = map[netip.AddrPort]time.Time{}
		}
		k.found, k.held[endpointOf(f)] = append(k.found, f), lacking
	}
	nameTargets(k.found)
}

// isExpired reports whether a backend has been held for as long as a service holds backends. While the origin fails,
// that time does not pass.
func (k *originState) isExpired(f Found, hold time.Duration, now time.Time) bool {
	if !k.since.IsZero() {
		now = k.since
	}
	lacking, held := k.held[endpointOf(f)]
	return held && now.Sub(lacking) >= hold
}

// nextHeldExpiry returns when the next held backend expires for a service; zero: none does.
func (k *originState) nextHeldExpiry(hold time.Duration, now time.Time) (next time.Time) {
	if !k.since.IsZero() {
		return time.Time{}
	}
	for _, lacking := range k.held {
		if until := lacking.Add(hold); until.After(now) && (next.IsZero() || until.Before(next)) {
			next = until
		}
	}
	return next
}

// longestHolding returns the longest times of the services that have an origin. The lock is held.
func (e *Engine) longestHolding(key string) (h holding) {
	for _, s := range e.services {
		if d := s.Discovery.DNS; d.Name != "" && d.Hold > 0 && originKey(s, lb.FromDNS) == key {
			h.hold, h.stale = max(h.hold, d.Hold), max(h.stale, s.Discovery.LimitsOf(lb.FromDNS).Stale)
		}
	}
	return h
}

func endpointOf(f Found) netip.AddrPort { return netip.AddrPortFrom(f.Address, f.Port) }

// answerIndex finds the backends of an answer.
type answerIndex struct {
	endpoints map[netip.AddrPort]bool
	targets   map[string]bool
	hosts     map[targetAddress]bool
}

type targetAddress struct {
	target  string
	address netip.Addr
}

func newAnswerIndex(found []Found) answerIndex {
	x := answerIndex{map[netip.AddrPort]bool{}, map[string]bool{}, map[targetAddress]bool{}}
	for _, f := range found {
		x.endpoints[endpointOf(f)] = true
		if f.Target != "" {
			x.targets[f.Target], x.hosts[targetAddress{f.Target, f.Address}] = true, true
		}
	}
	return x
}

// hasReplaced reports whether the answer replaces a backend: it has its endpoint, or other addresses of its target,
// whose addresses are queried whole.
func (x answerIndex) hasReplaced(f Found) bool {
	return x.endpoints[endpointOf(f)] || x.targets[f.Target] && !x.hosts[targetAddress{f.Target, f.Address}]
}
