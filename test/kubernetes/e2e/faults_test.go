// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"net/netip"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/test/kubernetes/cluster"
)

// TestDeadNodeGetsNoFlows: the balancer finds a node without power by its port for health checks, while the API server
// still calls it ready; flows to the other nodes go on, and new ones succeed.
func TestDeadNodeGetsNoFlows(t *testing.T) {
	c := newCluster(t, cluster.Options{Nodes: 3, Clients: 2})
	s := newScope(t, c)
	s.spread("web", 1, 1, 1)
	service := s.create(s.service("web", "web", corev1.ServiceExternalTrafficPolicyLocal))
	s.assign(service, s.vip4.String())
	s.awaitNodes(netip.AddrPortFrom(s.vip4, 80))
	b := startBalancer(t, c.Lab.Balancer, s.localService(service, 1, 1, 1))
	b.eventually("every node is up", allUp)
	vip, dead := netip.AddrPortFrom(s.vip4, 80), c.Nodes[1]
	s.awaitAnswer(c.Lab.Clients[0], "tcp", vip)

	connections := hold(t, c.Lab.Clients[0], vip, 60)
	s.eventually("every connection was answered", func() bool { return connections.asked.Load() >= 60*3 })
	made := open(t, c.Lab.Clients[1], vip, 100)
	made.progress(t, 100)
	killed := time.Now()
	if err := dead.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.eventually("the balancer has found it", func(status *ops.Status) bool {
		for _, backend := range status.Services[0].Backends {
			if backend.Name == dead.Name {
				return backend.State != lb.Up
			}
		}
		return false
	})
	if got := connect(c.Lab.Clients[0], vip, 200); len(got.failed) > 0 || got.nodes[dead.Name] > 0 {
		t.Errorf("%d of 200 new connections failed, %d answered by the dead node", len(got.failed),
			got.nodes[dead.Name])
	}
	made.progress(t, 300)
	failed := made.end()
	t.Logf("the last SYN to the dead node was sent %d ms after its death; of %d new connections %d failed",
		made.lastLost.Sub(killed).Milliseconds(), made.opened.Load(), len(failed))
	asked := connections.asked.Load()
	s.eventually("the other connections go on", func() bool { return connections.asked.Load() > asked+100 })
	for _, broken := range connections.end() {
		if s.nodeOf(broken.pod) != dead.Name {
			t.Errorf("a connection to %s broke: %v", broken.pod, broken.err)
		}
	}
}

// nodeOf returns the node of a pod of the deployments that spread makes.
func (s *scope) nodeOf(name string) string {
	for _, pod := range s.pods("web") {
		if pod.Name == name {
			return pod.Spec.NodeName
		}
	}
	return ""
}

// localService returns a service of the balancer for one of the cluster whose policy is Local: by L2DSR to nodes of
// these weights, which are checked by their port for health checks.
func (s *scope) localService(service *corev1.Service, weights ...int) fields {
	var backends []fields
	for i, weight := range weights {
		node := s.Nodes[i]
		backends = append(backends, fields{"name": node.Name, "address": node.Host.IPv4.String(), "weight": weight})
	}
	return fields{"name": service.Name, "vip": s.vip4.String(), "port": 80, "mode": string(lb.L2DSR),
		"backends": backends,
		"check": fields{"type": "http", "via": "address", "port": service.Spec.HealthCheckNodePort, "path": "/healthz",
			"interval": "1s", "fall": 2}}
}
