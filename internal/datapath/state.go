// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"net"

	"github.com/jeoul/jeoul/internal/lb"
)

// State is everything that the data plane must know.
type State struct {
	Services []Service
}

// Service is a service, and where its backends are.
type Service struct {
	lb.Service
	// MACs[i] is the address of Backends[i] on the link, 6 bytes; nil while it
	// is unknown. A backend without one gets no traffic.
	MACs []net.HardwareAddr
}

// up says whether packets may be sent to backend i.
func (s Service) up(i int) bool { return i < len(s.MACs) && len(s.MACs[i]) == macLength }

// member says whether backend i takes new flows.
func (s Service) member(i int) bool { return s.up(i) && s.Backends[i].Weight > 0 }

// maxMembers is how many backends of one service a slot of two bytes can name.
const maxMembers = 1 << 16

// macLength is the length of an Ethernet address in bytes.
const macLength = 6
