// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/jeoul/jeoul/test/kubernetes/cluster"
	"github.com/jeoul/jeoul/test/kubernetes/podserver"
)

// TestPodEndsWithGrace: a pod that is deleted is terminating and serving in the slices while it lingers, its
// connections go on, and it is gone when the last has ended, or is killed at the end of the grace period.
func TestPodEndsWithGrace(t *testing.T) {
	s := newScope(t, sharedWith(t))
	s.deploy(s.deployment("web", "web", 1, ""))
	s.awaitReady("web", 1)
	s.create(s.service("web", "web", corev1.ServiceExternalTrafficPolicyCluster))
	pod := s.readyPods("web")[0]
	s.eventually("the pod is an endpoint", func() bool { return slices.ContainsFunc(s.endpoints("web"), isReady) })

	at := netip.AddrPortFrom(netip.MustParseAddr(pod.Status.PodIP), podserver.DefaultPort)
	connections := hold(t, s.Lab.Balancer, at, 3) // it has routes to the pods
	err := s.Client.CoreV1().Pods(s.name).Delete(t.Context(), pod.Name,
		metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](8)})
	if err != nil {
		t.Fatal(err)
	}
	s.eventually("the endpoint is serving and terminating", func() bool {
		return slices.ContainsFunc(s.endpoints("web"), func(e discoveryv1.Endpoint) bool {
			return *e.Conditions.Terminating && *e.Conditions.Serving && !*e.Conditions.Ready
		})
	})
	asked := connections.asked.Load()
	s.eventually("the connections go on", func() bool { return connections.asked.Load() > asked+6 })
	s.eventually("the pod is gone", func() bool {
		return !slices.ContainsFunc(s.pods("web"), func(p corev1.Pod) bool { return p.UID == pod.UID })
	})
	s.eventually("its connections ended with it", func() bool { return connections.countBroken() == 3 })
}

func isReady(e discoveryv1.Endpoint) bool { return ptr.Deref(e.Conditions.Ready, false) }

// TestContainerStartsAgain: a pod whose process dies is not ready, and is ready again with the next.
func TestContainerStartsAgain(t *testing.T) {
	s := newScope(t, sharedWith(t))
	s.deploy(s.deployment("web", "web", 1, ""))
	s.awaitReady("web", 1)
	pid, _ := strings.CutPrefix(s.readyPods("web")[0].Status.ContainerStatuses[0].ContainerID, "process://")
	if err := exec.CommandContext(t.Context(), "kill", "-KILL", pid).Run(); err != nil {
		t.Fatal(err)
	}
	s.eventually("the container was started again", func() bool {
		ready := s.readyPods("web")
		return len(ready) == 1 && ready[0].Status.ContainerStatuses[0].RestartCount == 1
	})
}

// TestAPIServerComesBack: the balancer goes on without the API server, and follows it again when it is back.
func TestAPIServerComesBack(t *testing.T) {
	c := newCluster(t, cluster.Options{Nodes: 1})
	s := newScope(t, c)
	s.spread("web", 2)
	s.assign(s.create(s.service("web", "web", corev1.ServiceExternalTrafficPolicyLocal)), s.vip4.String())
	direct(t, c.Lab.Clients[0], s.vip4, c.Nodes[0].Host.MAC)
	vip := netip.AddrPortFrom(s.vip4, 80)
	s.awaitAnswer(c.Lab.Clients[0], "tcp", vip)
	if err := c.KillAPIServer(); err != nil {
		t.Fatal(err)
	}
	if got := connect(c.Lab.Clients[0], vip, 100); len(got.failed) > 0 {
		t.Errorf("without the API server %d of 100 connections failed: %v", len(got.failed), got.failed[0])
	}
	if err := c.StartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.scale("web-1", 3)
	s.awaitReady("web", 3)
}

// scale sets the number of a deployment's pods.
func (s *scope) scale(name string, replicas int) {
	s.t.Helper()
	s.change(name, func(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To(int32(replicas)) })
}

// change changes a deployment.
func (s *scope) change(name string, change func(*appsv1.Deployment)) {
	s.t.Helper()
	s.eventually("deployment "+name+" is changed", func() bool {
		d, err := s.Client.AppsV1().Deployments(s.name).Get(s.t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return false
		}
		change(d)
		_, err = s.Client.AppsV1().Deployments(s.name).Update(s.t.Context(), d, metav1.UpdateOptions{})
		return err == nil
	})
}

// TestDeadNodeIsNotReady: the controllers find a node that has lost its power, and its pods are recreated elsewhere.
func TestDeadNodeIsNotReady(t *testing.T) {
	c := newCluster(t, cluster.Options{Nodes: 2, NodeGrace: 4 * time.Second})
	s := newScope(t, c)
	s.spread("web", 0, 1)
	s.assign(s.create(s.service("web", "web", corev1.ServiceExternalTrafficPolicyCluster)), s.vip4.String())
	if err := c.Nodes[1].Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.eventually("the node is not ready", func() bool {
		node, err := c.Client.CoreV1().Nodes().Get(t.Context(), c.Nodes[1].Name, metav1.GetOptions{})
		return err == nil && slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue
		})
	})
	s.eventually("its pod's endpoint is not ready", func() bool {
		endpoints := s.endpoints("web")
		return len(endpoints) > 0 && !slices.ContainsFunc(endpoints, isReady)
	})
}

// TestClusterLeavesNothing: no process, namespace or file of a cluster is left when it is closed.
func TestClusterLeavesNothing(t *testing.T) {
	c := newCluster(t, cluster.Options{Nodes: 1})
	s := &scope{Cluster: c, t: t, name: corev1.NamespaceDefault}
	s.spread("web", 2)
	prefix, dir := strings.TrimSuffix(c.Lab.Balancer.Namespace, "balancer"), c.Lab.Dir
	var pids []string
	for _, pod := range s.readyPods("web") {
		pid, _ := strings.CutPrefix(pod.Status.ContainerStatuses[0].ContainerID, "process://")
		pids = append(pids, pid)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	for _, pid := range pids {
		if command, _ := os.ReadFile("/proc/" + pid + "/cmdline"); strings.Contains(string(command), podserver.Role) {
			t.Errorf("the pod's process %s is left", pid)
		}
	}
	if names, _ := filepath.Glob("/run/netns/" + prefix + "*"); len(names) > 0 {
		t.Errorf("left: %v", names)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Errorf("left: %s", dir)
	}
}
