// SPDX-License-Identifier: Apache-2.0

package ops

import "testing"

// TestNameObjects: services that a program keeps for a cluster show their object, and those of other sources show none,
// whatever their names are.
func TestNameObjects(t *testing.T) {
	s := Status{Feeds: []Feed{{Source: "kubernetes", FeedReport: FeedReport{Platform: Kubernetes}}, {Source: "consul"}}}
	tests := []struct{ owner, name, want string }{
		{"kubernetes", "shop:web:http", "kubernetes: shop/web"},
		{"kubernetes", "shop:web:80:v6", "kubernetes: shop/web"},
		{"kubernetes", "infra:gw:TCP-443:gateway", "kubernetes: infra/gw"},
		{"kubernetes", "a-namespace-of-a-very-long-name:and-a-service-o_0123456789abcdef", "kubernetes"},
		{"consul", "shop:web:http", "consul"},
		{"file", "shop:web:http", "file"},
		{"api", "web", "api"},
	}
	for _, test := range tests {
		s.Services = append(s.Services, Service{Name: test.name, Owner: test.owner})
	}
	s.NameObjects()
	for i, test := range tests {
		if got := s.Services[i].OwnerText(); got != test.want {
			t.Errorf("%s of %s is shown as of %q, and should be as of %q", test.name, test.owner, got, test.want)
		}
	}
}
