// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/jeoul/jeoul/internal/balancer/config"
	"github.com/jeoul/jeoul/internal/balancer/kubernetes/pools"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

func ptr[T any](v T) *T { return &v }

// service returns a Service of our class that has an address already, with a TCP port 80 named http.
func service(name string, change ...func(*corev1.Service)) *corev1.Service {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Annotations: map[string]string{}}}
	s.Spec = corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, LoadBalancerClass: ptr(DefaultClass),
		ClusterIP:  "10.96.0.10",
		IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}, IPFamilyPolicy: ptr(corev1.IPFamilyPolicySingleStack),
		ExternalTrafficPolicy: corev1.ServiceExternalTrafficPolicyCluster,
		Ports: []corev1.ServicePort{{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP,
			NodePort: 30080}}}
	s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.1"}}
	for _, c := range change {
		c(s)
	}
	return s
}

func annotated(name, value string) func(*corev1.Service) {
	return func(s *corev1.Service) { s.Annotations["jeoul.io/"+name] = value }
}

func local(s *corev1.Service) {
	s.Spec.ExternalTrafficPolicy, s.Spec.HealthCheckNodePort = corev1.ServiceExternalTrafficPolicyLocal, 31000
}

func dual(s *corev1.Service) {
	s.Spec.IPFamilies, s.Spec.IPFamilyPolicy = []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol},
		ptr(corev1.IPFamilyPolicyRequireDualStack)
	s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: "2001:db8::1"})
}

// pod is an endpoint "ADDRESS NODE [terminating] [unready] [zone=Z]"; a terminating one serves unless it is unready.
func pod(text string) discoveryv1.Endpoint {
	words := strings.Fields(text)
	terminating, unready := slices.Contains(words, "terminating"), slices.Contains(words, "unready")
	e := discoveryv1.Endpoint{Addresses: words[:1], NodeName: &words[1],
		Conditions: discoveryv1.EndpointConditions{Ready: ptr(!terminating && !unready), Serving: ptr(!unready),
			Terminating: &terminating}}
	for _, w := range words {
		if zone, found := strings.CutPrefix(w, "zone="); found {
			e.Hints = &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: zone}}}
		}
	}
	return e
}

// slice is the EndpointSlice of a service's port http at 8080.
func slice(of string, pods ...string) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: of + "-x",
		Labels: map[string]string{discoveryv1.LabelServiceName: of}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports: []discoveryv1.EndpointPort{{Name: ptr("http"), Port: ptr(int32(8080)),
			Protocol: ptr(corev1.ProtocolTCP)}}}
	for _, p := range pods {
		s.Endpoints = append(s.Endpoints, pod(p))
		if strings.Contains(p, "::") {
			s.AddressType = discoveryv1.AddressTypeIPv6
		}
	}
	return s
}

// atPort returns the slice s with another number of its port.
func atPort(port int32, s *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	s.Name = fmt.Sprintf("%s-%d", s.Name, port)
	s.Ports[0].Port = &port
	return s
}

// testNodes are n1 to n3, at 10.0.0.1 to 10.0.0.3 and fd00::1 to fd00::3.
func testNodes(change ...func(*corev1.Node)) (list []*corev1.Node) {
	for i := 1; i <= 3; i++ {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("n%d", i), Labels: map[string]string{}}}
		n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: n.Name},
			{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("10.0.0.%d", i)},
			{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("fd00::%d", i)}}
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		for _, c := range change {
			c(n)
		}
		list = append(list, n)
	}
	return list
}

func settings(t *testing.T) Settings {
	t.Helper()
	read, err := pools.Parse("pools", []byte("pools: [{name: public, addresses: [192.0.2.0/28, \"2001:db8::/120\"]}]"))
	if err != nil {
		t.Fatal(err)
	}
	return Settings{Class: DefaultClass, Mode: lb.L2DSR, Pools: read}
}

