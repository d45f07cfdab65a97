// SPDX-License-Identifier: Apache-2.0

package localsockets

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/jeoul/jeoul/internal/balancer/datapath/flowtable"
	"github.com/jeoul/jeoul/internal/balancer/datapath/mapmem"
	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
	"github.com/jeoul/jeoul/internal/balancer/datapath/sharedmaps"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/host/enum"
)

// eventNames reads the names of the sockets' events from the program's own type information.
var eventNames = sync.OnceValues(func() ([]string, error) {
	spec, err := objects.Local.Spec()
	if err != nil {
		return nil, fmt.Errorf("reading the embedded eBPF program: %v", err)
	}
	return enum.Names(spec, "local_event", "LOCAL_", int(objects.LocalLocalEventLOCAL_EVENTS))
})

// eventHelp is the description of each event's counter.
var eventHelp = map[objects.LocalLocalEvent]string{
	objects.LocalLocalEventLOCAL_SERVED:                   "a connection, or the datagrams of a socket, got a backend",
	objects.LocalLocalEventLOCAL_MOVED:                    "the datagrams of a socket got another backend, for the one before takes no packets any more",
	objects.LocalLocalEventLOCAL_ENDED:                    "a connected UDP socket was ended, for its backend takes no packets any more: its program gets ECONNABORTED",
	objects.LocalLocalEventLOCAL_REFUSED_NO_BACKEND:       "refused: no backend of the service can take packets",
	objects.LocalLocalEventLOCAL_REFUSED_RATE_LIMIT:       "refused: the service takes no more new connections in a second",
	objects.LocalLocalEventLOCAL_REFUSED_CONNECTION_LIMIT: "refused: the service, or all of its backends, have as many connections as they may",
	objects.LocalLocalEventLOCAL_REFUSED_NO_ROOM:          "refused: the service has limits, and too many sockets are remembered for one more",
	objects.LocalLocalEventLOCAL_REFUSED_DENIED:           "refused: the service's allow and deny lists do not let the socket's address in",
	objects.LocalLocalEventLOCAL_UNREMEMBERED:             "served, and not remembered for lack of room: the program sees the backend's address",
}

// uncount subtracts the sockets, whose closing is no longer noticed, from the active flows of services and backends.
func (s *Sockets) uncount(shared *sharedmaps.Maps) {
	t, err := flowtable.TallySockets(s.known)
	if err != nil {
		return // the janitor corrects it
	}
	loads, turns := mapmem.ElementsOf[objects.XDPBackendLoad](shared.Loads.Memory),
		mapmem.ElementsOf[objects.XDPTurn](shared.Turns.Memory)
	for index, n := range t.Backends {
		if int(index) < len(loads) {
			atomic.AddUint32(&loads[index].Active, -n)
		}
	}
	for id, n := range t.Services {
		if int(id) < len(turns) {
			atomic.AddUint32(&turns[id].Active, -n)
		}
	}
}

// Counts reads the counters of sockets' events; nil where no program is attached to sockets.
func (s *Sockets) Counts() (*lb.LocalCounts, error) {
	if s == nil {
		return nil, nil
	}
	names, err := eventNames()
	if err != nil {
		return nil, err
	}
	t, err := flowtable.TallySockets(s.known)
	if err != nil {
		return nil, err
	}
	counts := &lb.LocalCounts{Cgroup: s.cgroup, Sockets: t.Sockets, Warning: s.missing}
	for i, name := range names {
		var n uint64
		if err := s.events.Lookup(uint32(i), &n); err != nil {
			return nil, fmt.Errorf("reading the counter %s of sockets: %v", name, err)
		}
		counts.Events = append(counts.Events,
			lb.EventCount{Name: strings.ToLower(name), Help: eventHelp[objects.LocalLocalEvent(i)], Count: n})
	}
	return counts, nil
}
