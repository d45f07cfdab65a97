// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"maps"
	"slices"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// baseExtension is the extension of a base's lifetime from which it is sent again for that alone.
const baseExtension = time.Second

// sendBases sends peers the bases that are new, changed or extended; each at most once per pause. A base that a further
// change has reverted is sent, too: flows that began in between are remembered, and are looked up only if the base is
// known.
func (e *Exchange) sendBases(now time.Time, pause time.Duration) error {
	bases, err := e.options.DataPlane.Bases()
	if err != nil {
		return err
	}
	present := map[lb.ServiceKey]bool{}
	for i := range bases {
		b := &bases[i]
		present[b.Service] = true
		until := now.Add(b.Left)
		was, sent := e.bases[b.Service]
		switch {
		case b.Size == 0:
			continue // a base of which only flows are left is sent to peers that join
		case sent && now.Sub(was.at) < pause, sent && isSame(&was.Base, b) && until.Sub(was.until) < baseExtension:
			continue
		}
		body, err := encodeBase(b)
		if err != nil {
			return err
		}
		e.bases[b.Service] = sentBase{*b, now, until}
		e.broadcast(body, 0)
	}
	maps.DeleteFunc(e.bases, func(key lb.ServiceKey, _ sentBase) bool { return !present[key] })
	return nil
}

// isSame reports whether two bases of a service are equal but for their times. Their lists of backends, which may be
// long, mostly share one memory.
func isSame(a, b *lb.Base) bool {
	return a.BySource == b.BySource && a.Scheduler == b.Scheduler && a.Size == b.Size && a.Beyond == b.Beyond &&
		a.Moved == b.Moved &&
		len(a.Backends) == len(b.Backends) && (len(a.Backends) == 0 || &a.Backends[0] == &b.Backends[0] ||
		slices.Equal(a.Backends, b.Backends))
}