// show returns services and problems as text: a line each.
func show(p Result) string {
	var out strings.Builder
	for _, s := range p.Services {
		fmt.Fprintf(&out, "%s %s %s:", s.Name, s.Key(), s.Mode)
		for _, b := range s.Backends {
			fmt.Fprintf(&out, " %s=%s*%d", b.Name, netip.AddrPortFrom(b.Address, b.Port), b.Weight)
			if b.Draining {
				out.WriteString("-drain")
			}
		}
		out.WriteString("\n")
	}
	keys := make([]string, 0, len(p.Verdicts))
	for key := range p.Verdicts {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	for _, key := range keys {
		for _, problem := range slices.Concat(p.Verdicts[key].Unassigned, p.Verdicts[key].Problems) {
			fmt.Fprintf(&out, "%s %s %s\n", key, problem.Reason, problem)
		}
	}
	return out.String()
}

// validateServices fails where a balancer would refuse the services.
func validateServices(t *testing.T, p Result) {
	t.Helper()
	made := config.New()
	made.Services = p.Services
	text, err := config.WriteFragment(made, config.FileOwner)
	if err != nil {
		t.Fatal(err)
	}
	file := "interface: eth0\nfullnat: {addresses: [10.9.9.9, \"fd99::9\"]}\nservices: []\n"
	read, err := config.Merge(config.Source{Name: "file", Data: []byte(file)},
		config.Source{Name: "kubernetes", Data: text})
	if err != nil {
		t.Fatalf("the balancer refuses it: %v\n%s", err, text)
	}
	if len(read.Services) != len(p.Services) {
		t.Fatalf("%d of %d services are read", len(read.Services), len(p.Services))
	}
}

// cases are clusters, and the services and verdicts that they give.
var cases = []struct {
	name     string
	cluster  Cluster
	settings func(*Settings)
	want     string
}{
	{"to all nodes", Cluster{Services: []*corev1.Service{service("web")},
		Slices: []*discoveryv1.EndpointSlice{slice("web", "10.1.0.1 n1")}}, nil,
		"shop:web:http tcp 192.0.2.1:80 l2dsr: n1=10.0.0.1:80*1 n2=10.0.0.2:80*1 n3=10.0.0.3:80*1\n"},
	{"no endpoint", Cluster{Services: []*corev1.Service{service("web")}}, nil,
		"shop:web:http tcp 192.0.2.1:80 l2dsr:\n"},
	{"Local: a node weighs as much as it has pods", Cluster{Services: []*corev1.Service{service("web", local)},
		Slices: []*discoveryv1.EndpointSlice{slice("web", "10.1.0.1 n1", "10.1.0.2 n1", "10.1.0.3 n2",
			"10.1.0.4 n2 unready")}}, nil,
		"shop:web:http tcp 192.0.2.1:80 l2dsr: n1=10.0.0.1:80*2 n2=10.0.0.2:80*1\n"},
	{"Local: a node whose pods terminate drains", Cluster{Services: []*corev1.Service{service("web", local)},
		Slices: []*discoveryv1.EndpointSlice{slice("web", "10.1.0.1 n1", "10.1.0.2 n2 terminating",
			"10.1.0.3 n3 unready terminating")}}, nil,
		"shop:web:http tcp 192.0.2.1:80 l2dsr: n1=10.0.0.1:80*1 n2=10.0.0.2:80*1-drain n3=10.0.0.3:80*1-drain\n"},
	{"Local: nothing is ready, terminating ones that serve take new flows",
		Cluster{Services: []*corev1.Service{service("web", local)},
			Slices: []*discoveryv1.EndpointSlice{slice("web", "10.1.0.1 n1 terminating", "10.1.0.2 n1 terminating",
				"10.1.0.3 n2 unready")}}, nil,
		"shop:web:http tcp 192.0.2.1:80 l2dsr: n1=10.0.0.1:80*2 n2=10.0.0.2:80*1-drain\n"},
	{"Local: the same pod is in two slices", Cluster{Services: []*corev1.Service{service("web", local)},
		Slices: []*discoveryv1.EndpointSlice{slice("web", "10.1.0.1 n1 unready"), slice("web", "10.1.0.1 n1")}}, nil,
		"shop:web:http tcp 192.0.2.1:80 l2dsr: n1=10.0.0.1:80*1\n"},
	{"no endpoint takes new flows: old ones go on", Cluster{Services: []*corev1.Service{service("web")},
		Slices: []*discoveryv1.EndpointSlice{slice("web", "10.1.0.1 n1 unready")}}, nil,
		"shop:web:http tcp 192.0.2.1:80 l2dsr: n1=10.0.0.1:80*1-drain n2=10.0.0.2:80*1-drain n3=10.0.0.3:80*1-drain\n"},
	{"nodes that leave", Cluster{Services: []*corev1.Service{service("web")},
		Slices: []*discoveryv1.EndpointSlice{slice("web", "10.1.0.1 n1")},
		Nodes: testNodes(func(n *corev1.Node) {
			switch n.Name {
			case "n1":
				n.Labels[corev1.LabelNodeExcludeBalancers] = ""
			case "n2":
				n.Spec.Taints = []corev1.Taint{{Key: "ToBeDeletedByClusterAutoscaler"}}
			}
		})}, nil, "shop:web:http tcp 192.0.2.1:80 l2dsr: n1=10.0.0.1:80*1-drain n2=10.0.0.2:80*1-drain n3=10.0.0.3:80*1\n"},
	{"a node that is not ready", Cluster{Services: []*corev1.Service{service("web")},
		Slices: []*discoveryv1.EndpointSlice{slice("web", "10.1.0.1 n1")},
		Nodes: testNodes(func(n *corev1.Node) {
			if n.Name == "n1" {
				n.Status.Conditions = nil
			}
		})}, nil, "shop:web:http tcp 192.0.2.1:80 l2dsr: n1=10.0.0.1:80*1-drain n2=10.0.0.2:80*1 n3=10.0.0.3:80*1\n"},
	{"no node is ready", Cluster{Services: []*corev1.Service{service("web")},
		Slices: []*discoveryv1.EndpointSlice{slice("web", "10.1.0.1 n1")},
		Nodes: testNodes(func(n *corev1.Node) {
			n.Status.Conditions = nil
			if n.Name == "n1" {
				n.Labels[corev1.LabelNodeExcludeBalancers] = ""
			}
		})}, nil, "shop:web:http tcp 192.0.2.1:80 l2dsr: n1=10.0.0.1:80*1-drain n2=10.0.0.2:80*1 n3=10.0.0.3:80*1\n"},
	{"nodes that cannot be backends", Cluster{Services: []*corev1.Service{service("web", dual)},
		Slices: []*discoveryv1.EndpointSlice{slice("web", "10.1.0.1 n1"), slice("web", "fd01::1 n1")},
		Nodes: testNodes(func(n *corev1.Node) {
			switch n.Name {
			case "n1":
				n.Status.Addresses = n.Status.Addresses[:2]
			case "n3":
				n.Status.Addresses[1].Address = "10.0.0.2"
			}
		})}, nil,
		"shop:web:http tcp 192.0.2.1:80 l2dsr: n1=10.0.0.1:80*1 n2=10.0.0.2:80*1\n" +
			"shop:web:http:v6 tcp [2001:db8::1]:80 l2dsr: n2=[fd00::2]:80*1 n3=[fd00::3]:80*1\n" +
			"shop/web NodeUnusable node n3 has the InternalIP 10.0.0.2 of node n2\n" +
			"shop/web NodeUnusable node n1 has no InternalIP of IPv6\n"},
	{"nodes whose address is not known yet", Cluster{Services: []*corev1.Service{service("web")},
		Slices: []*discoveryv1.EndpointSlice{slice("web", "10.1.0.1 n1")},
		Nodes: testNodes(func(n *corev1.Node) {
			switch n.Name {
			case "n2":
				n.Status.Addresses = nil
				n.Spec.Taints = []corev1.Taint{{Key: "node.cloudprovider.kubernetes.io/uninitialized", Value: "true"}}
			case "n3":
				n.Status.Addresses, n.Status.Conditions = nil, nil
			}
		})}, nil, "shop:web:http tcp 192.0.2.1:80 l2dsr: n1=10.0.0.1:80*1\n"},
	{"full NAT to NodePorts", Cluster{Services: []*corev1.Service{service("web", annotated("mode", "fullnat"))},
		Slices: []*discoveryv1.EndpointSlice{slice("web", "10.1.0.1 n1")}}, nil,
		"shop:web:http tcp 192.0.2.1:80 fullnat: n1=10.0.0.1:30080*1 n2=10.0.0.2:30080*1 n3=10.0.0.3:30080*1\n"},
	{"full NAT to pods", Cluster{Services: []*corev1.Service{service("web", annotated("mode", "fullnat"))},
		Slices: []*discoveryv1.EndpointSlice{slice("web", "10.1.0.1 n1", "10.1.0.2 n2 terminating",
			"10.1.0.3 n3 unready")}}, func(s *Settings) { s.RoutedPods = true },
		"shop:web:http tcp 192.0.2.1:80 fullnat: 10.1.0.1=10.1.0.1:8080*1 10.1.0.2=10.1.0.2:8080*1-drain 10.1.0.3=10.1.0.3:8080*1-drain\n"},
	{"a named port that pods of two versions have at other numbers", Cluster{
		Services: []*corev1.Service{service("web", annotated("mode", "fullnat"), func(s *corev1.Service) {
			s.Spec.Ports[0].TargetPort = intstr.FromString("listen")
		})},
		Slices: []*discoveryv1.EndpointSlice{slice("web", "10.1.0.1 n1"), atPort(9090, slice("web", "10.1.0.2 n2"))}},
		func(s *Settings) { s.RoutedPods = true },
		"shop:web:http tcp 192.0.2.1:80 fullnat: 10.1.0.1=10.1.0.1:8080*1 10.1.0.2=10.1.0.2:9090*1\n"},
	{"full NAT without NodePorts goes to pods",
		Cluster{Services: []*corev1.Service{service("web", annotated("mode", "nat"), func(s *corev1.Service) {
			s.Spec.AllocateLoadBalancerNodePorts, s.Spec.Ports[0].NodePort = ptr(false), 0
		})}, Slices: []*discoveryv1.EndpointSlice{slice("web", "10.1.0.1 n1")}}, nil,
		"shop:web:http tcp 192.0.2.1:80 nat: 10.1.0.1=10.1.0.1:8080*1\n"},
	{"no NodePort, and nodes asked for",
		Cluster{Services: []*corev1.Service{service("web", annotated("mode", "nat"), annotated("backends", "nodes"),
			func(s *corev1.Service) {
				s.Spec.AllocateLoadBalancerNodePorts, s.Spec.Ports[0].NodePort = ptr(false), 0
			})}, Slices: []*discoveryv1.EndpointSlice{slice("web", "10.1.0.1 n1")}}, nil,
		"shop:web:http tcp 192.0.2.1:80 nat:\nshop/web Unsupported spec.ports[0].nodePort: mode nat sends to nodes by NodePort, and the port has none; let one be allocated, or send to pods (jeoul.io/backends)\n"},
	{"a tunnel to pods on another port",
		Cluster{Services: []*corev1.Service{service("web", annotated("mode", "ipip"), annotated("backends", "pods"))},
			Slices: []*discoveryv1.EndpointSlice{slice("web", "10.1.0.1 n1")}}, nil,
		"shop:web:http tcp 192.0.2.1:80 ipip:\nshop/web Unsupported spec.ports[0].targetPort: pods listen on 8080, and mode ipip leaves the port 80 as it is; " +
			"use the same port, or jeoul.io/mode fullnat, or send to nodes (jeoul.io/backends)\n"},
	{"hints for the balancer's zone", Cluster{Services: []*corev1.Service{service("web", local)},
		Slices: []*discoveryv1.EndpointSlice{slice("web", "10.1.0.1 n1 zone=a", "10.1.0.2 n2 zone=b")}},
		func(s *Settings) { s.Zone = "b" },
		"shop:web:http tcp 192.0.2.1:80 l2dsr: n1=10.0.0.1:80*1-drain n2=10.0.0.2:80*1\n"},
	{"hints for other zones", Cluster{Services: []*corev1.Service{service("web", local)},
		Slices: []*discoveryv1.EndpointSlice{slice("web", "10.1.0.1 n1 zone=a", "10.1.0.2 n2 zone=b")}},
		func(s *Settings) { s.Zone = "c" },
		"shop:web:http tcp 192.0.2.1:80 l2dsr: n1=10.0.0.1:80*1 n2=10.0.0.2:80*1\n"},
	{"mixed protocols, SCTP, port 0", Cluster{Services: []*corev1.Service{service("dns", func(s *corev1.Service) {
		s.Spec.Ports = []corev1.ServicePort{{Name: "tcp", Port: 53, Protocol: corev1.ProtocolTCP},
			{Name: "udp", Port: 53, Protocol: corev1.ProtocolUDP},
			{Name: "sctp", Port: 53, Protocol: corev1.ProtocolSCTP},
			{Name: "zero", Port: 0, Protocol: corev1.ProtocolTCP}}
	})}}, nil, "shop:dns:tcp tcp 192.0.2.1:53 l2dsr:\nshop:dns:udp udp 192.0.2.1:53 l2dsr:\n" +
		"shop/dns Unsupported spec.ports[2].protocol: SCTP is not balanced; TCP and UDP are. The other ports are served\n" +
		"shop/dns InvalidField spec.ports[3].port: 0 is not a port from 1 to 65535\n"},
	{"not ours", Cluster{Services: []*corev1.Service{service("a", func(s *corev1.Service) {
		s.Spec.LoadBalancerClass = ptr("metallb")
	}),
		service("b", func(s *corev1.Service) { s.Spec.LoadBalancerClass = nil }), service("c", func(s *corev1.Service) {
			s.Spec.Type = corev1.ServiceTypeNodePort
		})}}, nil, ""},
	{"classless by a flag",
		Cluster{Services: []*corev1.Service{service("b", func(s *corev1.Service) { s.Spec.LoadBalancerClass = nil })}},
		func(s *Settings) { s.Classless = true }, "shop:b:http tcp 192.0.2.1:80 l2dsr:\n"},
	{"headless, ExternalName, ClusterIP with an annotation", Cluster{Services: []*corev1.Service{
		service("a", func(s *corev1.Service) { s.Spec.ClusterIP = corev1.ClusterIPNone }),
		service("b", annotated("mode", "nat"), func(s *corev1.Service) {
			s.Spec.Type = corev1.ServiceTypeExternalName
		}),
		service("c", annotated("mode", "nat"), func(s *corev1.Service) {
			s.Spec.Type, s.Spec.ClusterIP = corev1.ServiceTypeClusterIP, corev1.ClusterIPNone
		})}}, nil,
		"shop/a Unsupported spec.clusterIP: a headless Service (None) has no load balancer; give it a cluster IP\n" +
			"shop/b NotLoadBalancer spec.type: a Service of type ExternalName is not served by a load balancer; use LoadBalancer, or remove the annotations jeoul.io/*\n" +
			"shop/c NotLoadBalancer spec.type: a Service of type ClusterIP (headless) is not served by a load balancer; use LoadBalancer, or remove the annotations jeoul.io/*\n"},
	{"a bad annotation, and all others go on",
		Cluster{Services: []*corev1.Service{service("web", annotated("mode", strings.Repeat("x", 256<<10))),
			service("ok", func(s *corev1.Service) { s.Status.LoadBalancer.Ingress[0].IP = "192.0.2.2" })}}, nil,
		"shop:ok:http tcp 192.0.2.2:80 l2dsr:\nshop:web:http tcp 192.0.2.1:80 l2dsr:\n" +
			"shop/web InvalidAnnotation metadata.annotations[jeoul.io/mode]: 262144 bytes are more than the 1024 that a value may have\n"},
	{"an address outside of the pools is asked for",
		Cluster{Services: []*corev1.Service{service("web", func(s *corev1.Service) {
			s.Spec.LoadBalancerIP = "10.9.0.1"
		})}}, nil,
		"shop:web:http tcp 192.0.2.1:80 l2dsr:\nshop/web OutsidePools spec.loadBalancerIP: 10.9.0.1 is in no pool (public); ask for one that is, or add it to a pool\n"},
	{"no address yet: nothing is served",
		Cluster{Services: []*corev1.Service{service("web", func(s *corev1.Service) {
			s.Status = corev1.ServiceStatus{}
		})}}, nil, ""},
	{"annotations that exclude each other",
		Cluster{Services: []*corev1.Service{service("web", annotated("check", "none"), annotated("on-down", "reset"),
			annotated("scheduler", "rr"), annotated("slow-start", "10s"))}}, nil,
		"shop:web:http tcp 192.0.2.1:80 l2dsr:\n" +
			"shop/web InvalidAnnotation metadata.annotations[jeoul.io/on-down]: says what happens when checks fail, and jeoul.io/check is none; remove one of the two\n" +
			"shop/web InvalidAnnotation metadata.annotations[jeoul.io/slow-start]: the scheduler rr heeds no weights; use another, or remove one of the two\n"},
}

func TestBuild(t *testing.T) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			set := settings(t)
			if c.settings != nil {
				c.settings(&set)
			}
			if c.cluster.Nodes == nil {
				c.cluster.Nodes = testNodes()
			}
			got := Build(c.cluster, set, nil)
			if text := show(got); text != c.want {
				t.Errorf("got\n%swant\n%s", text, c.want)
			}
			validateServices(t, got)
		})
	}
}

