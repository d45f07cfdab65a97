// SPDX-License-Identifier: Apache-2.0

package subject

import "github.com/jeoul/jeoul/internal/weigh/lab"

// Abilities are a subject's own declaration, besides that it carries connections from clients to servers in a
// laboratory of namespaces. The zero value can nothing more.
type Abilities struct {
	// HTTPOnly: it carries nothing but HTTP.
	HTTPOnly bool
	// EndsTLS: it can end its clients' TLS, and speak to servers without.
	EndsTLS bool
	// UDP: it balances the UDP port of a service that has one.
	UDP bool
	// Packets: it sends each packet on by itself, rather than carry connections of its own.
	Packets bool
	// DirectReplies: servers answer clients from the VIP and past the balancer, and not the balancer, or
	// through it.
	DirectReplies bool
	// Changes: what it starts is Changing, Restarts that it is Restarting, Upgrades that it is Upgrading.
	Changes, Restarts, Upgrades bool
	// Machines, Containers and Others say why it cannot be set up on machines, on the host of containers that it
	// balances, as one of several behind a router; empty where it can. Without them it cannot.
	Machines   func(*lab.Lab) string
	Containers func(local bool) string
	Others     func() string
}

// Anywhere is an answer of [Abilities] of a subject that can in every case.
func Anywhere[T any](T) string { return "" }

// OnMachines returns the reason why a subject cannot be weighed in a laboratory of machines; empty if it can.
func OnMachines(s Subject, l *lab.Lab) string {
	if machines := s.Can().Machines; machines != nil {
		return machines(l)
	}
	return s.Name() +
		" is set up in the laboratory of namespaces only: what it does to a host's network is not taken back on a machine"
}

// BesideContainers returns the reason why a subject cannot stand on the host of containers that it balances, and serve
// clients there (local) or beyond; empty if it can.
func BesideContainers(s Subject, local bool) string {
	if containers := s.Can().Containers; containers != nil {
		return containers(local)
	}
	return "it is not set up beside containers"
}

// BesideOthers returns the reason why a subject cannot be several balancers behind a router; empty if it can.
func BesideOthers(s Subject) string {
	if others := s.Can().Others; others != nil {
		return others()
	}
	return "it tells no router of its VIP"
}
