// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/weigh/lab"
	"github.com/jeoul/jeoul/test/kubernetes/cluster"
)

// TestTwoBalancers: two balancers that share the addresses by VRRP have the same tables, and one of them writes status.
// When the active one ends, connections go on through the other one, which gives the next Service its addresses.
func TestTwoBalancers(t *testing.T) {
	c := newCluster(t, cluster.Options{Nodes: 2, Clients: 1})
	var pair []*controller
	for i, host := range []*lab.Host{c.Lab.Balancer, c.Control} {
		k := startControllerBeside(t, c, startConfigured(t, host, fields{"services": []fields{},
			"vrrp": fields{"id": 51, "priority": 150 - 50*i, "interval": "100ms"}}))
		pair = append(pair, k)
	}
	s := newScope(t, c)
	s.spread("web", 2, 1)
	s.create(s.service("web", "web", corev1.ServiceExternalTrafficPolicyLocal))
	vip := netip.AddrPortFrom(s.awaitAddresses("web", 2)[0], 80)
	s.awaitNodes(vip)
	for _, k := range pair {
		s.eventually(k.host.Name+" has both nodes, with the weights of their pods", func() bool {
			return k.upWithWeights(3)
		})
	}
	tables := pair[0].tables()
	if got := pair[1].tables(); len(tables) != 4 || !maps.Equal(got, tables) {
		t.Errorf("the balancers have the tables %v and %v; want the same 4", tables, got)
	}
	holder := s.holder()
	if !slices.ContainsFunc(pair, func(k *controller) bool { return k.host.Name == holder }) {
		t.Fatalf("the Lease is held by %q; want one of the balancers", holder)
	}

	connections := hold(t, c.Lab.Clients[0], vip, 20)
	first := pair[0]
	first.process.Stop(t.Context())
	first.daemon.Stop(t.Context())
	asked := connections.asked.Load()
	s.eventually("connections go on", func() bool { return connections.asked.Load() > asked+200 })
	s.isServed(vip, "by the other balancer")
	s.create(s.service("next", "web", corev1.ServiceExternalTrafficPolicyLocal))
	s.awaitAddresses("next", 2)
	if got := s.holder(); got != pair[1].host.Name {
		t.Errorf("the Lease is held by %q; want %q", got, pair[1].host.Name)
	}
	if broken := connections.end(); len(broken) > 0 {
		t.Errorf("%d connections broke, the first with: %v", len(broken), broken[0].err)
	}
}

// tables returns the digest of the table of each service.
func (b *balancer) tables() map[string]string {
	b.t.Helper()
	digests := map[string]string{}
	b.eventually("every service has a table", func(now *ops.Status) bool {
		clear(digests)
		for _, service := range now.Services {
			digests[service.Name] = service.TableDigest
		}
		return len(digests) > 0 && !slices.Contains(slices.Collect(maps.Values(digests)), "")
	})
	return digests
}

// holder returns the balancer that writes status.
func (s *scope) holder() string {
	s.t.Helper()
	leases, err := s.Client.CoordinationV1().Leases("jeoul-system").List(s.t.Context(), metav1.ListOptions{})
	if err != nil || len(leases.Items) != 1 {
		s.t.Fatalf("the Leases of the balancers: %v, %v", leases, err)
	}
	name, _, _ := strings.Cut(ptr.Deref(leases.Items[0].Spec.HolderIdentity, ""), "_")
	return name
}