// TestClaimsUnknown: while the claims of Gateways are not known, a Service keeps its address, and gets no other.
func TestClaimsUnknown(t *testing.T) {
	cluster := Cluster{Services: []*corev1.Service{service("web"), service("next", func(s *corev1.Service) {
		s.Status = corev1.ServiceStatus{}
	})}, ClaimsUnknown: true}
	got := Build(cluster, settings(t), nil)
	next := got.Verdicts["shop/next"]
	if len(got.Verdicts["shop/web"].Addresses) != 1 || len(next.Addresses) != 0 || len(next.Unassigned) != 1 ||
		next.Unassigned[0].Reason != ReasonGatewaysUnknown {
		t.Errorf("the verdicts are %+v", got.Verdicts)
	}
	cluster.ClaimsUnknown = false
	if next := Rebuild(cluster, settings(t), got).Verdicts["shop/next"]; len(next.Addresses) != 1 || len(next.Unassigned) != 0 {
		t.Errorf("when they are known: %+v", next)
	}
}

// TestBuildKeepsSettings: a Service whose annotations become unreadable is served as before.
func TestBuildKeepsSettings(t *testing.T) {
	set, cluster := settings(t), Cluster{Services: []*corev1.Service{service("web", annotated("mode", "ipip"))},
		Nodes:  testNodes(),
		Slices: []*discoveryv1.EndpointSlice{slice("web", "10.1.0.1 n1")}}
	first := Build(cluster, set, nil)
	cluster.Services[0].Annotations["jeoul.io/mode"] = "ipop"
	second := Build(cluster, set, first.ServiceSettings)
	if second.Services[0].Mode != lb.IPIP || len(second.Verdicts["shop/web"].Problems) != 1 {
		t.Errorf("mode %s with problems %v", second.Services[0].Mode, second.Verdicts["shop/web"].Problems)
	}
	third := Build(cluster, set, second.ServiceSettings)
	if third.Services[0].Mode != lb.IPIP {
		t.Errorf("mode %s after a second look", third.Services[0].Mode)
	}
}

