// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/jeoul/jeoul/internal/balancer/kubernetes/model"
	"github.com/jeoul/jeoul/internal/balancer/kubernetes/pools"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

const controller = "jeoul.io/balancer"

// finder has two pods for each Service, at addresses made of its name.
type finder struct{}

func (finder) Backends(s *corev1.Service, port *corev1.ServicePort, _ pools.Family) (list []lb.Backend,
	problems []model.Problem) {
	for i := range 2 {
		list = append(list, lb.Backend{Name: fmt.Sprintf("%s-%d", s.Name, i), Port: uint16(port.TargetPort.IntVal),
			Weight:  1,
			Address: netip.AddrFrom4([4]byte{10, 0, s.Name[0], byte(i + 1)})})
	}
	return list, nil
}

func ptr[T any](v T) *T { return &v }

func meta(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name, Generation: 3}
}

func service(namespace, name string, protocol corev1.Protocol) *corev1.Service {
	p := corev1.ServicePort{Port: 80, Protocol: protocol}
	p.TargetPort.IntVal = 8080
	return &corev1.Service{ObjectMeta: meta(namespace, name), Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{p}}}
}

func gatewayOf(name string, listeners ...v1.Listener) *v1.Gateway {
	return &v1.Gateway{ObjectMeta: meta("infra", name), Spec: v1.GatewaySpec{GatewayClassName: "jeoul",
		Listeners: listeners}}
}

func listenerOf(name string, protocol v1.ProtocolType, port int32) v1.Listener {
	return v1.Listener{Name: v1.SectionName(name), Protocol: protocol, Port: v1.PortNumber(port)}
}

func refs(names ...string) (list []v1.BackendRef) {
	for i, name := range names {
		ref := v1.BackendRef{Weight: ptr(int32(i + 1))}
		ref.Name, ref.Port = v1.ObjectName(name), ptr(v1.PortNumber(80))
		list = append(list, ref)
	}
	return list
}

func tcpRoute(name, gateway string, backends ...v1.BackendRef) *v1.TCPRoute {
	r := &v1.TCPRoute{ObjectMeta: meta("infra", name)}
	r.Spec.ParentRefs = []v1.ParentReference{{Name: v1.ObjectName(gateway)}}
	r.Spec.Rules = []v1.TCPRouteRule{{BackendRefs: backends}}
	return r
}

// built builds a plan whose Gateways have addresses, and whose services the balancer has.
func built(t *testing.T, o Objects) ([]lb.Service, Report) {
	t.Helper()
	o.Classes = []*v1.GatewayClass{{ObjectMeta: meta("", "jeoul"),
		Spec: v1.GatewayClassSpec{ControllerName: controller}}}
	p := NewPlan(o, Settings{Controller: controller, Mode: lb.NAT, Certificates: "/certificates"})
	all, err := pools.Parse("pools", []byte("pools: [{name: a, addresses: [192.0.2.0/24]}]"))
	if err != nil {
		t.Fatal(err)
	}
	grants := pools.Allocate(all, p.Claims(all))
	for name, g := range grants {
		g.Held = g.Addresses // as of the second result, when the status has them
		grants[name] = g
	}
	services := p.Build(grants, finder{})
	return services, p.Report(func(string) string { return "" })
}

// expectCondition fails unless a condition is as it should be; reason is empty for one that holds for any reason.
func expectCondition(t *testing.T, conditions []metav1.Condition, kind string, status metav1.ConditionStatus,
	reason string) {
	t.Helper()
	c := apimeta.FindStatusCondition(conditions, kind)
	if c == nil || c.Status != status || reason != "" && c.Reason != reason || c.ObservedGeneration != 3 ||
		c.Message == "" {
		t.Errorf("%s is %+v; want %s by %q", kind, c, status, reason)
	}
}

