// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"testing"

	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/tools/doctor/evidence"
)

// TestNodeAnswersForVIP: a node that answers ARP for a Service's address is distinguished from another host that does.
func TestNodeAnswersForVIP(t *testing.T) {
	const node, otherHost = "02:00:00:00:00:02", "02:00:00:00:00:03"
	status := &ops.Status{Feeds: []ops.Feed{{Source: "kubernetes",
		FeedReport: ops.FeedReport{Platform: ops.Kubernetes}}},
		Services: []ops.Service{{Name: "web", Owner: "kubernetes", VIP: vip4,
			Backends: []ops.Backend{{Name: "node", MAC: node}}}}}
	for mac, want := range map[string]string{node: strictARP, otherHost: vipAnswered} {
		e := &evidence.Evidence{Wire: evidence.Wire{Claims: []evidence.Claim{{Address: vip4, Interface: "eth0", VIP: true,
			MACs: []string{mac, "02:00:00:00:00:09"}}}}}
		e.After.Balancer = status
		if found := checkWire(e); len(found) != 1 || found[0].Kind != want {
			t.Errorf("%s answers: found %+v, want %s", mac, found, want)
		}
	}
}