// TestBuildFields: a Service's other fields, beside its ports and endpoints, come to the balancer's keys.
func TestBuildFields(t *testing.T) {
	web := service("web", local, annotated("on-empty", "withdraw"), annotated("on-down", "reset"),
		annotated("slow-start", "10s"), func(s *corev1.Service) {
			s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
			s.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{
				ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: ptr(int32(60))},
			}
			s.Spec.LoadBalancerSourceRanges = []string{" 198.51.100.7/24", "no"}
		}, dual)
	got := Build(Cluster{Services: []*corev1.Service{web}, Nodes: testNodes(),
		Slices: []*discoveryv1.EndpointSlice{slice("web", "10.1.0.1 n1")}}, settings(t), nil)
	validateServices(t, got)
	made := config.New()
	made.Services = got.Services
	text, err := config.WriteFragment(made, config.FileOwner)
	if err != nil {
		t.Fatal(err)
	}
	const shared = `    persistence:
      timeout: 1m
    limits:
      refuse: reset
    check: {type: http, via: address, port: 31000, interval: 1s, fall: 2, path: /healthz, status: "200", ` +
		"weight_header: " + lb.EndpointWeightHeader + `}
    on_down: reset
    slow_start: 10s
    on_empty: withdraw
    allow_empty: true
`
	want := `services:
  - name: shop:web:http
    vip: 192.0.2.1
    port: 80
    allow: [198.51.100.0/24]
` + shared + `    backends:
      - {name: n1, address: 10.0.0.1}
  - name: shop:web:http:v6
    vip: 2001:db8::1
    port: 80
    deny: ['::/0']
` + shared + `    backends: []
`
	if string(text) != want {
		t.Errorf("got\n%s\nwant\n%s", text, want)
	}
	problems := got.Verdicts["shop/web"].Problems
	if len(problems) != 1 ||
		problems[0].String() != `spec.loadBalancerSourceRanges: "no" is not a network; write one such as 192.0.2.0/24. Its clients are not served` {
		t.Errorf("problems %v", problems)
	}
}

