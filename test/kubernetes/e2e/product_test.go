// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/jeoul/jeoul/internal/balancer/api"
	"github.com/jeoul/jeoul/internal/balancer/kubernetes/annotations"
	"github.com/jeoul/jeoul/internal/balancer/kubernetes/status"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/weigh/lab"
	"github.com/jeoul/jeoul/test/kubernetes/cluster"
)

// addressPools is the file of the pools of all tests.
const addressPools = `pools:
  - name: tests
    addresses: [198.18.0.160-198.18.0.179, 2001:2::160-2001:2::179]
  - name: agents # those of deploy/kubernetes/agent
    addresses: [198.18.0.100/32, "2001:2::100/128"]
`

// controller is a balancer and the `jeoul-kubernetes` beside it.
type controller struct {
	*balancer
	arguments []string
	process   *lab.Process
	out       log
}

// startController starts a balancer without services of its own, and has it serve a cluster.
func startController(t *testing.T, c *cluster.Cluster) *controller {
	t.Helper()
	return startControllerBeside(t, c, startBalancer(t, c.Lab.Balancer))
}

// startControllerBeside has a balancer serve a cluster. Arguments are further ones of jeoul-kubernetes.
func startControllerBeside(t *testing.T, c *cluster.Cluster, b *balancer, arguments ...string) *controller {
	t.Helper()
	makeNamespace(t, c, "jeoul-system")
	k := &controller{balancer: b}
	if err := os.WriteFile(k.path("pools.yaml"), []byte(addressPools), 0o644); err != nil {
		t.Fatal(err)
	}
	k.arguments = append([]string{"--kubeconfig", c.Kubeconfig, "--socket", k.socket(), "--pools", k.path("pools.yaml"),
		"--identity", b.host.Name}, arguments...)
	k.run()
	t.Cleanup(func() {
		k.process.Stop(context.Background())
		if t.Failed() {
			t.Logf("the log of jeoul-kubernetes:\n%s", k.out.String())
		}
	})
	return k
}

func (k *controller) run() {
	k.t.Helper()
	k.process = k.start(&k.out, binary(k.t, "jeoul-kubernetes"), k.arguments...)
}

// makeNamespace makes a namespace of the cluster unless it is there.
func makeNamespace(t *testing.T, c *cluster.Cluster, name string) {
	t.Helper()
	_, err := c.Client.CoreV1().Namespaces().Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
}

// TestLoadBalancer serves Services of a cluster by the product as a whole.
func TestLoadBalancer(t *testing.T) {
	c := sharedWith(t)
	k := startController(t, c)
	t.Run("Local", func(t *testing.T) { localIsEvenOverBothFamilies(t, c, k) })
	t.Run("Cluster", func(t *testing.T) { clusterIsServed(t, c) })
	t.Run("Shared", func(t *testing.T) { addressIsShared(t, c, k) })
	t.Run("Refused", func(t *testing.T) { refusalIsSaid(t, c) })
	t.Run("Reported", func(t *testing.T) { weightsFollowNodes(t, c, k) })
	// The namespaces of the tests above are deleted, and their services with them.
	k.eventually("the balancer has no service", func(status *ops.Status) bool { return len(status.Services) == 0 })
}

// localIsEvenOverBothFamilies: 7, 2 and 1 pods by node each get their tenth, by both families and by UDP.
func localIsEvenOverBothFamilies(t *testing.T, c *cluster.Cluster, k *controller) {
	s := newScope(t, c)
	s.spread("web", 7, 2, 1)
	s.create(s.service("web", "web", corev1.ServiceExternalTrafficPolicyLocal))
	addresses := s.awaitAddresses("web", 2)
	for _, vip := range addresses {
		s.awaitNodes(netip.AddrPortFrom(vip, 80))
	}
	s.eventually("the nodes are up, with the weights of their pods", func() bool { return k.upWithWeights(10) })
	for _, vip := range addresses {
		s.shareEvenly(netip.AddrPortFrom(vip, 80))
		answer := s.awaitAnswer(c.Lab.Clients[0], "udp", netip.AddrPortFrom(vip, 80))
		if want := c.Lab.Clients[0]; clientOf(answer) != want.IPv4 && clientOf(answer) != want.IPv6 {
			t.Errorf("by UDP to %s, %s saw %s", vip, answer.Pod, answer.Client)
		}
	}
}

