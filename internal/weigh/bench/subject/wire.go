// SPDX-License-Identifier: Apache-2.0

package subject

import (
	"slices"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// AnswersDirectly says whether, with a subject, servers answer clients from the VIP and
// past the balancer, and not the balancer, or through it.
func AnswersDirectly(s Subject) bool {
	if own, ok := s.(jeoul); ok {
		return own.mode != lb.NAT && own.mode != lb.FullNAT
	}
	return slices.Contains([]string{"direct", "bare", "ipvs-dr", "ipvs-tun", "keepalived-dr", "keepalived-tun"},
		s.Name())
}

// DSCPPoint is the code point that stands for the VIP in mode dscp.
const DSCPPoint = dscpPoint