// TestUnreadyPods: a node of policy Local with pods of which none serves drops packets. So it takes no new flow, and is
// not drained where a failing check is to end or move the flows that it has.
func TestUnreadyPods(t *testing.T) {
	udp := func(s *corev1.Service) { s.Spec.Ports[0].Protocol = corev1.ProtocolUDP }
	for _, c := range []struct {
		change []func(*corev1.Service)
		want   string
	}{
		{nil, "n1=10.0.0.1:80*1 n2=10.0.0.2:80*1-drain n3=10.0.0.3:80*1-drain"},
		{[]func(*corev1.Service){udp}, "n1=10.0.0.1:80*1 n2=10.0.0.2:80*1-drain n3=10.0.0.3:80*0"},
		{[]func(*corev1.Service){udp, annotated("on-down", "keep")},
			"n1=10.0.0.1:80*1 n2=10.0.0.2:80*1-drain n3=10.0.0.3:80*1-drain"},
		{[]func(*corev1.Service){annotated("on-down", "reset")},
			"n1=10.0.0.1:80*1 n2=10.0.0.2:80*1-drain n3=10.0.0.3:80*0"},
	} {
		web := service("web", append(c.change, local)...)
		made := slice("web", "10.1.0.1 n1", "10.1.0.2 n2 terminating", "10.1.0.3 n3 unready")
		made.Ports[0].Protocol = &web.Spec.Ports[0].Protocol
		got := Build(Cluster{Services: []*corev1.Service{web}, Nodes: testNodes(),
			Slices: []*discoveryv1.EndpointSlice{made}}, settings(t), nil)
		validateServices(t, got)
		if text := show(got); !strings.HasSuffix(text, ": "+c.want+"\n") {
			t.Errorf("got %s, want %s", text, c.want)
		}
	}
}

