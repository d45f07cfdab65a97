// SPDX-License-Identifier: Apache-2.0

package subject

import (
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// BesideContainers says why a subject cannot stand on the host of containers that it balances,
// and serve clients there (local) or beyond; empty if it can.
func BesideContainers(s Subject, local bool) string {
	switch s := s.(type) {
	case iptablesNth, dockerProxy, haproxyHTTP, haproxyTCP, nginxHTTP, nginxStream, envoy:
		return ""
	case direct:
		if !local {
			return "clients beyond the host reach containers through it only; use routed for no balancer"
		}
		return ""
	case routed:
		if local {
			return "there is no hop to route between containers and their own host; use direct for no balancer"
		}
		return ""
	case jeoul:
		return s.besideContainers(local)
	}
	return "it is not set up beside containers"
}

func (s jeoul) besideContainers(local bool) string {
	switch {
	case s.mode != lb.NAT && s.mode != lb.FullNAT:
		return "its servers have the VIP, or undo a tunnel, on the balancer's segment; of ours use nat or fullnat"
	case s.hook != lb.HookTC:
		return "a bridge has no XDP of its own; use the hook tc"
	case local && s.mode != lb.NAT:
		return "to programs on the host of a balancer of ours all modes are one; use nat"
	}
	return ""
}

// clients are the hosts that ask: those beyond the balancer, or the balancer's own.
func (s Setup) clients() []*lab.Host {
	if s.Local {
		return []*lab.Host{s.Lab.Balancer}
	}
	return s.Lab.Clients
}
