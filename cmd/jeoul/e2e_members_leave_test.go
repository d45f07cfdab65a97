// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/jeoul/jeoul/cmd/jeoul/e2e"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/host/netdump"
	"github.com/jeoul/jeoul/internal/test/testenv"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// departure is a way in which one of two members deliberately leaves its packets to the other.
type departure struct {
	// beside returns the part of its configuration for that, by its number.
	beside func(number int) entry
	leave  func(t *testing.T, one *memberBalancer)
	back   func(t *testing.T, one *memberBalancer)
	// moves: it moves clients to the other by itself, as VRRP does; otherwise the test does, in a router's place.
	moves bool
}

var departures = map[string]departure{
	"stop": {
		beside: func(int) entry { return nil },
		leave:  func(t *testing.T, one *memberBalancer) { stop(t, one.daemon) },
		back:   func(t *testing.T, one *memberBalancer) { one.start(t) },
	},
	"BGP drain": {
		beside: func(int) entry { return entry{"bgp": entry{"speaker": "local"}} },
		leave:  func(t *testing.T, one *memberBalancer) { one.commandBalancer(t, "drain") },
		back:   func(t *testing.T, one *memberBalancer) { one.commandBalancer(t, "undrain") },
	},
	"VRRP drain": {
		beside: func(number int) entry {
			return entry{"vrrp": entry{"id": 51, "priority": 200 - number, "interval": "100ms"}}
		},
		leave: func(t *testing.T, one *memberBalancer) { one.commandBalancer(t, "drain") },
		back:  func(t *testing.T, one *memberBalancer) { one.commandBalancer(t, "undrain") },
		moves: true,
	},
}

// TestLastConnectionsOutliveTheirBalancer: connections of the scheduler by turns that were opened just before their
// balancer was stopped, or drained, continue through another member.
func TestLastConnectionsOutliveTheirBalancer(t *testing.T) {
	testenv.Also(t, matrixTarget)
	for _, name := range testenv.Some(t, matrixTarget, 1, slices.Sorted(maps.Keys(departures))) {
		t.Run(name, func(t *testing.T) { t.Parallel(); testDeparture(t, departures[name]) })
	}
}

func testDeparture(t *testing.T, how departure) {
	l := newLab(t, lab.Spec{Clients: 2, Servers: 3})
	key := freshKey(t, l.Balancer)
	one, other := &memberBalancer{balancer: newBalancer(t, l.Balancer)}, &memberBalancer{balancer: newBalancer(t,
		l.Clients[0])}
	for _, server := range l.Servers {
		(&segment{l, one.balancer}).serve(t, server)
	}
	for i, m := range []*memberBalancer{one, other} {
		m.configureAmong(t, l, lb.HookTC, m.among(t, l, key), how.beside(i))
		m.start(t)
		t.Cleanup(func() { stop(t, m.daemon) })
	}
	client := l.Clients[1]
	var drained *memberBalancer
	by := func(m *memberBalancer) {
		t.Helper()
		if how.moves {
			// Both are active for a moment when one takes the VIP back: the other yields at its advertisement.
			for _, each := range []*memberBalancer{one, other} {
				state := map[bool]string{true: "active", false: "backup"}[each == m]
				if each == drained {
					state = "initialize"
				}
				each.eventually(t, each.host.Name+" is "+state, func(status *ops.Status) bool {
					return status.VRRP != nil && status.VRRP.State == state
				})
				// The address follows the state, and until it is removed its host answers a client's ARP request.
				testenv.Eventually(t, e2e.WaitLimit, each.host.Name+" has the VIP only while it is active", func() bool {
					has, err := hasAddress(each.host, l.VIP4)
					return err == nil && has == (each == m)
				})
			}
			// Until the client has the announcement, it sends to the previous balancer, whose message about a new flow
			// may come later than the flow's next packet.
			testenv.Eventually(t, e2e.WaitLimit, client.Name+" sends to "+m.host.Name, func() bool {
				return sendsBy(t, client, l.VIP4, m.host)
			})
			return
		}
		sendBy(t, client, l.VIP4, m.host)
	}
	for done := 0; done < 2; {
		one.eventually(t, "it tells the other of flows", func(status *ops.Status) bool {
			_, both := handedFlows(status, other.host.Name)
			return both && allUp(status)
		})
		by(one)
		before, logged := changesOf(t, one, other), len(one.log.String())
		by(one) // also if a role has changed before they were counted
		on, err := tryToOpenSome(t, client, l)
		if unplanned := changesOf(t, one, other) - before; unplanned > 0 {
			t.Logf("the roles have changed %d times while connections were opened: once more", unplanned)
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		how.leave(t, one)
		drained = one
		by(other)
		drained = nil
		before = changesOf(t, other)
		var errs []error
		for connection, server := range on {
			if got, _, err := ask(connection); err != nil || got != server {
				errs = append(errs, fmt.Errorf("a connection to %s was answered by %q: %w", server, got, err))
			}
		}
		// One that leaves waits for a second until the other has the flows.
		stalled := changesOf(t, other) != before ||
			strings.Contains(one.log.String()[logged:], "other members have not taken all flows within")
		how.back(t, one)
		if err := errors.Join(errs...); err != nil && stalled {
			t.Logf("a balancer was stopped meanwhile: once more: %v", err)
			continue
		} else if err != nil {
			t.Error(err)
		}
		done++
	}
}

// changesOf returns how often the roles of balancers have changed: more often than planned if the machine has stopped
// one of them.
func changesOf(t *testing.T, balancers ...*memberBalancer) (n uint64) {
	t.Helper()
	for _, b := range balancers {
		if status := b.status(t); status.VRRP != nil {
			n += status.VRRP.Changes
		}
	}
	return n
}

// sendsBy reports whether a client has this host, and no other of its segment, as the neighbour of an address.
func sendsBy(t *testing.T, client *lab.Host, address netip.Addr, host *lab.Host) bool {
	t.Helper()
	others := 0
	within(t, client, func() error {
		list, err := netdump.Consistent(func() ([]netlink.Neigh, error) {
			return netlink.NeighList(0, netlink.FAMILY_V4)
		})
		for _, n := range list {
			if n.IP.Equal(address.AsSlice()) && len(n.HardwareAddr) > 0 && !bytes.Equal(n.HardwareAddr, host.MAC) {
				others++
			}
		}
		return err
	})
	return others == 0
}
