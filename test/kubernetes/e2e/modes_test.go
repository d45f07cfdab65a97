// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/jeoul/jeoul/internal/balancer/kubernetes/annotations"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/test/testenv"
	"github.com/jeoul/jeoul/test/kubernetes/cluster"
)

// agentManifest is the example of `jeoul agent` on each node, and agentImage the image that it names.
const (
	agentManifest = "../../../deploy/kubernetes/agent/daemonset.yaml"
	agentImage    = "registry.example/jeoul"
)

// TestModes serves a Service of three pods by each mode that a cluster can have besides l2dsr. Every connection is
// answered, and pods see the client itself wherever the mode keeps its address.
func TestModes(t *testing.T) {
	c := newCluster(t, cluster.Options{Nodes: 2, Clients: 1,
		Images: map[string][]string{agentImage: {binary(t, "jeoul")}}})
	k := startControllerBeside(t, c, startConfigured(t, c.Lab.Balancer, fields{"services": []fields{},
		"fullnat": fields{"addresses": []string{"198.18.0.240"}}}), "--routed-pods")
	for _, tt := range []struct {
		name string
		mode lb.Mode
		to   annotations.Target
		// prepare makes the nodes ready for the mode.
		prepare func(*scope)
		ipMode  corev1.LoadBalancerIPMode
		family  corev1.IPFamily
		// sees says whether pods see the client's own address.
		sees bool
	}{
		{"gue to nodes", lb.GUE, annotations.Nodes, func(s *scope) { s.runAgents(lb.GUE) },
			corev1.LoadBalancerIPModeVIP, corev1.IPv4Protocol, true},
		{"ipip to nodes", lb.IPIP, annotations.Nodes, func(s *scope) { s.runAgents(lb.IPIP) },
			corev1.LoadBalancerIPModeVIP, corev1.IPv6Protocol, true},
		{"nat to pods", lb.NAT, annotations.Pods, func(s *scope) { s.returnThroughBalancer() },
			corev1.LoadBalancerIPModeProxy, corev1.IPv4Protocol, true},
		{"fullnat to pods", lb.FullNAT, annotations.Pods, func(*scope) {},
			corev1.LoadBalancerIPModeProxy, corev1.IPv4Protocol, false},
		{"fullnat to node ports", lb.FullNAT, annotations.Nodes, func(*scope) {},
			corev1.LoadBalancerIPModeProxy, corev1.IPv4Protocol, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newScope(t, c)
			s.spread("web", 2, 1)
			tt.prepare(s)
			service := s.service("web", "web", corev1.ServiceExternalTrafficPolicyLocal)
			service.Spec.IPFamilyPolicy = ptr.To(corev1.IPFamilyPolicySingleStack)
			service.Spec.IPFamilies = []corev1.IPFamily{tt.family}
			service.Annotations = map[string]string{annotations.Mode: string(tt.mode),
				annotations.Backends: string(tt.to)}
			if tt.ipMode == corev1.LoadBalancerIPModeVIP {
				// The check takes the path of clients' packets: a node is up when its agent is.
				service.Annotations[annotations.Check] = string(annotations.CheckVIP)
				service.Annotations[annotations.Pool] = "agents"
			}
			s.create(service)
			vip := netip.AddrPortFrom(s.awaitAddressesOf(tt.ipMode, "web", 1)[0], 80)
			if tt.ipMode == corev1.LoadBalancerIPModeVIP {
				s.awaitNodes(vip)
			}
			k.eventually("every backend is up", allUp)
			s.reachesEveryPod(vip, 3, tt.sees)
		})
	}
}

// reachesEveryPod makes connections to a service, and checks who answers them, and whom the pods see.
func (s *scope) reachesEveryPod(vip netip.AddrPort, pods int, sees bool) {
	t, client := s.t, s.Lab.Clients[0]
	t.Helper()
	s.awaitAnswer(client, "tcp", vip)
	const connections = 300
	got := connect(client, vip, connections)
	if len(got.failed) > 0 {
		t.Errorf("%d of %d connections failed, the first with: %v", len(got.failed), connections, got.failed[0])
	}
	if len(got.pods) != pods {
		t.Errorf("the pods %v got connections; want %d", slices.Sorted(maps.Keys(got.pods)), pods)
	}
	own := addressFor(client, vip)
	if itself := got.clients[own.String()]; sees && itself != connections || !sees && itself != 0 {
		t.Errorf("the pods saw %v; the client is %s, and is to be seen: %v", got.clients, own, sees)
	}
}

// runAgents applies the example of `jeoul agent` with a mode. When the test ends it deletes the agents, and waits until
// they have undone their changes, which would serve the next test, too.
func (s *scope) runAgents(mode lb.Mode) {
	t := s.t
	t.Helper()
	text, err := os.ReadFile(agentManifest)
	if err != nil {
		t.Fatal(err)
	}
	var agents appsv1.DaemonSet
	if err := yaml.UnmarshalStrict(text, &agents); err != nil {
		t.Fatalf("%s: %v", agentManifest, err)
	}
	arguments := agents.Spec.Template.Spec.Containers[0].Args
	at := slices.Index(arguments, "--mode="+string(lb.GUE))
	if at < 0 {
		t.Fatalf("%s has no --mode: %q", agentManifest, arguments)
	}
	arguments[at] = "--mode=" + string(mode)
	_, err = s.Client.AppsV1().DaemonSets(s.name).Create(t.Context(), &agents, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.endAgents(agents.Name) })
	s.eventually("an agent runs on each node", func() bool {
		now, err := s.Client.AppsV1().DaemonSets(s.name).Get(t.Context(), agents.Name, metav1.GetOptions{})
		return err == nil && int(now.Status.NumberReady) == len(s.Nodes)
	})
}

func (s *scope) endAgents(name string) {
	ctx := context.Background()
	if err := s.Client.AppsV1().DaemonSets(s.name).Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		s.t.Errorf("delete the agents: %v", err)
	}
	testenv.Eventually(s.t, waitTimeout, "no agent is left", func() bool {
		pods, err := s.Client.CoreV1().Pods(s.name).List(ctx,
			metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=" + name})
		return err == nil && len(pods.Items) == 0
	})
}

// returnThroughBalancer routes the answers of pods to the client through the balancer, until the test ends.
func (s *scope) returnThroughBalancer() {
	s.t.Helper()
	client := s.Lab.Clients[0].IPv4
	for _, node := range s.Nodes {
		route := &netlink.Route{Dst: &net.IPNet{IP: client.AsSlice(), Mask: net.CIDRMask(32, 32)},
			Gw: s.Lab.Balancer.IPv4.AsSlice()}
		if err := node.Host.Do(func() error { return netlink.RouteReplace(route) }); err != nil {
			s.t.Fatalf("route %s through the balancer on %s: %v", client, node.Name, err)
		}
		s.t.Cleanup(func() { node.Host.Do(func() error { return netlink.RouteDel(route) }) })
	}
}