// TestWeights: backends of a route have their references' weights, of which the pods of a Service have even parts.
func TestWeights(t *testing.T) {
	o := Objects{Gateways: []*v1.Gateway{gatewayOf("gw", listenerOf("tcp", v1.TCPProtocolType, 9300))},
		TCPRoutes: []*v1.TCPRoute{tcpRoute("r", "gw", append(refs("a", "b"), v1.BackendRef{Weight: ptr(int32(0)),
			BackendObjectReference: v1.BackendObjectReference{Name: "c", Port: ptr(v1.PortNumber(80))}})...)},
		Services: []*corev1.Service{service("infra", "a", ""), service("infra", "b", corev1.ProtocolTCP),
			service("infra", "c", "")}}
	services, report := built(t, o)
	if len(services) != 1 || services[0].Name != "infra:gw:tcp-9300:gateway" || services[0].Mode != lb.NAT ||
		services[0].Port != 9300 {
		t.Fatalf("got %+v", services)
	}
	weights := map[string]uint16{}
	for _, b := range services[0].Backends {
		if b.TakesFlows() {
			weights[b.Name] = b.Weight
		}
	}
	if len(weights) != 4 || weights["a-0"] != 500 || weights["a-1"] != 500 || weights["b-0"] != 1000 ||
		weights["b-1"] != 1000 {
		t.Errorf("the weights are %v", weights)
	}
	status := report.Gateways[0].Status
	expectCondition(t, status.Conditions, "Accepted", metav1.ConditionTrue, "Accepted")
	expectCondition(t, status.Conditions, "Programmed", metav1.ConditionTrue, "Programmed")
	if len(status.Addresses) != 1 || status.Addresses[0].Value != "192.0.2.1" ||
		status.Listeners[0].AttachedRoutes != 1 {
		t.Errorf("the status is %+v", status)
	}
}

// TestOldestRoute: of two routes at a TCP listener both are attached, and the oldest has the connections.
func TestOldestRoute(t *testing.T) {
	older, newer := tcpRoute("z", "gw", refs("a")...), tcpRoute("b", "gw", refs("b")...)
	older.CreationTimestamp, newer.CreationTimestamp = metav1.Unix(1000, 0), metav1.NewTime(time.Unix(2000, 0))
	services, report := built(t, Objects{Gateways: []*v1.Gateway{gatewayOf("gw",
		listenerOf("tcp", v1.TCPProtocolType, 9300))},
		TCPRoutes: []*v1.TCPRoute{newer, older}, Services: []*corev1.Service{service("infra", "a", ""),
			service("infra", "b", "")}})
	if len(services[0].Backends) != 2 || services[0].Backends[0].Name != "a-0" {
		t.Errorf("got %+v", services[0].Backends)
	}
	if n := report.Gateways[0].Status.Listeners[0].AttachedRoutes; n != 2 {
		t.Errorf("%d routes are attached", n)
	}
}

// TestRouteConditions: a reference of a route that is not allowed, or to an object that is not there, is reported by
// the reasons of the specification.
func TestRouteConditions(t *testing.T) {
	section := ptr(v1.SectionName("udp"))
	foreign := refs("a")
	foreign[0].Namespace = ptr(v1.Namespace("other"))
	kind := refs("a")
	kind[0].Kind = ptr(v1.Kind("Bucket"))
	port := refs("a")
	port[0].Port = ptr(v1.PortNumber(81))
	for name, test := range map[string]struct {
		change             func(*v1.TCPRoute)
		accepted, resolved string
	}{
		"good":            {func(*v1.TCPRoute) {}, "", ""},
		"no such backend": {func(r *v1.TCPRoute) { r.Spec.Rules[0].BackendRefs = refs("x") }, "", "BackendNotFound"},
		"no such port":    {func(r *v1.TCPRoute) { r.Spec.Rules[0].BackendRefs = port }, "", "BackendNotFound"},
		"no grant":        {func(r *v1.TCPRoute) { r.Spec.Rules[0].BackendRefs = foreign }, "", "RefNotPermitted"},
		"wrong kind":      {func(r *v1.TCPRoute) { r.Spec.Rules[0].BackendRefs = kind }, "", "InvalidKind"},
		"other protocol": {func(r *v1.TCPRoute) { r.Spec.ParentRefs[0].SectionName = section }, "NotAllowedByListeners",
			""},
		"no such listener": {func(r *v1.TCPRoute) { r.Spec.ParentRefs[0].Port = ptr(v1.PortNumber(1)) },
			"NoMatchingParent",
			""},
		"another namespace": {func(r *v1.TCPRoute) {
			r.Namespace, r.Spec.ParentRefs[0].Namespace = "app",
				ptr(v1.Namespace("infra"))
		}, "NotAllowedByListeners", ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := tcpRoute("r", "gw", refs("a")...)
			test.change(r)
			_, report := built(t, Objects{TCPRoutes: []*v1.TCPRoute{r},
				Services: []*corev1.Service{service("infra", "a", ""), service("other", "a", "")},
				Gateways: []*v1.Gateway{gatewayOf("gw", listenerOf("tcp", v1.TCPProtocolType, 9300),
					listenerOf("udp", v1.UDPProtocolType, 9300))}})
			got := report.Routes[0].Parents[0]
			status := func(reason string) metav1.ConditionStatus {
				if reason == "" {
					return metav1.ConditionTrue
				}
				return metav1.ConditionFalse
			}
			expectCondition(t, got.Conditions, "Accepted", status(test.accepted), test.accepted)
			expectCondition(t, got.Conditions, "ResolvedRefs", status(test.resolved), test.resolved)
		})
	}
}