// TestChecks: each kind of check, by mode and protocol.
func TestChecks(t *testing.T) {
	udp := func(s *corev1.Service) { s.Spec.Ports[0].Protocol = corev1.ProtocolUDP }
	for _, c := range []struct {
		change []func(*corev1.Service)
		want   string
	}{
		{nil, "icmp address 0"},
		{[]func(*corev1.Service){annotated("check", "tcp")}, "tcp address 30080"},
		{[]func(*corev1.Service){local}, "http address 31000 X-Load-Balancing-Endpoint-Weight"},
		{[]func(*corev1.Service){udp}, "icmp address 0"},
		{[]func(*corev1.Service){udp, local}, "http address 31000 X-Load-Balancing-Endpoint-Weight"},
		{[]func(*corev1.Service){annotated("check", "tcp-vip")}, "tcp vip 0"},
		{[]func(*corev1.Service){annotated("check", "icmp"), local}, "icmp address 0"},
		{[]func(*corev1.Service){annotated("mode", "fullnat")}, "icmp address 0"},
		{[]func(*corev1.Service){annotated("mode", "fullnat"), annotated("check", "tcp")}, "tcp address 0"},
		{[]func(*corev1.Service){annotated("mode", "fullnat"), annotated("backends", "pods")}, "tcp address 0"},
		{[]func(*corev1.Service){annotated("mode", "fullnat"), annotated("check", "tcp-vip")}, "tcp address 0"},
		{[]func(*corev1.Service){annotated("mode", "fullnat"), annotated("backends", "pods"), local}, "tcp address 0"},
		{[]func(*corev1.Service){func(s *corev1.Service) { s.Spec.Ports[0].NodePort = 0 }}, "icmp address 0"},
		{[]func(*corev1.Service){annotated("check", "none")}, ""},
	} {
		got := Build(Cluster{Services: []*corev1.Service{service("web", c.change...)}, Nodes: testNodes(),
			Slices: []*discoveryv1.EndpointSlice{slice("web", "10.1.0.1 n1")}}, settings(t), nil)
		validateServices(t, got)
		text := ""
		for _, check := range got.Services[0].Checks.List {
			text += fmt.Sprintf("%s %s %d", check.Type, check.Via, check.Port)
			if check.HTTP != nil {
				text += " " + check.HTTP.WeightHeader
			}
		}
		if text != c.want {
			t.Errorf("got %q, want %q", text, c.want)
		}
	}
	set := settings(t)
	set.Zone = "b"
	got := Build(Cluster{Services: []*corev1.Service{service("web", local)}, Nodes: testNodes(),
		Slices: []*discoveryv1.EndpointSlice{slice("web", "10.1.0.1 n1")}}, set, nil)
	if header := got.Services[0].Checks.List[0].HTTP.WeightHeader; header != "" {
		t.Errorf("with a zone, which kube-proxy's count does not heed, weights are from %s", header)
	}
}

