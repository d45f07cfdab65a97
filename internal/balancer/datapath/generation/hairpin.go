// SPDX-License-Identifier: Apache-2.0

package generation

import (
	"net/netip"

	"github.com/jeoul/jeoul/internal/balancer/datapath/mapmem"
	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// A service of mode nat that has a hairpin (lb.Hairpin) is two services here: the second one serves near clients, and
// its key differs by a bit of the protocol (PROTOCOL_HAIRPIN). Apart from that it is a full-NAT service like others,
// with its own flows, tables and transitions. Outside of this package its backends, flows and counters are those of the
// first.

var _ = [1]struct{}{}[lb.MaxNear-objects.XDPAgreementMAX_NEAR]

// VisibleService returns the key that users see for a service.
func VisibleService(key lb.ServiceKey) lb.ServiceKey {
	key.Hairpin = false
	return key
}

// Visible returns the key that users see for a backend.
func Visible(key lb.BackendKey) lb.BackendKey {
	key.Service = VisibleService(key.Service)
	return key
}

// LocalOf returns the balancer's own address towards backend i; invalid where that is not known.
func LocalOf(s *lb.RoutedService, i int) netip.Addr {
	if i >= len(s.Paths) {
		return netip.Addr{}
	}
	return s.Paths[i].Local
}

// cannotContinue reports whether flows of a hairpin to its backend i, which was number previousNumber before the
// change, cannot go on: they would be sent from another address now, and the backend's packets to the previous one
// belong to no flow. The backend then counts as another one, and the flows end.
func cannotContinue(after, before *lb.RoutedService, i, previousNumber int) bool {
	now, then := LocalOf(after, i), LocalOf(before, previousNumber)
	return after.IsHairpin && now.IsValid() && then.IsValid() && now != then
}

// PutNear writes the near clients on a program's interface into its constants; lists: some service does not serve every
// client.
func PutNear(constants *objects.XDPSettings, prefixes []netip.Prefix, lists bool) {
	constants.Near4Count, constants.Near6Count = 0, 0
	for _, p := range prefixes {
		address, mask := mapmem.OfAddress(p.Addr()), MaskWords(p)
		switch four, six := &constants.Near4Count, &constants.Near6Count; {
		case p.Addr().Is4() && *four < lb.MaxNear:
			constants.Near4[*four].Address, constants.Near4[*four].Mask = address[0], mask[0]
			*four++
		case p.Addr().Is6() && *six < lb.MaxNear:
			constants.Near6[*six].Address, constants.Near6[*six].Mask = address, mask
			*six++
		}
	}
	constants.Clients = 0
	if lists || constants.Near4Count+constants.Near6Count > 0 {
		constants.Clients = 1
	}
}

// MaskWords returns the mask of a prefix, laid out as its address.
func MaskWords(p netip.Prefix) [4]uint32 {
	mask := make([]byte, p.Addr().BitLen()/8)
	for bit := range p.Bits() {
		mask[bit/8] |= 0x80 >> (bit % 8)
	}
	all, _ := netip.AddrFromSlice(mask)
	return mapmem.OfAddress(all)
}
