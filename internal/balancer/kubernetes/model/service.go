// SPDX-License-Identifier: Apache-2.0

package model

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/jeoul/jeoul/internal/balancer/kubernetes/annotations"
	"github.com/jeoul/jeoul/internal/balancer/kubernetes/pools"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// portPlan is how the ports of a Service are served.
type portPlan struct {
	service  *corev1.Service
	settings annotations.Settings
	mode     lb.Mode
	target   annotations.Target
	// local: a node gets only packets that a pod on it takes (externalTrafficPolicy: Local).
	local bool
	// zoned: only endpoints whose hints name the balancer's zone take new flows.
	zoned bool
	// clients are the networks of spec.loadBalancerSourceRanges; restricted says that there is such a list.
	clients    []netip.Prefix
	restricted bool
}

// addService makes the balancer's services of a Service: one for each port and address.
func (b *builder) addService(s *corev1.Service) {
	p := portPlan{service: s, settings: b.ServiceSettings[Key(s)], zoned: b.settings.Zone != "",
		local: s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal}
	p.mode = cmp.Or(p.settings.Mode, b.settings.Mode, lb.L2DSR)
	p.target = cmp.Or(p.settings.Backends, b.defaultTarget(s, p.mode))
	p.clients, p.restricted = b.clientsOf(s)
	b.dropUnused(&p)
	grant := b.Grants[Key(s)]
	verdict := b.Verdicts[Key(s)]
	verdict.Mode, verdict.Addresses = p.mode, grant.Addresses
	for _, problem := range grant.Problems {
		verdict.Unassigned = append(verdict.Unassigned, Problem(problem))
	}
	b.Verdicts[Key(s)] = verdict
	for i := range s.Spec.Ports {
		port := &s.Spec.Ports[i]
		field := "spec.ports[" + strconv.Itoa(i) + "]"
		protocol, ok := protocolOf(port)
		if !ok {
			b.checkPort(s, port, field)
			continue
		}
		for _, addr := range grant.Held {
			b.addPort(&p, port, protocol, addr, field)
		}
	}
}

// defaultTarget is the default target of a Service's packets.
func (b *builder) defaultTarget(s *corev1.Service, mode lb.Mode) annotations.Target {
	nodePorts := s.Spec.AllocateLoadBalancerNodePorts == nil || *s.Spec.AllocateLoadBalancerNodePorts
	if mode.Translates() && (b.settings.RoutedPods || !nodePorts) {
		return annotations.Pods
	}
	return annotations.Nodes
}

// checkPort says why a port cannot be balanced.
func (b *builder) checkPort(s *corev1.Service, port *corev1.ServicePort, field string) {
	if port.Port < 1 || port.Port > 65535 {
		b.addProblem(s, ReasonInvalidField, field+".port", "%d is not a port from 1 to 65535", port.Port)
		return
	}
	b.addProblem(s, ReasonUnsupported, field+".protocol",
		"%s is not balanced; TCP and UDP are. The other ports are served",
		port.Protocol)
}

// dropUnused drops settings that a Service asks for and that go with none of its ports, and names them.
func (b *builder) dropUnused(p *portPlan) {
	w := &p.settings
	hasPort := func(protocol lb.Protocol) bool {
		return slices.ContainsFunc(p.service.Spec.Ports, func(port corev1.ServicePort) bool {
			got, ok := protocolOf(&port)
			return ok && got == protocol
		})
	}
	field := annotations.Field
	switch {
	case w.OnDown == lb.ResetFlows && !hasPort(lb.TCP):
		b.addProblem(p.service, ReasonInvalidAnnotation, field(annotations.OnDown),
			"%s is for TCP, and the Service has no port of it", w.OnDown)
	case w.OnDown == lb.MoveFlows && !hasPort(lb.UDP):
		b.addProblem(p.service, ReasonInvalidAnnotation, field(annotations.OnDown),
			"%s is for UDP, and the Service has no port of it", w.OnDown)
	case w.OnDown != "" && w.Check == annotations.CheckNone:
		b.addProblem(p.service, ReasonInvalidAnnotation, field(annotations.OnDown),
			"says what happens when checks fail, and %s is %s; remove one of the two",
			annotations.Check, w.Check)
		w.OnDown = ""
	}
	if w.SlowStart > 0 && w.Scheduler != "" && !w.Scheduler.Weighted() {
		b.addProblem(p.service, ReasonInvalidAnnotation, field(annotations.SlowStart),
			"the scheduler %s heeds no weights; use another, or remove one of the two",
			w.Scheduler)
		w.SlowStart = 0
	}
}