// TestGrant: a ReferenceGrant lets a route refer to a Service of another namespace.
func TestGrant(t *testing.T) {
	r := tcpRoute("r", "gw", refs("a")...)
	r.Spec.Rules[0].BackendRefs[0].Namespace = ptr(v1.Namespace("other"))
	o := Objects{TCPRoutes: []*v1.TCPRoute{r}, Services: []*corev1.Service{service("other", "a", "")},
		Gateways: []*v1.Gateway{gatewayOf("gw", listenerOf("tcp", v1.TCPProtocolType, 9300))}}
	grant := &v1.ReferenceGrant{ObjectMeta: meta("other", "g"), Spec: v1.ReferenceGrantSpec{
		From: []v1.ReferenceGrantFrom{{Group: v1.GroupName, Kind: "TCPRoute", Namespace: "infra"}},
		To:   []v1.ReferenceGrantTo{{Kind: "Service"}}}}
	for name, change := range map[string]func(*v1.ReferenceGrant){
		"good":            func(*v1.ReferenceGrant) {},
		"namespace":       func(g *v1.ReferenceGrant) { g.Namespace = "infra" },
		"from kind":       func(g *v1.ReferenceGrant) { g.Spec.From[0].Kind = "UDPRoute" },
		"from group":      func(g *v1.ReferenceGrant) { g.Spec.From[0].Group = "" },
		"from namespace":  func(g *v1.ReferenceGrant) { g.Spec.From[0].Namespace = "other" },
		"to kind":         func(g *v1.ReferenceGrant) { g.Spec.To[0].Kind = "Secret" },
		"to group":        func(g *v1.ReferenceGrant) { g.Spec.To[0].Group = v1.GroupName },
		"to another name": func(g *v1.ReferenceGrant) { g.Spec.To[0].Name = ptr(v1.ObjectName("b")) },
	} {
		changed := grant.DeepCopy()
		change(changed)
		o.Grants = []*v1.ReferenceGrant{changed}
		services, _ := built(t, o)
		if got := len(services[0].Backends) == 2; got != (name == "good") {
			t.Errorf("%s: the reference is granted: %v", name, got)
		}
	}
}

