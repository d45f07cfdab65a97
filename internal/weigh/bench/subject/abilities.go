// SPDX-License-Identifier: Apache-2.0

package subject

import "github.com/jeoul/jeoul/internal/weigh/lab"

// abilities are what a subject declares of itself in a method can, besides that it carries connections from clients to
// servers in a laboratory of namespaces. A subject without that method can nothing more.
type abilities struct {
	// udp says that it balances the UDP port of a service that has one.
	udp bool
	// packets says that it sends each packet on by itself, rather than carry connections.
	packets bool
	// changes says that what it starts is Changing, restarts that it is Restarting, upgrades that it is Upgrading.
	changes, restarts, upgrades bool
	// machines, containers and others say why it cannot be set up on machines, on the host of containers that it
	// balances, as one of several behind a router; empty where it can. Without them it cannot.
	machines   func(*lab.Lab) string
	containers func(local bool) string
	others     func() string
}

// anywhere is that of a subject that can in every case.
func anywhere[T any](T) string { return "" }

func can(s Subject) abilities {
	if declared, ok := s.(interface{ can() abilities }); ok {
		return declared.can()
	}
	return abilities{}
}

// CanChange says whether what s starts is Changing.
func CanChange(s Subject) bool { return can(s).changes }

// CanRestart says whether what s starts is Restarting.
func CanRestart(s Subject) bool { return can(s).restarts }

// CanUpgrade says whether what s starts is Upgrading.
func CanUpgrade(s Subject) bool { return can(s).upgrades }

// CarriesUDP says whether s balances the UDP port of a service that has one.
func CarriesUDP(s Subject) bool { return can(s).udp }

// ForwardsPackets says whether s sends each packet on by itself, rather than carry connections
// of its own.
func ForwardsPackets(s Subject) bool { return can(s).packets }

// OnMachines says why a subject cannot be weighed in a laboratory of machines; empty
// if it can.
func OnMachines(s Subject, l *lab.Lab) string {
	if machines := can(s).machines; machines != nil {
		return machines(l)
	}
	return s.Name() +
		" is set up in the laboratory of namespaces only: what it does to a host's network is not taken back on a machine"
}

// BesideContainers says why a subject cannot stand on the host of containers that it balances,
// and serve clients there (local) or beyond; empty if it can.
func BesideContainers(s Subject, local bool) string {
	if containers := can(s).containers; containers != nil {
		return containers(local)
	}
	return "it is not set up beside containers"
}

// BesideOthers says why a subject cannot be several balancers behind a router; empty if it can.
func BesideOthers(s Subject) string {
	if others := can(s).others; others != nil {
		return others()
	}
	return "it tells no router of its VIP"
}
