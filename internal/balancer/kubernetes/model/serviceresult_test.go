// SPDX-License-Identifier: Apache-2.0

package model

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/jeoul/jeoul/internal/balancer/kubernetes/pools"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// TestRebuild: parts that are taken over from the Result before equal those that would be recreated, whatever has
// changed, and unchanged ones are taken over.
func TestRebuild(t *testing.T) {
	at := func(ip string) func(*corev1.Service) {
		return func(s *corev1.Service) { s.Status.LoadBalancer.Ingress[0].IP = ip }
	}
	second := slice("b", "10.1.0.3 n2")
	c := Cluster{Nodes: testNodes(), Services: []*corev1.Service{service("a", local), service("b", at("192.0.2.2"))},
		Slices: []*discoveryv1.EndpointSlice{slice("a", "10.1.0.1 n1", "10.1.0.2 n2"), second}}
	set := settings(t)
	before := Build(c, set, nil)
	for name, change := range map[string]func(c *Cluster, set *Settings){
		"nothing":   func(*Cluster, *Settings) {},
		"endpoints": func(c *Cluster, _ *Settings) { c.Slices[0] = slice("a", "10.1.0.2 n2") },
		"no slice":  func(c *Cluster, _ *Settings) { c.Slices = c.Slices[1:] },
		"service":   func(c *Cluster, _ *Settings) { c.Services[0] = service("a", local, annotated("mode", "nat")) },
		"bad annotation": func(c *Cluster, _ *Settings) {
			c.Services[0] = service("a", local, annotated("mode", "magic"))
		},
		"no service": func(c *Cluster, _ *Settings) { c.Services = c.Services[1:] },
		"address":    func(c *Cluster, _ *Settings) { c.Services[0] = service("a", local, at("192.0.2.2")) },
		"node": func(c *Cluster, _ *Settings) {
			c.Nodes = testNodes(func(n *corev1.Node) { n.Status.Addresses[1].Address += "1" })
		},
		"settings": func(_ *Cluster, set *Settings) { set.RoutedPods, set.Mode = true, "nat" },
		"pools":    func(_ *Cluster, set *Settings) { set.Pools = nil },
		"a Gateway": func(c *Cluster, _ *Settings) {
			c.Claims = []pools.Claim{{Name: "Gateway shop/edge", Namespace: "shop",
				Families: []pools.Family{pools.IPv4}, Ports: []pools.Port{{Protocol: lb.TCP, Number: 80}}}}
		},
	} {
		next, other := c, set
		next.Services, next.Slices = append([]*corev1.Service(nil), c.Services...), append(c.Slices[:0:0], c.Slices...)
		change(&next, &other)
		got, want := Rebuild(next, other, before), Build(next, other, before.ServiceSettings)
		if show(got) != show(want) || !reflect.DeepEqual(got.Services, want.Services) ||
			!reflect.DeepEqual(got.Verdicts, want.Verdicts) || !reflect.DeepEqual(got.Owners, want.Owners) {
			t.Errorf("%s: rebuilt:\n%s\nbuilt:\n%s", name, show(got), show(want))
		}
		if name == "endpoints" && &got.Services[1].Backends[0] != &before.Services[1].Backends[0] {
			t.Errorf("%s: the service that has not changed was made anew", name)
		}
	}
}

// TestBuildIgnoresOrder: balancers that hear of the same objects in other orders have the same services, with the same
// backends in the same order, of which their tables are made.
func TestBuildIgnoresOrder(t *testing.T) {
	c := Cluster{Nodes: testNodes(), Services: []*corev1.Service{service("a", local), service("b"), service("c",
		annotated("mode", "fullnat")), service("d", local, annotated("addresses", "192.0.2.4"))},
		Slices: []*discoveryv1.EndpointSlice{slice("a", "10.1.0.1 n1", "10.1.0.2 n2"), slice("a", "10.1.0.3 n2"),
			slice("b", "10.1.1.1 n1"), slice("c", "10.1.2.1 n1", "10.1.2.2 n2"), slice("c", "10.1.2.3 n1", "10.1.2.1 n1"),
			slice("d", "10.1.3.1 n2")}}
	for i, address := range []string{"192.0.2.1", "192.0.2.1", "192.0.2.3", "192.0.2.4"} { // two have the same
		c.Services[i].Status.LoadBalancer.Ingress[0].IP = address
		c.Services[i].CreationTimestamp.Time = time.Unix(int64(i/2), 0)
	}
	for _, routed := range []bool{false, true} {
		set := settings(t)
		set.RoutedPods = routed
		want := Build(c, set, nil)
		if len(want.Services) < 3 {
			t.Fatalf("only %s", show(want))
		}
		r := rand.New(rand.NewPCG(46, 2))
		for range 100 {
			other := Cluster{Nodes: slices.Clone(c.Nodes), Services: slices.Clone(c.Services),
				Slices: slices.Clone(c.Slices)}
			r.Shuffle(len(other.Nodes), reflect.Swapper(other.Nodes))
			r.Shuffle(len(other.Services), reflect.Swapper(other.Services))
			r.Shuffle(len(other.Slices), reflect.Swapper(other.Slices))
			if got := Build(other, set, nil); !reflect.DeepEqual(got.Services, want.Services) ||
				!reflect.DeepEqual(got.Verdicts, want.Verdicts) {
				t.Fatalf("pods are backends: %t. In another order:\n%s\nbefore:\n%s", routed, show(got), show(want))
			}
		}
	}
}

// TestRebuildIgnoresOrder: a Service whose slices come in another order is not built anew.
func TestRebuildIgnoresOrder(t *testing.T) {
	c := Cluster{Nodes: testNodes(), Services: []*corev1.Service{service("web", local)},
		Slices: []*discoveryv1.EndpointSlice{slice("web", "10.1.0.1 n1"), slice("web", "10.1.0.2 n2")}}
	c.Slices[1].Name = "web-2"
	before := Build(c, settings(t), nil)
	slices.Reverse(c.Slices)
	after := Rebuild(c, settings(t), before)
	if len(after.Services) != 1 || !lb.Identical(&after.Services[0], &before.Services[0]) {
		t.Errorf("it was built anew: %s", show(after))
	}
}