// legacySourceRanges is the annotation that spec.loadBalancerSourceRanges has replaced; it counts where that is empty.
const legacySourceRanges = corev1.AnnotationLoadBalancerSourceRangesKey

// clientsOf returns the networks that a Service serves, of both families, and whether it serves only some. A network
// that cannot be read is named and left out, so that no more clients are served than are meant.
func (b *builder) clientsOf(s *corev1.Service) (list []netip.Prefix, restricted bool) {
	ranges, field := s.Spec.LoadBalancerSourceRanges, "spec.loadBalancerSourceRanges"
	if value := s.Annotations[legacySourceRanges]; len(ranges) == 0 && strings.TrimSpace(value) != "" {
		ranges, field = strings.Split(value, ","), annotations.Field(legacySourceRanges)
	}
	for _, text := range ranges {
		prefix, err := netip.ParsePrefix(strings.TrimSpace(text))
		if err != nil || prefix.Addr().Is4In6() {
			b.addProblem(s, ReasonInvalidField, field,
				"%.64q is not a network; write one such as 192.0.2.0/24. Its clients are not served", text)
			continue
		}
		if prefix = prefix.Masked(); !slices.Contains(list, prefix) {
			list = append(list, prefix)
		}
	}
	return list, len(ranges) > 0
}

// addPort adds the service of one port at one address.
func (b *builder) addPort(p *portPlan, port *corev1.ServicePort, protocol lb.Protocol, addr netip.Addr, field string) {
	family := pools.FamilyOf(addr)
	s := lb.Service{Name: ServiceName(p.service, port, !addr.Is4()), VIP: addr, Port: uint16(port.Port),
		Protocol: protocol, Mode: p.mode,
		Scheduler: cmp.Or(p.settings.Scheduler,
			lb.Maglev), OnEmpty: p.settings.OnEmpty, SlowStart: p.settings.SlowStart,
		AllowEmpty: true,
		Limits:     lb.Limits{Refuse: lb.RefuseByReset}}
	endpoints := endpointsOf(b.slices[Key(p.service)], port, family, b.settings.Zone)
	if p.target == annotations.Pods {
		b.addPods(p, &s, endpoints, field)
	} else {
		b.addNodes(p, &s, endpoints, port, family, field)
	}
	p.setClients(&s)
	p.setAffinity(&s)
	p.setChecks(&s, port)
	b.Services, b.Owners = append(b.Services, s), append(b.Owners, Key(p.service))
}

// addPods makes endpoints the backends of a service.
func (b *builder) addPods(p *portPlan, s *lb.Service, endpoints []endpoint, field string) {
	names := BackendNames{}
	for _, e := range endpoints {
		if p.mode.KeepsPort() && e.address.Port() != s.Port {
			b.addProblem(p.service, ReasonUnsupported, field+".targetPort",
				"pods listen on %d, and mode %s leaves the port %d as it is; use the same port, or %s %s, or send to nodes (%s)",
				e.address.Port(), p.mode, s.Port, annotations.Mode, lb.FullNAT, annotations.Backends)
			s.Backends = nil
			return
		}
		s.Backends = append(s.Backends, lb.Backend{Name: names.Assign(e.name, e.address.String()),
			Address: e.address.Addr(),
			Port:    e.address.Port(),
			Weight:  1, Draining: !e.eligible})
	}
}

