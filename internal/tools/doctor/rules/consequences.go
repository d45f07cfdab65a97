// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"slices"
	"strings"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
)

// aboutBackends returns a finding about the backends in figures, whose notes are the reasons. The title begins with one
// for a single backend. For more it begins with several, with their number and the first name.
func aboutBackends(kind string, figures []Figure, means consequences, one, several string) []Finding {
	if len(figures) == 0 {
		return nil
	}
	title := fmt.Sprintf(one, figures[0].On)
	if len(figures) > 1 {
		title = fmt.Sprintf(several, len(figures), figures[0].On)
	}
	found := finding(kind, title+": it "+figures[0].Note, bounded(figures)...)
	found.Means = means.String()
	return []Finding{found}
}

// Consequences for the packets of a backend that is down, by the service's scheduler and table.
const (
	noneLeft = "No other backend can take packets, and nothing that is sent to the service is forwarded."
	// The backend is a function of the packet: maglev, sh.
	hashedUDP  = "Its share of the hash table is spread over the other backends, which get its flows."
	hashedAnew = "Its share of the hash table is spread over the other backends. They get its new flows, and the packets of the connections that it had, too, which they reset."
	// A tracked flow stays with its backend: rr, wrr, lc, wlc, random2, and services with limits or persistence.
	rememberedDead = "New flows go to the other backends. Of the flows that are remembered as this backend's, a SYN and any UDP packet begin a new flow on another backend; all other packets of these flows are dropped until it is back or their clients connect again."
	// Failover follows the order of the backends.
	nextTakesOver = "The next backend in the order takes all flows. It also gets the packets of the connections that this one had, and resets them."
	notItsTurn    = "It had no flows to carry, for one before it in the order takes them all; it cannot take over now."
)

// withoutBackend describes the consequences for the packets that would go to backend j of a service.
func withoutBackend(s ops.Service, j int) string {
	up := func(b ops.Backend) bool { return b.State == lb.Up }
	first := slices.IndexFunc(s.Backends, up)
	switch {
	case first < 0:
		return noneLeft
	case s.Scheduler.InOrder() && first < j:
		return notItsTurn
	case s.Tracked:
		return rememberedDead
	case s.Scheduler.InOrder():
		return nextTakesOver
	case s.Protocol == lb.UDP:
		return hashedUDP
	}
	return hashedAnew
}

// consequences are the consequences of a fault, each with the services that it applies to.
type consequences struct {
	texts    []string
	services map[string][]string
}

func (c *consequences) add(service, text string) {
	if c.services == nil {
		c.services = map[string][]string{}
	}
	if !slices.Contains(c.texts, text) {
		c.texts = append(c.texts, text)
	}
	if !slices.Contains(c.services[text], service) {
		c.services[text] = append(c.services[text], service)
	}
}

// maxServices is the maximum number of services named.
const maxServices = 4

// String returns the text. If there are several texts, it names the services of each.
func (c *consequences) String() string {
	if len(c.texts) == 1 {
		return c.texts[0]
	}
	var parts []string
	for _, text := range c.texts {
		names := c.services[text]
		if more := len(names) - maxServices; more > 0 {
			names = append(slices.Clone(names[:maxServices]), fmt.Sprintf("%d more", more))
		}
		parts = append(parts, strings.Join(names, ", ")+": "+text)
	}
	return strings.Join(parts, " ")
}
