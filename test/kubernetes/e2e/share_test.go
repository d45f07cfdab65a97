// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"maps"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	corev1 "k8s.io/api/core/v1"

	jeoule2e "github.com/jeoul/jeoul/cmd/jeoul/e2e"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// TestWeightedNodesShareEvenly: nodes with 7, 2 and 1 pods of a service whose policy is Local, and those weights. Each
// pod gets its tenth of 10,000 connections, within 2 % of them, and sees the client; no reply passes the balancer.
func TestWeightedNodesShareEvenly(t *testing.T) {
	c := sharedWith(t)
	s := newScope(t, c)
	s.spread("web", 7, 2, 1)
	service := s.create(s.service("web", "web", corev1.ServiceExternalTrafficPolicyLocal))
	s.assign(service, s.vip4.String())
	s.awaitNodes(netip.AddrPortFrom(s.vip4, 80))
	b := startBalancer(t, c.Lab.Balancer, s.localService(service, 7, 2, 1))
	b.eventually("every node is up", allUp)
	s.shareEvenly(netip.AddrPortFrom(s.vip4, 80))
}

// shareEvenly makes 10,000 connections to a service of ten pods, and judges who got them.
func (s *scope) shareEvenly(vip netip.AddrPort) {
	t, client := s.t, s.Lab.Clients[0]
	t.Helper()
	s.awaitAnswer(client, "tcp", vip)
	replies := countReplies(t, s.Lab.Balancer, vip)
	const connections, pods, tolerance = 10000, 10, 200
	got := connect(client, vip, connections)
	t.Logf("connections of each node: %v; of each pod: %v", got.nodes, slices.Sorted(maps.Values(got.pods)))
	if len(got.failed) > 0 {
		t.Errorf("%d connections failed, the first with: %v", len(got.failed), got.failed[0])
	}
	if len(got.pods) != pods {
		t.Errorf("%d pods got connections; want %d", len(got.pods), pods)
	}
	for pod, n := range got.pods {
		if n < connections/pods-tolerance || n > connections/pods+tolerance {
			t.Errorf("%s got %d connections; want %d ± %d", pod, n, connections/pods, tolerance)
		}
	}
	if want := map[string]int{addressFor(client, vip).String(): connections}; !maps.Equal(got.clients, want) {
		t.Errorf("the pods saw %v; want %v", got.clients, want)
	}
	if n := replies(); n != 0 {
		t.Errorf("%d replies passed the balancer", n)
	}
}

// addressFor returns the address by which a client asks a service.
func addressFor(client *lab.Host, vip netip.AddrPort) netip.Addr {
	if vip.Addr().Is6() {
		return client.IPv6
	}
	return client.IPv4
}

// countReplies counts the packets from a service's address that reach the balancer, until the function that it
// returns is called.
func countReplies(t *testing.T, host *lab.Host, vip netip.AddrPort) func() int64 {
	t.Helper()
	var n atomic.Int64
	capture := jeoule2e.StartCapture(t, host, host.Interface, func(packet gopacket.Packet) {
		tcp, ok := packet.Layer(layers.LayerTypeTCP).(*layers.TCP)
		if !ok || uint16(tcp.SrcPort) != vip.Port() {
			return
		}
		if source := packet.NetworkLayer().NetworkFlow().Src().String(); source == vip.Addr().String() {
			n.Add(1)
		}
	})
	return func() int64 {
		t.Helper()
		capture.Stop(t)
		if capture.Packets() == 0 {
			t.Error("the capture has seen no packet")
		}
		return n.Load()
	}
}
