// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/jeoul/jeoul/internal/balancer/kubernetes/pools"
	"github.com/jeoul/jeoul/internal/balancer/kubernetes/status"
	"github.com/jeoul/jeoul/internal/balancer/ops"
)

// TestChangesOfPoolsTypesAndRights: a pool that shrinks, a ConfigMap without pools and a right that is lost take
// nothing from the balanced Services, and each is reported; a Service that flips its type is given up and taken again.
func TestChangesOfPoolsTypesAndRights(t *testing.T) {
	c := sharedWith(t)
	makeNamespace(t, c, "jeoul-system")
	k := &controller{balancer: startBalancer(t, c.Lab.Balancer)}
	k.arguments = []string{"--kubeconfig", c.Kubeconfig, "--socket", k.socket(), "--pools-configmap",
		"jeoul-system/pools",
		"--identity", "balancer-1"}
	s := newScope(t, c)
	s.writePools("198.18.0.180-198.18.0.181")
	k.run()
	t.Cleanup(func() {
		k.process.Stop(context.Background())
		if t.Failed() {
			t.Logf("the log of jeoul-kubernetes:\n%s", k.out.String())
		}
	})
	s.spread("web", 1)
	service := s.service("web", "web", corev1.ServiceExternalTrafficPolicyLocal)
	service.Spec.IPFamilyPolicy = ptr.To(corev1.IPFamilyPolicySingleStack)
	s.create(service)
	vip := netip.AddrPortFrom(s.awaitAddresses("web", 1)[0], 80)
	s.awaitNode(vip)
	k.eventually("the node is up", allUp)

	s.writePools("198.18.0.182-198.18.0.183")
	s.awaitCondition("web", status.AddressesAssigned, pools.ReasonOutsidePools)
	s.writePools("nonsense")
	s.eventually("the log says that the pools cannot be read", func() bool {
		return strings.Contains(k.out.String(), "the pools cannot be read")
	})
	s.isServed(vip, "while the pools are others, and cannot be read")

	s.loseRight(k)
	s.isServed(vip, "without the right to write status")
	s.scale("web-1", 2)
	s.awaitReady("web", 2)
	s.eventually("the balancer follows without that right", func() bool { return k.upWithWeights(2) })
	s.regain(k)

	s.writePools("198.18.0.182-198.18.0.183")
	s.setType("web", corev1.ServiceTypeClusterIP)
	k.eventually("the balancer has no service", func(now *ops.Status) bool { return len(now.Services) == 0 })
	s.setType("web", corev1.ServiceTypeLoadBalancer)
	s.eventually("the Service has an address of the pool", func() bool {
		now, err := c.Client.CoreV1().Services(s.name).Get(t.Context(), "web", metav1.GetOptions{})
		return err == nil && len(now.Status.LoadBalancer.Ingress) == 1 &&
			now.Status.LoadBalancer.Ingress[0].IP != vip.Addr().String()
	})
	k.eventually("the balancer has it again", allUp)
}

// writePools makes the ConfigMap of the pools, or replaces it.
func (s *scope) writePools(addresses string) {
	s.t.Helper()
	maps := s.Client.CoreV1().ConfigMaps("jeoul-system")
	made := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "pools"},
		Data: map[string]string{"pools.yaml": "pools: [{name: changes, addresses: [" + addresses + "]}]"}}
	if _, err := maps.Update(s.t.Context(), made, metav1.UpdateOptions{}); err == nil {
		return
	}
	if _, err := maps.Create(s.t.Context(), made, metav1.CreateOptions{}); err != nil {
		s.t.Fatal(err)
	}
}

// awaitNode waits until the first node, which has the pods, accepts an address.
func (s *scope) awaitNode(vip netip.AddrPort) {
	s.t.Helper()
	undo := direct(s.t, s.Lab.Clients[1], vip.Addr(), s.Nodes[0].Host.MAC)
	s.awaitAnswer(s.Lab.Clients[1], "tcp", vip)
	undo()
}

func (s *scope) isServed(vip netip.AddrPort, when string) {
	s.t.Helper()
	if got := connect(s.Lab.Clients[0], vip, 100); len(got.failed) > 0 {
		s.t.Errorf("%s, %d of 100 connections failed, the first with: %v", when, len(got.failed), got.failed[0])
	}
}

// awaitCondition waits until a condition of a Service does not hold, for a reason.
func (s *scope) awaitCondition(service, kind, reason string) {
	s.t.Helper()
	s.eventually("the condition "+kind+" says "+reason, func() bool {
		now, err := s.Client.CoreV1().Services(s.name).Get(s.t.Context(), service, metav1.GetOptions{})
		if err != nil {
			return false
		}
		found := apimeta.FindStatusCondition(now.Status.Conditions, kind)
		return found != nil && found.Status == metav1.ConditionFalse && found.Reason == reason
	})
}

func (s *scope) setType(service string, kind corev1.ServiceType) {
	s.t.Helper()
	s.eventually("the Service has type "+string(kind), func() bool {
		now, err := s.Client.CoreV1().Services(s.name).Get(s.t.Context(), service, metav1.GetOptions{})
		if err != nil {
			return false
		}
		now.Spec.Type = kind
		if kind == corev1.ServiceTypeClusterIP {
			now.Spec.LoadBalancerClass, now.Spec.ExternalTrafficPolicy = nil, ""
			now.Spec.AllocateLoadBalancerNodePorts = nil
		} else {
			now.Spec.LoadBalancerClass = s.service("", "", "").Spec.LoadBalancerClass
			now.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
		}
		_, err = s.Client.CoreV1().Services(s.name).Update(s.t.Context(), now, metav1.UpdateOptions{})
		return err == nil
	})
}

// loseRight has jeoul-kubernetes go on as a user that may do all that it needs but write status.
func (s *scope) loseRight(k *controller) {
	t := s.t
	t.Helper()
	const user = "reader"
	read := []string{"list", "watch"}
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: user}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"services", "nodes", "configmaps"}, Verbs: read},
		{APIGroups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices"}, Verbs: read},
		{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"get", "create",
			"update"}}}}
	if _, err := s.Client.RbacV1().ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: user},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: user},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}}}
	if _, err := s.Client.RbacV1().ClusterRoleBindings().Create(t.Context(), binding,
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	kubeconfig, err := s.WriteKubeconfig(user)
	if err != nil {
		t.Fatal(err)
	}
	s.writePools("198.18.0.180-198.18.0.181") // so that there is a condition to write
	s.restart(k, kubeconfig)
	k.eventually("the balancer's status names the right", func(now *ops.Status) bool {
		return hasProblem(now, ops.ProblemRight, "may not patch services/status")
	})
	s.eventually("the log says that status cannot be written, and why", func() bool {
		return strings.Contains(k.out.String(), "status cannot be written") && strings.Contains(k.out.String(),
			"forbidden")
	})
}

// regain undoes loseRight.
func (s *scope) regain(k *controller) {
	s.t.Helper()
	s.restart(k, s.Kubeconfig)
}

// restart starts jeoul-kubernetes with another kubeconfig.
func (s *scope) restart(k *controller, kubeconfig string) {
	s.t.Helper()
	if err := k.process.Stop(s.t.Context()); err != nil {
		s.t.Logf("jeoul-kubernetes ended: %v", err)
	}
	k.arguments[slices.Index(k.arguments, "--kubeconfig")+1] = kubeconfig
	k.run()
}
