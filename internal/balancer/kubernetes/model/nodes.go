// SPDX-License-Identifier: Apache-2.0

package model

import (
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/jeoul/jeoul/internal/balancer/kubernetes/pools"
)

// Taints of nodes that matter beside the label: the first two keep a node from new flows.
const (
	// taintScaleDown is the taint by which the cluster autoscaler marks a node that it is about to remove.
	taintScaleDown = "ToBeDeletedByClusterAutoscaler"
	// taintOutOfService is the taint by which a person marks a node that is down permanently.
	taintOutOfService = corev1.TaintNodeOutOfService
	// taintUninitialized is the taint of a node that waits for an external cloud provider, which sets its addresses.
	taintUninitialized = "node.cloudprovider.kubernetes.io/uninitialized"
)

// node is a node as a backend.
type node struct {
	name string
	// addresses are its own, the first of each family.
	addresses map[pools.Family]netip.Addr
	// draining: it takes no new flow, and keeps those that it has.
	draining bool
	// ready is the node's condition Ready; Kubernetes takes 40 s to notice that a node is dead.
	ready bool
	// joining: it may get further addresses soon.
	joining bool
}

// nodes are the nodes by name, and sorted by it.
type nodes struct {
	sorted []*node
	named  map[string]*node
}

func nodesOf(list []*corev1.Node) nodes {
	all := nodes{named: map[string]*node{}}
	for _, n := range list {
		made := &node{name: n.Name, addresses: map[pools.Family]netip.Addr{}, draining: isDraining(n),
			ready: isReady(n)}
		for _, a := range n.Status.Addresses {
			addr, err := netip.ParseAddr(a.Address)
			if a.Type != corev1.NodeInternalIP || err != nil || addr.Zone() != "" || !addr.Unmap().IsGlobalUnicast() {
				continue
			}
			if addr = addr.Unmap(); !made.addresses[pools.FamilyOf(addr)].IsValid() {
				made.addresses[pools.FamilyOf(addr)] = addr
			}
		}
		made.joining = hasTaint(n, taintUninitialized) || !made.ready && len(made.addresses) == 0
		all.sorted, all.named[n.Name] = append(all.sorted, made), made
	}
	slices.SortFunc(all.sorted, func(a, b *node) int { return strings.Compare(a.name, b.name) })
	return all
}

// isDraining reports whether a node is to take no new flow from outside of the cluster.
func isDraining(n *corev1.Node) bool {
	_, excluded := n.Labels[corev1.LabelNodeExcludeBalancers]
	return excluded || n.DeletionTimestamp != nil || hasTaint(n, taintScaleDown) || hasTaint(n, taintOutOfService)
}

func hasTaint(n *corev1.Node, key string) bool {
	return slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == key })
}

func isReady(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}
