// SPDX-License-Identifier: Apache-2.0

package subject

import "github.com/jeoul/jeoul/internal/weigh/lab"

// Abilities are a subject's own declaration of its abilities, besides carrying connections from clients to servers in a
// laboratory of namespaces. The zero value declares no further ability.
type Abilities struct {
	// HTTPOnly means that the subject carries only HTTP.
	HTTPOnly bool
	// EndsTLS means that the subject can terminate its clients' TLS, and speak to servers without TLS.
	EndsTLS bool
	// UDP means that the subject balances the UDP port of a service that has one.
	UDP bool
	// Packets means that the subject forwards single packets instead of carrying connections of its own.
	Packets bool
	// DirectReplies means that servers answer clients from the VIP, and that the answers do not pass the balancer.
	DirectReplies bool
	// Changes means that a running subject is Changing, Restarts that it is Restarting, and Upgrades that it is
	// Upgrading.
	Changes, Restarts, Upgrades bool
	// Machines, Containers and Others return why the subject cannot be set up on machines, on the host of the
	// containers that it balances, or as one of several balancers behind a router; empty if it can. If they are nil, it
	// cannot.
	Machines   func(*lab.Lab) string
	Containers func(local bool) string
	Others     func() string
}

// Anywhere is a function of [Abilities] for a subject without limitation.
func Anywhere[T any](T) string { return "" }

// OnMachines returns the reason why a subject cannot be measured in a laboratory of machines; empty if it can.
func OnMachines(s Subject, l *lab.Lab) string {
	if machines := s.Can().Machines; machines != nil {
		return machines(l)
	}
	return s.Name() +
		" is set up in the laboratory of namespaces only: what it does to a host's network is not taken back on a machine"
}

// BesideContainers returns the reason why a subject cannot run on the host of the containers that it balances, and
// serve clients there (local) or beyond; empty if it can.
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
