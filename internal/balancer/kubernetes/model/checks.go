// SPDX-License-Identifier: Apache-2.0

package model

import (
	"cmp"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/jeoul/jeoul/internal/balancer/kubernetes/annotations"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// How nodes and pods are checked: one that is dead gets no new flow after 3 s, where Kubernetes takes 40 s to say so.
const (
	checkInterval = time.Second
	checkTimeout  = time.Second
	checkFall     = 2
	checkRise     = 2
)

// setChecks has the backends of a service checked.
func (p *portPlan) setChecks(s *lb.Service, port *corev1.ServicePort) {
	kind := cmp.Or(p.settings.Check, annotations.CheckAuto)
	check := lb.Check{Via: lb.ViaAddress, Interval: checkInterval, Timeout: checkTimeout, Fall: checkFall,
		Rise: checkRise}
	switch nodePort := uint16(port.NodePort); {
	case kind == annotations.CheckNone:
		return
	case kind == annotations.CheckAuto && p.target == annotations.Nodes && p.local &&
		p.service.Spec.HealthCheckNodePort > 0:
		check.Type, check.Port = lb.CheckHTTP, uint16(p.service.Spec.HealthCheckNodePort)
		check.HTTP = &lb.HTTPCheck{Method: lb.DefaultCheckMethod, Path: "/healthz",
			Status: []lb.StatusRange{{First: 200, Last: 200}}}
		// kube-proxy knows first what it sends on, also where the API server is away. It heeds no zones here.
		if !p.zoned {
			check.HTTP.WeightHeader = lb.EndpointWeightHeader
		}
	case s.Protocol != lb.TCP, kind == annotations.CheckICMP:
		check.Type = lb.CheckICMP // no datagram is known that every server would answer
	case kind == annotations.CheckAuto && p.target == annotations.Nodes && !p.local:
		// kube-proxy forwards a connection to the NodePort to any pod of the cluster: a dead pod would fail all nodes.
		check.Type = lb.CheckICMP
	case kind == annotations.CheckVIP && s.Mode.KeepsPort():
		check.Type, check.Via = lb.CheckTCP, lb.ViaVIP
	case p.target == annotations.Pods || s.Mode.Translates():
		check.Type = lb.CheckTCP // at the backend's port
	case nodePort > 0:
		check.Type, check.Port = lb.CheckTCP, nodePort
	default:
		check.Type = lb.CheckICMP // a node listens on no port of the Service at its own address
	}
	s.Checks = lb.Checks{List: []lb.Check{check}, Panic: lb.DefaultPanicFor(s.OnEmpty), OnDown: p.onDown(s.Protocol)}
}

// PodChecks are the checks of backends that are asked at their own address and port: by a connection, or of UDP, where
// no datagram is known that every server would answer, by ICMP.
func PodChecks(protocol lb.Protocol) lb.Checks {
	check := lb.Check{Type: lb.CheckTCP, Via: lb.ViaAddress, Interval: checkInterval, Timeout: checkTimeout,
		Fall: checkFall, Rise: checkRise}
	if protocol == lb.UDP {
		check.Type = lb.CheckICMP
	}
	return lb.Checks{List: []lb.Check{check}, Panic: lb.DefaultPanicFor(""), OnDown: lb.DefaultOnDown(protocol)}
}

// onDown is the policy for flows of a backend whose checks fail: the one that the Service asks for, on the ports whose
// protocol has it.
func (p *portPlan) onDown(protocol lb.Protocol) lb.OnDown {
	switch asked := p.settings.OnDown; {
	case asked == "", asked == lb.ResetFlows && protocol == lb.UDP, asked == lb.MoveFlows && protocol == lb.TCP:
		return lb.DefaultOnDown(protocol)
	default:
		return asked
	}
}