// clusterIsServed: a service of one pod, under the policy Cluster, is reached through every node.
func clusterIsServed(t *testing.T, c *cluster.Cluster) {
	s := newScope(t, c)
	s.spread("web", 1)
	s.create(s.service("web", "web", corev1.ServiceExternalTrafficPolicyCluster))
	vip := netip.AddrPortFrom(s.awaitAddresses("web", 2)[0], 80)
	s.awaitNodes(vip)
	got := connect(c.Lab.Clients[0], vip, 300)
	if len(got.failed) > 0 {
		t.Errorf("%d of 300 connections failed, the first with: %v", len(got.failed), got.failed[0])
	}
	// kube-proxy translates the client to the node that took the packet: each of them was one.
	if len(got.clients) != len(c.Nodes) {
		t.Errorf("the pod saw %v; want each of the %d nodes", got.clients, len(c.Nodes))
	}
}

// addressIsShared: two Services have one address, and its ports by number and by protocol.
func addressIsShared(t *testing.T, c *cluster.Cluster, k *controller) {
	s := newScope(t, c)
	s.spread("one", 1)
	s.spread("two", 1)
	const address = "198.18.0.170"
	for _, name := range []string{"one", "two"} {
		service := s.service(name, name, corev1.ServiceExternalTrafficPolicyCluster)
		service.Spec.IPFamilyPolicy = ptr.To(corev1.IPFamilyPolicySingleStack)
		service.Annotations = map[string]string{annotations.Addresses: address}
		ports := service.Spec.Ports
		if name == "two" {
			ports[0].Port = 8080
			ports = ports[:1]
		} else {
			ports = append(ports, corev1.ServicePort{Name: "more", Port: 8080, Protocol: corev1.ProtocolUDP,
				TargetPort: ports[0].TargetPort})
		}
		service.Spec.Ports = ports
		s.create(service)
		if got := s.awaitAddresses(name, 1)[0].String(); got != address {
			t.Fatalf("Service %s has %s; want %s", name, got, address)
		}
	}
	vip := netip.MustParseAddr(address)
	for _, port := range []uint16{80, 8080} {
		s.awaitNodes(netip.AddrPortFrom(vip, port))
	}
	k.eventually("every node is up", allUp)
	for _, want := range []struct {
		network string
		port    uint16
		app     string
	}{{"tcp", 80, "one"}, {"udp", 80, "one"}, {"udp", 8080, "one"}, {"tcp", 8080, "two"}} {
		answer := s.awaitAnswer(c.Lab.Clients[0], want.network, netip.AddrPortFrom(vip, want.port))
		if !strings.HasPrefix(answer.Pod, want.app+"-") {
			t.Errorf("%s answers at port %d of %s by %s; want a pod of %s", answer.Pod, want.port, vip, want.network,
				want.app)
		}
	}
}

// refusalIsSaid: a Service that asks for an address outside the pools has a condition and an Event, and no address.
func refusalIsSaid(t *testing.T, c *cluster.Cluster) {
	s := newScope(t, c)
	service := s.service("web", "web", corev1.ServiceExternalTrafficPolicyLocal)
	service.Spec.IPFamilyPolicy = ptr.To(corev1.IPFamilyPolicySingleStack)
	service.Annotations = map[string]string{annotations.Addresses: "203.0.113.9"}
	s.create(service)
	s.eventually("the condition says so", func() bool {
		service, err := c.Client.CoreV1().Services(s.name).Get(t.Context(), "web", metav1.GetOptions{})
		if err != nil {
			return false
		}
		condition := apimeta.FindStatusCondition(service.Status.Conditions, status.AddressesAssigned)
		return condition != nil && condition.Status == metav1.ConditionFalse &&
			strings.Contains(condition.Message, "203.0.113.9") && len(service.Status.LoadBalancer.Ingress) == 0
	})
	s.eventually("an Event says so", func() bool {
		list, err := c.Client.EventsV1().Events(s.name).List(t.Context(), metav1.ListOptions{})
		return err == nil && slices.ContainsFunc(list.Items, func(e eventsv1.Event) bool {
			return e.Regarding.Name == "web" && strings.Contains(e.Note, "203.0.113.9")
		})
	})
}

// weightsFollowNodes: without jeoul-kubernetes a node's weight follows the pods that kube-proxy reports.
func weightsFollowNodes(t *testing.T, c *cluster.Cluster, k *controller) {
	s := newScope(t, c)
	s.spread("web", 2, 1, 1)
	s.create(s.service("web", "web", corev1.ServiceExternalTrafficPolicyLocal))
	for _, vip := range s.awaitAddresses("web", 2) {
		s.awaitNodes(netip.AddrPortFrom(vip, 80))
	}
	s.eventually("the nodes are up, with the weights of their pods", func() bool { return k.upWithWeights(4) })
	k.process.Stop(t.Context())
	defer k.run()
	s.deploy(s.deployment("web-more", "web", 3, s.Nodes[1].Name))
	s.awaitReady("web", 7)
	s.eventually("the second node weighs what kube-proxy reports", func() bool { return k.upWithWeights(7) })
}

