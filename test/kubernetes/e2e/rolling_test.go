// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"net/netip"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// TestRollingUpdateBehindNodes: all pods of a service whose policy is Cluster are replaced, under connections that are
// held open and new ones, behind a balancer by L2DSR to the nodes.
func TestRollingUpdateBehindNodes(t *testing.T) {
	c := sharedWith(t)
	s := newScope(t, c)
	s.deploy(s.rolled(12, ""))
	s.awaitReady("web", 12)
	s.assign(s.create(s.service("web", "web", corev1.ServiceExternalTrafficPolicyCluster)), s.vip4.String())
	var backends []fields
	for _, node := range c.Nodes {
		backends = append(backends, fields{"name": node.Name, "address": node.Host.IPv4.String()})
	}
	b := startBalancer(t, c.Lab.Balancer, fields{"name": "web", "vip": s.vip4.String(), "port": 80,
		"mode": string(lb.L2DSR), "check": fields{"type": "tcp", "via": "vip"}, "backends": backends})
	b.eventually("every node is up", allUp)
	vip := netip.AddrPortFrom(s.vip4, 80)
	s.awaitNodes(vip)
	s.rollUnderLoad(vip)
}

// rolled returns the deployment "web" for rollUnderLoad.
func (s *scope) rolled(replicas int, node string) *appsv1.Deployment {
	d := s.deployment("web", "web", replicas, node)
	d.Spec.Template.Spec.TerminationGracePeriodSeconds = ptr.To[int64](15)
	return d
}

// rollUnderLoad replaces all pods of the deployment "web" while connections to a service are held open, and new ones
// are made. No new one may fail, and one that is open may break only when its pod's grace period has ended.
func (s *scope) rollUnderLoad(vip netip.AddrPort) {
	const held, perSecond = 100, 100
	t := s.t
	t.Helper()
	s.awaitAnswer(s.Lab.Clients[0], "tcp", vip)
	connections := hold(t, s.Lab.Clients[0], vip, held)
	s.eventually("every connection was answered", func() bool { return connections.asked.Load() >= held*3 })
	made := open(t, s.Lab.Clients[1], vip, perSecond)
	made.progress(t, perSecond)

	before := map[string]bool{}
	for _, pod := range s.pods("web") {
		before[pod.Name] = true
	}
	s.change("web", func(d *appsv1.Deployment) { d.Spec.Template.Annotations = map[string]string{"version": "2"} })
	ends := map[string]time.Time{} // when the grace period of each pod ends
	s.eventually("all pods were replaced", func() bool {
		left := 0
		for _, pod := range s.pods("web") {
			if pod.DeletionTimestamp != nil {
				ends[pod.Name] = pod.DeletionTimestamp.Time
			}
			if before[pod.Name] {
				left++
			}
		}
		return left == 0 && len(s.readyPods("web")) == len(before)
	})
	made.progress(t, perSecond)
	s.judgeRoll(connections.end(), made.end(), ends)
	t.Logf("%d new connections, %d requests over %d held ones", made.opened.Load(), connections.asked.Load(), held)
}

func (s *scope) judgeRoll(broken []breakage, failed []error, ends map[string]time.Time) {
	s.t.Helper()
	if len(failed) > 0 {
		s.t.Errorf("%d new connections failed, the first with: %v", len(failed), failed[0])
	}
	early := 0
	for _, b := range broken {
		// The API server has whole seconds.
		if end, known := ends[b.pod]; !known || b.at.Add(time.Second).Before(end) {
			if early++; early == 1 {
				s.t.Errorf("a connection to %s broke at %v, its grace period ends at %v: %v",
					b.pod, b.at.Format(time.StampMilli), end.Format(time.StampMilli), b.err)
			}
		}
	}
	if early > 0 {
		s.t.Errorf("%d connections broke before the end of their pods' grace periods", early)
	}
	s.t.Logf("%d connections were held until their pods were killed", len(broken)-early)
}
