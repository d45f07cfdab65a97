// SPDX-License-Identifier: Apache-2.0

package loglines

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/jeoul/jeoul/internal/balancer/events"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// OneLine returns an error's message in one line, for the log.
func OneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// AddressList lists up to MaxLines addresses, and counts the others.
func AddressList(addrs []netip.Addr) string {
	var text []string
	for _, a := range addrs[:min(len(addrs), MaxLines)] {
		text = append(text, a.String())
	}
	if more := len(addrs) - len(text); more > 0 {
		text = append(text, fmt.Sprintf("%d more", more))
	}
	return strings.Join(text, ", ")
}

// BackendText names a backend in messages, as in "backend web01 (192.0.2.1) of web".
func BackendText(s lb.Service, b lb.Backend) string {
	return fmt.Sprintf("backend %s (%s) of %s", b.Name, b.Address, s.Name)
}

// AboutBackend returns the subject of an event of a backend.
func AboutBackend(kind events.Kind, s lb.Service, b lb.Backend) events.About {
	return events.About{Kind: kind, Service: s.Name, Backend: b.Name}
}