// TestListeners: a listener's fault is reported at it, and the others are served.
func TestListeners(t *testing.T) {
	https := listenerOf("https", v1.HTTPSProtocolType, 443)
	https.TLS = &v1.ListenerTLSConfig{CertificateRefs: []v1.SecretObjectReference{{Name: "none"}}}
	kinds := listenerOf("kinds", v1.TCPProtocolType, 1)
	kinds.AllowedRoutes = &v1.AllowedRoutes{Kinds: []v1.RouteGroupKind{{Kind: "TCPRoute"}, {Kind: "Nonsense"}}}
	second := listenerOf("second", v1.HTTPProtocolType, 80)
	second.Hostname = ptr(v1.Hostname("a.example.com"))
	services, report := built(t, Objects{Gateways: []*v1.Gateway{gatewayOf("gw",
		listenerOf("http", v1.HTTPProtocolType, 80), second,
		listenerOf("again", v1.HTTPProtocolType, 80), listenerOf("tcp", v1.TCPProtocolType, 80), https, kinds,
		listenerOf("tls", v1.TLSProtocolType, 444), listenerOf("udp", v1.UDPProtocolType, 80))}})
	for i, w := range []struct{ kind, reason string }{{}, {}, {"Conflicted", "HostnameConflict"},
		{"Conflicted", "ProtocolConflict"},
		{"ResolvedRefs", "InvalidCertificateRef"}, {"ResolvedRefs", "InvalidRouteKinds"}, {"Accepted",
			"UnsupportedProtocol"}, {}} {
		l := report.Gateways[0].Status.Listeners[i]
		served := metav1.ConditionFalse
		if w.kind == "" || w.reason == "InvalidRouteKinds" {
			served = metav1.ConditionTrue
		}
		expectCondition(t, l.Conditions, "Programmed", served, "")
		if w.kind == "Conflicted" {
			expectCondition(t, l.Conditions, w.kind, metav1.ConditionTrue, w.reason)
			expectCondition(t, l.Conditions, "Accepted", metav1.ConditionFalse, w.reason)
		} else if w.kind != "" {
			expectCondition(t, l.Conditions, w.kind, metav1.ConditionFalse, w.reason)
		}
	}
	var names []string
	for _, s := range services {
		names = append(names, s.Name)
	}
	if want := []string{"infra:gw:tcp-1:gateway", "infra:gw:tcp-80:gateway",
		"infra:gw:udp-80:gateway"}; !slices.Equal(names, want) {
		t.Errorf("the services are %v; want %v", names, want)
	}
	expectCondition(t, report.Gateways[0].Status.Conditions, "Accepted", metav1.ConditionTrue, "ListenersNotValid")
}

// TestAddresses: an address that a Gateway asks for and cannot have is reported, and the Gateway is not served
// elsewhere.
func TestAddresses(t *testing.T) {
	for _, test := range []struct {
		address            v1.GatewaySpecAddress
		accepted, reason   string
		programmed, served bool
	}{
		{address: v1.GatewaySpecAddress{Value: "192.0.2.9"}, accepted: "Accepted", reason: "Programmed",
			programmed: true,
			served:     true},
		{address: v1.GatewaySpecAddress{Value: "203.0.113.9"}, accepted: "Accepted", reason: "AddressNotUsable"},
		{address: v1.GatewaySpecAddress{Type: ptr(v1.HostnameAddressType), Value: "a.example.com"},
			accepted: "UnsupportedAddress", reason: "Invalid"},
	} {
		g := gatewayOf("gw", listenerOf("tcp", v1.TCPProtocolType, 9300))
		g.Spec.Addresses = []v1.GatewaySpecAddress{test.address}
		services, report := built(t, Objects{Gateways: []*v1.Gateway{g}})
		status := metav1.ConditionFalse
		if test.programmed {
			status = metav1.ConditionTrue
		}
		expectCondition(t, report.Gateways[0].Status.Conditions, "Programmed", status, test.reason)
		if c := apimeta.FindStatusCondition(report.Gateways[0].Status.Conditions,
			"Accepted"); c.Reason != test.accepted {
			t.Errorf("%s: accepted is %+v", test.address.Value, c)
		}
		if (len(services) == 1) != test.served {
			t.Errorf("%s: %d services", test.address.Value, len(services))
		}
	}
}