// upWithWeights reports whether the balancer has services, and the backends of each are up, with weights of this sum.
func (k *controller) upWithWeights(sum int) bool {
	now, err := api.NewClient(k.socket()).Status(context.Background())
	if err != nil || !allUp(now) {
		return false
	}
	return !slices.ContainsFunc(now.Services, func(service ops.Service) bool {
		left := sum
		for _, backend := range service.Backends {
			left -= int(backend.Weight)
		}
		return left != 0
	})
}

// awaitNodes waits until every node accepts the address of a new Service, which kube-proxy does a second or so after
// its status was written. Until then a node sends packets for the address back to the balancer. The host of the control
// plane asks each node by its MAC address, past the balancer. No client does, for the port that it asks from would be
// lost to it: see askEarly.
func (s *scope) awaitNodes(vip netip.AddrPort) {
	s.t.Helper()
	for _, node := range s.Nodes {
		undo := direct(s.t, s.Control, vip.Addr(), node.Host.MAC)
		s.awaitAnswer(s.Control, "tcp", vip)
		undo()
	}
}

// awaitAddresses waits until a Service has so many addresses, of mode VIP, and returns them.
func (s *scope) awaitAddresses(name string, n int) (addresses []netip.Addr) {
	s.t.Helper()
	return s.awaitAddressesOf(corev1.LoadBalancerIPModeVIP, name, n)
}

// awaitAddressesOf is awaitAddresses for another mode.
func (s *scope) awaitAddressesOf(mode corev1.LoadBalancerIPMode, name string, n int) (addresses []netip.Addr) {
	s.t.Helper()
	s.eventually("Service "+name+" has its addresses", func() bool {
		service, err := s.Client.CoreV1().Services(s.name).Get(s.t.Context(), name, metav1.GetOptions{})
		if err != nil || len(service.Status.LoadBalancer.Ingress) != n {
			return false
		}
		addresses = nil
		for _, ingress := range service.Status.LoadBalancer.Ingress {
			if ptr.Deref(ingress.IPMode, "") != mode {
				return false
			}
			addresses = append(addresses, netip.MustParseAddr(ingress.IP))
		}
		return true
	})
	return addresses
}

// TestCloudIsLost: without the API server, without jeoul-kubernetes, and with one that was started while the API server
// was away, the balancer goes on with its last services. When both are back it follows the cluster again.
func TestCloudIsLost(t *testing.T) {
	c := newCluster(t, cluster.Options{Nodes: 2, Clients: 2})
	k := startController(t, c)
	s := newScope(t, c)
	s.spread("web", 1, 1)
	s.create(s.service("web", "web", corev1.ServiceExternalTrafficPolicyLocal))
	vip := netip.AddrPortFrom(s.awaitAddresses("web", 2)[0], 80)
	s.awaitNodes(vip)
	k.eventually("every node is up", allUp)
	connections := hold(t, c.Lab.Clients[0], vip, 20)

	steps := []struct {
		name string
		do   func() error
	}{
		{"jeoul-kubernetes is killed", func() error { return k.process.Kill(t.Context()) }},
		{"the API server is killed", c.KillAPIServer},
		{"jeoul-kubernetes starts without it", func() error { k.run(); return nil }},
	}
	for _, step := range steps {
		if err := step.do(); err != nil {
			t.Fatal(err)
		}
		asked := connections.asked.Load()
		s.eventually("connections go on", func() bool { return connections.asked.Load() > asked+200 })
		if got := connect(c.Lab.Clients[0], vip, 100); len(got.failed) > 0 {
			t.Errorf("after %s, %d of 100 connections failed, the first with: %v", step.name, len(got.failed),
				got.failed[0])
		}
	}
	k.eventually("the status says that the source is old", func(status *ops.Status) bool {
		return hasProblem(status, ops.ProblemUnreached, "the API server") && !status.Feeds[0].AsOf.IsZero()
	})
	if err := c.StartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	k.eventually("the status says that it is not any more", func(status *ops.Status) bool {
		return len(status.Feeds) == 1 && !hasProblem(status, ops.ProblemUnreached, "") && status.Feeds[0].AsOf.IsZero()
	})
	s.scale("web-2", 3)
	s.awaitReady("web", 4)
	k.eventually("the node has the weight of its pods", func(status *ops.Status) bool {
		return slices.ContainsFunc(status.Services, func(service ops.Service) bool {
			return slices.ContainsFunc(service.Backends, func(b ops.Backend) bool {
				return b.Address == c.Nodes[1].Host.IPv4 && b.Weight == 3 && b.State == lb.Up
			})
		})
	})
	if broken := connections.end(); len(broken) > 0 {
		t.Errorf("%d connections broke, the first with: %v", len(broken), broken[0].err)
	}
}
