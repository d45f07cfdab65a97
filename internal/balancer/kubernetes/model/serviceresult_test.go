// SPDX-License-Identifier: Apache-2.0

package model

import (
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/jeoul/jeoul/internal/balancer/kubernetes/pools"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// TestRebuild: parts that are taken over from the picture before equal those that would be recreated, whatever has
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