// TestNames: names of any legal length and letters are names of the balancer's, and differ.
func TestNames(t *testing.T) {
	long := strings.Repeat("a", 63)
	seen := map[string]string{}
	for _, c := range [][3]string{{"a", "b-c", "d"}, {"a-b", "c", "d"}, {"a", "b", "c"}, {"a", "b", ""},
		{long, long, long}, {long, long, long[:62] + "b"},
		{long, long[:62], long}, {"0", "1", "2"}, {"a", "b", "v6"}} {
		for _, v6 := range []bool{false, true} {
			name := ServiceName(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: c[0], Name: c[1]}},
				&corev1.ServicePort{Name: c[2], Port: 80}, v6)
			if other, again := seen[name]; again || len(name) > 64 {
				t.Errorf("%s (%d bytes) stands for %v and %s", name, len(name), c, other)
			}
			seen[name] = fmt.Sprint(c, v6)
		}
	}
	for _, name := range []string{"a:b:c", "a:b:80", "a:b:v6:v6", "a:b:80:v6"} {
		if seen[name] == "" {
			t.Errorf("no port is called %s: %v", name, seen)
		}
	}
}

// FuzzBuild: whatever annotations, addresses and ports a Service has, the balancer takes the services made of it.
func FuzzBuild(f *testing.F) {
	f.Add("mode", "ipip", "192.0.2.1", int32(80), int32(8080), "TCP", "n1", "10.1.0.1", "198.51.100.0/24")
	f.Add("check", "tcp-vip", "2001:db8::1", int32(53), int32(53), "UDP", "", "fd00::1", "")
	f.Add("backends", "pods", "192.0.2.1", int32(0), int32(70000), "SCTP", "n9", "::ffff:1.2.3.4", "x")
	f.Fuzz(func(t *testing.T, name, value, ip string, port, target int32, protocol, node, podIP, source string) {
		web := service("web", annotated(name, value), func(s *corev1.Service) {
			s.Status.LoadBalancer.Ingress[0].IP, s.Spec.Ports[0].Port, s.Spec.Ports[0].Protocol = ip, port,
				corev1.Protocol(protocol)
			s.Spec.LoadBalancerSourceRanges = []string{source}
		}, func(s *corev1.Service) {
			s.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv6Protocol, corev1.IPv4Protocol}
		})
		ends := slice("web", "10.1.0.1 n1")
		ends.Endpoints = append(ends.Endpoints, discoveryv1.Endpoint{Addresses: []string{podIP}, NodeName: &node})
		ends.Ports[0].Port, ends.Ports[0].Protocol = &target, ptr(corev1.Protocol(protocol))
		got := Build(Cluster{Services: []*corev1.Service{web}, Nodes: testNodes(),
			Slices: []*discoveryv1.EndpointSlice{ends}}, settings(t), nil)
		validateServices(t, got)
	})
}

