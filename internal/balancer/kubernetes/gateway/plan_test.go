// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/jeoul/jeoul/internal/balancer/kubernetes/model"
	"github.com/jeoul/jeoul/internal/balancer/kubernetes/pools"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// TestHeldAddresses: a Gateway keeps its address whatever the pools are, and while it is not served: no Service gets
// it. An address that another controller wrote is kept only if a pool has it.
func TestHeldAddresses(t *testing.T) {
	const ipv4, both, none = "[192.0.2.0/24]", `[192.0.2.0/24, "2001:db8::/64"]`, ""
	tcp, https := listenerOf("tcp", v1.TCPProtocolType, 443), httpsListener() // without its Secret
	passed := httpsListener()
	passed.TLS.Mode = ptr(v1.TLSModePassthrough)
	foreign := func(g *v1.Gateway) { g.ManagedFields[0].Manager = "another" }
	parameters := func(g *v1.Gateway) {
		g.Spec.Infrastructure = &v1.GatewayInfrastructure{ParametersRef: &v1.LocalParametersReference{Name: "p"}}
	}
	same := func(*v1.Gateway) {}
	for name, test := range map[string]struct {
		pools, held string
		listener    v1.Listener
		change      func(*v1.Gateway)
		want        string
	}{
		"the pools have another family, too": {both, "2001:db8::1", tcp, same, "2001:db8::1"},
		"the pools have another family only": {ipv4, "2001:db8::1", tcp, same, "2001:db8::1"},
		"the pools cannot be read":           {none, "192.0.2.1", tcp, same, "192.0.2.1"},
		"no Secret":                          {ipv4, "192.0.2.1", https, same, "192.0.2.1"},
		"no listener is accepted":            {ipv4, "192.0.2.1", passed, same, "192.0.2.1"},
		"not accepted":                       {ipv4, "192.0.2.1", tcp, parameters, "192.0.2.1"},
		"another's":                          {ipv4, "203.0.113.7", tcp, foreign, "192.0.2.1"},
		"another's of another family":        {ipv4, "2001:db8::1", tcp, foreign, "192.0.2.1"},
		"another's in a pool":                {ipv4, "192.0.2.9", tcp, foreign, "192.0.2.9"},
		"another's, and not accepted": {ipv4, "203.0.113.7", tcp,
			func(g *v1.Gateway) { foreign(g); parameters(g) }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			g := gatewayOf("gw", test.listener)
			g.Status.Addresses = []v1.GatewayStatusAddress{{Value: test.held}}
			g.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: model.FieldManager, Subresource: "status"}}
			test.change(g)
			got, service := grantsOf(t, g, test.pools)
			text := ""
			for _, addr := range got.Addresses {
				text += addr.String()
			}
			if text != test.want {
				t.Errorf("the Gateway has %q, with the problems %v; want %q", text, got.Problems, test.want)
			}
			if kept := test.want == test.held; kept != (fmt.Sprint(got.Held) == "["+test.held+"]") {
				t.Errorf("the Gateway is served at %v", got.Held)
			}
			if len(service.Addresses) > 0 && service.Addresses[0].String() == test.want {
				t.Errorf("a Service has %v, too", service.Addresses)
			}
		})
	}
}

// TestGatewayChangesItsClass: a Gateway whose address another class wrote gives it up, unless a pool has it.
func TestGatewayChangesItsClass(t *testing.T) {
	const class = "jeoul.io/internal"
	for addr, want := range map[string]string{"198.51.100.5": "[192.0.2.1]", "192.0.2.9": "[192.0.2.9]"} {
		for _, manager := range []string{model.FieldManager, model.ManagerOf(class)} {
			g := gatewayOf("gw", listenerOf("tcp", v1.TCPProtocolType, 443))
			g.Status.Addresses = []v1.GatewayStatusAddress{{Value: addr}}
			g.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: manager, Subresource: "status"}}
			if manager != model.FieldManager {
				want = "[" + addr + "]"
			}
			if got, _ := grantsOfClass(t, class, g, "[192.0.2.0/24]"); fmt.Sprint(got.Addresses) != want {
				t.Errorf("of %s by %s it keeps %v; want %s", addr, manager, got.Addresses, want)
			}
		}
	}
}

// grantsOf is grantsOfClass for the class of most tests.
func grantsOf(t *testing.T, g *v1.Gateway, addresses string) (gateway, service pools.Grant) {
	t.Helper()
	return grantsOfClass(t, controller, g, addresses)
}

// grantsOfClass allocates addresses of a pool for a Gateway, and for a new Service that is younger, and requests none.
func grantsOfClass(t *testing.T, class string, g *v1.Gateway, addresses string) (gateway, service pools.Grant) {
	t.Helper()
	g.CreationTimestamp = metav1.Unix(1000, 0)
	p := NewPlan(Objects{Gateways: []*v1.Gateway{g}, Classes: []*v1.GatewayClass{{ObjectMeta: meta("", "jeoul"),
		Spec: v1.GatewayClassSpec{ControllerName: v1.GatewayController(class)}}}},
		Settings{Controller: class, Certificates: "/certificates"})
	var all []pools.Pool
	if addresses != "" {
		var err error
		if all, err = pools.Parse("pools", []byte("pools: [{name: a, addresses: "+addresses+"}]")); err != nil {
			t.Fatal(err)
		}
	}
	grants := pools.Allocate(all, append(p.Claims(all), pools.Claim{Name: "shop/new", Namespace: "shop",
		Created: time.Unix(2000, 0), Ports: []pools.Port{{Protocol: lb.TCP, Number: 80}},
		Families: []pools.Family{pools.IPv4}}))
	return grants["gateway/infra/gw"], grants["shop/new"]
}

// TestMayName: names distinguish services for Gateways from those for Services; shortened ones may be either.
func TestMayName(t *testing.T) {
	g, long := &ownGateway{Gateway: gatewayOf("gw")}, &ownGateway{Gateway: gatewayOf(strings.Repeat("g", 100))}
	port := pools.Port{Protocol: lb.TCP, Number: 25}
	for name, want := range map[string]bool{
		serviceName(g, port, netip.MustParseAddr("192.0.2.1")):    true,
		serviceName(g, port, netip.MustParseAddr("2001:db8::1")):  true,
		serviceName(long, port, netip.MustParseAddr("192.0.2.1")): true,
		model.ShortenName("shop:" + strings.Repeat("s", 100)):     true,
		"shop:web:http": false, "shop:web:gateway": false, "shop:web:gateway:v6": false, "shop:web:http:v6": false,
	} {
		if MayName(name) != want {
			t.Errorf("%s: %v", name, !want)
		}
	}
}