// TestHTTP: requests go by host and path, the most specific first, and one that fits nothing is answered by 404.
func TestHTTP(t *testing.T) {
	l := listenerOf("http", v1.HTTPProtocolType, 80)
	l.Hostname = ptr(v1.Hostname("*.example.com"))
	rule := func(path string, names ...string) (r v1.HTTPRouteRule) {
		r.Matches = []v1.HTTPRouteMatch{{Path: &v1.HTTPPathMatch{Value: ptr(path)}}}
		for _, ref := range refs(names...) {
			r.BackendRefs = append(r.BackendRefs, v1.HTTPBackendRef{BackendRef: ref})
		}
		return r
	}
	exact := rule("/exact", "a")
	exact.Matches[0].Path.Type = ptr(v1.PathMatchExact)
	r := &v1.HTTPRoute{ObjectMeta: meta("infra", "r")}
	r.Spec.ParentRefs = []v1.ParentReference{{Name: "gw"}}
	r.Spec.Hostnames = []v1.Hostname{"a.example.com", "elsewhere.org"}
	r.Spec.Rules = []v1.HTTPRouteRule{rule("/", "a"), rule("/api/", "b"), rule("/gone", "x"), exact}
	services, report := built(t, Objects{Gateways: []*v1.Gateway{gatewayOf("gw", l)}, HTTPRoutes: []*v1.HTTPRoute{r},
		Services: []*corev1.Service{service("infra", "a", ""), service("infra", "b", "")}})
	s := services[0]
	if s.Mode != lb.ModeProxy || len(s.Proxy.Routes) != 2 || len(s.Backends) != 4 {
		t.Fatalf("got %+v", s)
	}
	first, last := s.Proxy.Routes[0], s.Proxy.Routes[1]
	if !slices.Equal(first.Hosts, []string{"a.example.com"}) || !slices.Equal(first.Paths, []string{"/api"}) ||
		!slices.Equal(first.Backends, []string{"b-0", "b-1"}) || len(last.Paths) != 0 || last.Backends[0] != "a-0" {
		t.Errorf("the routes are %+v", s.Proxy.Routes)
	}
	for _, line := range []string{"http-request return status 404 if !{ var(" + matchedVariable + ") -m found }",
		"http-request return status 500 if { var(" + matchedVariable + ") -m int 0 }"} {
		if !strings.Contains(s.Proxy.Frontend, line+"\n") {
			t.Errorf("there is no line %q in\n%s", line, s.Proxy.Frontend)
		}
	}
	parent := report.Routes[0].Parents[0]
	expectCondition(t, parent.Conditions, "Accepted", metav1.ConditionTrue, "Accepted")
	expectCondition(t, parent.Conditions, "ResolvedRefs", metav1.ConditionFalse, "BackendNotFound")
	expectCondition(t, parent.Conditions, "PartiallyInvalid", metav1.ConditionTrue, "UnsupportedValue")
}

// TestBelow: names and wildcards that have requests in common.
func TestBelow(t *testing.T) {
	for _, test := range []struct {
		name, other string
		want        bool
	}{{"a.b", "a.b", true}, {"a.b", "*.b", true}, {"x.a.b", "*.b", true}, {"b", "*.b", false}, {"*.a.b", "*.b",
		true}, {"*.b", "*.a.b", false},
		{"*.b", "a.b", false}, {"cb", "*.b", false}} {
		if got := matchesWildcard(test.name, test.other); got != test.want {
			t.Errorf("%s below %s: %v", test.name, test.other, got)
		}
	}
}

// TestManyListeners: of 10,048 listeners one is refused, and all others are served.
func TestManyListeners(t *testing.T) {
	const gateways, listeners = 157, 64 // the most that a Gateway may have
	var o Objects
	for i := range gateways {
		g := gatewayOf(fmt.Sprintf("gw-%d", i))
		for j := range listeners {
			g.Spec.Listeners = append(g.Spec.Listeners,
				listenerOf(fmt.Sprintf("l-%d", j), v1.TCPProtocolType, int32(j+1)))
		}
		o.Gateways = append(o.Gateways, g)
	}
	o.Gateways[3].Spec.Listeners[5].Protocol = "example.com/other"
	services, report := built(t, o)
	if len(services) != gateways*listeners-1 {
		t.Errorf("%d services", len(services))
	}
	bad := report.Gateways[3].Status.Listeners[5].Conditions
	expectCondition(t, bad, "Accepted", metav1.ConditionFalse, "UnsupportedProtocol")
	expectCondition(t, report.Gateways[3].Status.Conditions, "Accepted", metav1.ConditionTrue, "ListenersNotValid")
	expectCondition(t, report.Gateways[4].Status.Conditions, "Accepted", metav1.ConditionTrue, "Accepted")
}
