// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"

	"github.com/jeoul/jeoul/internal/weigh/lab"
	"github.com/jeoul/jeoul/test/kubernetes/cluster"
)

// TestNodesAcceptVIP shows the fact that balancing to nodes by L2DSR stands on: kube-proxy accepts a packet for a
// service's address that reaches the node by its MAC address alone, and the pod's answer bears the service's address.
func TestNodesAcceptVIP(t *testing.T) {
	t.Run("iptables", func(t *testing.T) { nodesAcceptVIP(t, sharedWith(t)) })
	t.Run("nftables", func(t *testing.T) {
		nodesAcceptVIP(t, newCluster(t, cluster.Options{Nodes: 2, ProxyMode: "nftables"}))
	})
}

func nodesAcceptVIP(t *testing.T, c *cluster.Cluster) {
	s := newScope(t, c)
	s.spread("web", 1)
	local := s.create(s.service("local", "web", corev1.ServiceExternalTrafficPolicyLocal))
	first, second, client := c.Nodes[0], c.Nodes[1], c.Lab.Clients[0]
	early := askEarly(t, client, s.vip4, first.Host.MAC)
	s.assign(local, s.vip4.String(), s.vip6.String())
	for _, vip := range []netip.Addr{s.vip4, s.vip6} {
		own := client.IPv4
		if vip.Is6() {
			own = client.IPv6
		}
		direct(t, client, vip, first.Host.MAC)
		for _, network := range []string{"tcp", "udp"} {
			answer := s.awaitAnswer(client, network, netip.AddrPortFrom(vip, 80))
			if answer.Node != first.Name || clientOf(answer) != own {
				t.Errorf("%s to %s: the pod on %s saw %s; want %s and %s",
					network, vip, answer.Node, answer.Client, first.Name, own)
			}
		}
	}
	early()
	// A node without a pod of the service drops its packets under the policy Local.
	direct(t, client, s.vip4, second.Host.MAC)
	if answer, err := askFrom(client, "tcp", netip.AddrPortFrom(s.vip4, 80), time.Second); err == nil {
		t.Errorf("%s answered by %s, which is on another node", second.Name, answer.Pod)
	}
	checkNodeHealth(t, s, local.Spec.HealthCheckNodePort)
	clusterPolicyAcceptsEverywhere(t, s)
}

// askEarly connects to a service through a node before the node accepts its address. The function that it returns
// shows, when the node does, that the client's port stays lost: the node tracks the first SYN as a connection without
// NAT, and gives later ones from that port the same, until that entry ends (120 s after the last SYN). A client that
// tries another port, as a new connection does, is served.
func askEarly(t *testing.T, client *lab.Host, vip netip.Addr, node net.HardwareAddr) (again func()) {
	t.Helper()
	dial := func() error {
		return client.Do(func() error {
			dialer := net.Dialer{Timeout: time.Second, LocalAddr: &net.TCPAddr{IP: client.IPv4.AsSlice(), Port: 20001}}
			connection, err := dialer.Dial("tcp", netip.AddrPortFrom(vip, 80).String())
			if err == nil {
				connection.Close()
			}
			return err
		})
	}
	undo := direct(t, client, vip, node)
	defer undo()
	if err := dial(); err == nil {
		t.Errorf("a node accepts %s, which no Service has", vip)
	}
	return func() {
		t.Helper()
		undo := direct(t, client, vip, node)
		defer undo()
		if err := dial(); err == nil {
			t.Error("a port from which a client had connected too early is served at once: awaitNodes need not spare it")
		}
	}
}

// clusterPolicyAcceptsEverywhere shows that under the policy Cluster a node without a pod takes packets as well.
func clusterPolicyAcceptsEverywhere(t *testing.T, s *scope) {
	vip, client, second := s.vip4.Next(), s.Lab.Clients[0], s.Nodes[1]
	s.assign(s.create(s.service("anywhere", "web", corev1.ServiceExternalTrafficPolicyCluster)), vip.String())
	direct(t, client, vip, second.Host.MAC)
	answer := s.awaitAnswer(client, "tcp", netip.AddrPortFrom(vip, 80))
	if clientOf(answer) != second.Host.IPv4 {
		t.Errorf("the pod saw %s; want the node's address %s", answer.Client, second.Host.IPv4)
	}
}

// checkNodeHealth asks the port for health checks of each node, from the balancer.
func checkNodeHealth(t *testing.T, s *scope, port int32) {
	t.Helper()
	for i, want := range []struct {
		status int
		weight string
	}{{http.StatusOK, "1"}, {http.StatusServiceUnavailable, "0"}} {
		node := s.Nodes[i]
		s.eventually(fmt.Sprintf("%s answers health checks with %d", node.Name, want.status), func() bool {
			status, weight, err := nodeHealth(s.Lab.Balancer, node.Host.IPv4, port)
			return err == nil && status == want.status && weight == want.weight
		})
	}
}

// nodeHealth returns the answer of a node's port for health checks.
func nodeHealth(from *lab.Host, node netip.Addr, port int32) (status int, weight string, err error) {
	client := &http.Client{Transport: &http.Transport{DialContext: cluster.DialFrom(from), DisableKeepAlives: true}}
	answer, err := client.Get("http://" + net.JoinHostPort(node.String(), fmt.Sprint(port)) + "/healthz")
	if err != nil {
		return 0, "", err
	}
	defer answer.Body.Close()
	io.Copy(io.Discard, answer.Body)
	return answer.StatusCode, strings.TrimSpace(answer.Header.Get("X-Load-Balancing-Endpoint-Weight")), nil
}

// direct has a client send packets for an address to a MAC address, as a balancer by L2DSR would. The function that it
// returns undoes that, as the test's end does.
func direct(t *testing.T, client *lab.Host, address netip.Addr, mac net.HardwareAddr) (undo func()) {
	t.Helper()
	err := client.Do(func() error {
		link, err := netlink.LinkByName(client.Interface)
		if err != nil {
			return err
		}
		neighbour := &netlink.Neigh{LinkIndex: link.Attrs().Index, IP: address.AsSlice(), HardwareAddr: mac,
			State: netlink.NUD_PERMANENT}
		undo = func() { client.Do(func() error { return netlink.NeighDel(neighbour) }) }
		t.Cleanup(undo)
		return netlink.NeighSet(neighbour)
	})
	if err != nil {
		t.Fatal(err)
	}
	return undo
}
