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

// macLength is the length of an Ethernet address in bytes.
const macLength = 6