// TestManagerOfClass: an address outside of the pools stays where our class has written it, also by the manager of an
// earlier version, and not where another class has, or where ours has written the conditions alone.
func TestManagerOfClass(t *testing.T) {
	const class = "example.com/b"
	const address, condition = `{"f:status":{"f:loadBalancer":{"f:ingress":{}}}}`,
		`{"f:status":{"f:conditions":{"k:{\"type\":\"jeoul.io/Accepted\"}":{".":{}}}}}`
	for _, test := range []struct {
		manager, fields string
		want            bool
	}{
		{ManagerOf(class), address, true}, {FieldManager, address, true}, {ManagerOf("example.com/c"), address, false},
		{ManagerOf(class), condition, false}, {FieldManager, condition, false},
	} {
		s := service("web", func(s *corev1.Service) {
			s.Spec.LoadBalancerClass = ptr(class)
			s.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: test.manager, Subresource: "status",
				FieldsV1: metav1.NewFieldsV1(test.fields)}}
		})
		r := Build(Cluster{Services: []*corev1.Service{s}}, Settings{Class: class, Mode: lb.L2DSR}, nil)
		if got := len(r.Grants["shop/web"].Held) == 1; got != test.want {
			t.Errorf("the address stays where %s has written %s: %v; want %v", test.manager, test.fields, got, test.want)
		}
	}
}