// addNodes makes nodes the backends of a service. With externalTrafficPolicy Local each weighs as much as it has
// endpoints that take new flows, so that each of them gets the same share; without, every node sends on to all of them.
func (b *builder) addNodes(p *portPlan, s *lb.Service, endpoints []endpoint, port *corev1.ServicePort,
	family pools.Family,
	field string) {
	number := s.Port
	if p.mode.Translates() {
		if port.NodePort < 1 || port.NodePort > 65535 {
			b.addProblem(p.service, ReasonUnsupported, field+".nodePort",
				"mode %s sends to nodes by NodePort, and the port has none; let one be allocated, or send to pods (%s)",
				p.mode, annotations.Backends)
			return
		}
		number = uint16(port.NodePort)
	}
	if len(endpoints) == 0 {
		return // every node would refuse
	}
	taking, there, serving := map[string]int{}, map[string]int{}, map[string]bool{}
	for _, e := range endpoints {
		there[e.node]++
		serving[e.node] = serving[e.node] || e.serving
		if e.eligible {
			taking[e.node]++
		}
	}
	names, owners := BackendNames{}, map[netip.Addr]string{}
	for _, n := range b.nodes.sorted {
		addr := n.addresses[family]
		if p.local && there[n.name] == 0 {
			continue
		}
		if !addr.IsValid() {
			if !n.joining { // otherwise each node that joins would fault each Service for a while
				b.addProblem(p.service, ReasonNodeUnusable, "", "node %s has no InternalIP of %s", n.name, family)
			}
			continue
		}
		if owner, duplicate := owners[addr]; duplicate {
			b.addProblem(p.service, ReasonNodeUnusable, "", "node %s has the InternalIP %s of node %s", n.name, addr,
				owner)
			continue
		}
		owners[addr] = n.name
		backend := lb.Backend{Name: names.Assign(n.name, addr.String()), Address: addr, Port: number, Weight: 1}
		switch {
		case p.local && !serving[n.name] && !p.onDown(s.Protocol).Keeps():
			// kube-proxy drops what comes. The flows of a draining backend would stay: see health.Answer.Finishing.
			backend.Weight = 0
		case p.local:
			backend.Weight = uint16(min(max(taking[n.name], 1), 1<<16-1))
			backend.Draining = n.draining || taking[n.name] == 0
		default:
			backend.Draining = n.draining || !n.ready || len(taking) == 0
		}
		s.Backends = append(s.Backends, backend)
	}
	if !p.local && len(taking) > 0 {
		useUnreadyNodes(s, b.nodes)
	}
}

// useUnreadyNodes has nodes that are not ready take new flows where no other does: kubelets that are all unheard of are
// no evidence against kube-proxy.
func useUnreadyNodes(s *lb.Service, all nodes) {
	if slices.ContainsFunc(s.Backends, lb.Backend.TakesFlows) {
		return
	}
	for i := range s.Backends {
		backend := &s.Backends[i]
		at := slices.IndexFunc(all.sorted, func(n *node) bool { return ShortenName(n.name) == backend.Name })
		backend.Draining = at < 0 || all.sorted[at].draining
	}
}

// setClients has a service serve those networks of its family that the Service names. Where none is of its family,
// it serves no client.
func (p *portPlan) setClients(s *lb.Service) {
	if !p.restricted {
		return
	}
	for _, network := range p.clients {
		if network.Addr().Is4() == s.VIP.Is4() {
			s.Allow = append(s.Allow, network)
		}
	}
	if len(s.Allow) == 0 {
		all := netip.PrefixFrom(netip.IPv6Unspecified(), 0)
		if s.VIP.Is4() {
			all = netip.PrefixFrom(netip.IPv4Unspecified(), 0)
		}
		s.Deny = []netip.Prefix{all}
	}
}

// setAffinity has a service send all flows of a client to one backend (sessionAffinity: ClientIP).
func (p *portPlan) setAffinity(s *lb.Service) {
	if p.service.Spec.SessionAffinity != corev1.ServiceAffinityClientIP {
		return
	}
	seconds := int32(corev1.DefaultClientIPServiceAffinitySeconds)
	if c := p.service.Spec.SessionAffinityConfig; c != nil && c.ClientIP != nil && c.ClientIP.TimeoutSeconds != nil {
		seconds = *c.ClientIP.TimeoutSeconds
	}
	timeout := min(max(time.Duration(seconds)*time.Second, time.Second), 24*time.Hour)
	s.Persistence = lb.Persistence{Timeout: timeout, Prefix: uint8(s.VIP.BitLen())}
}
