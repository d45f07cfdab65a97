// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/test/kubernetes/cluster"
)

// TestEtcdIsRestored: when an older backup of etcd is restored, of which watches hear nothing, the balanced Services
// stay so, the Service that vanished is named in the status and in an Event, and changes from then on are followed.
func TestEtcdIsRestored(t *testing.T) {
	c := newCluster(t, cluster.Options{Nodes: 1, Clients: 2})
	k := startController(t, c)
	s := newScope(t, c)
	s.spread("web", 1)
	s.create(s.single("old"))
	vip := netip.AddrPortFrom(s.awaitAddresses("old", 1)[0], 80)
	s.awaitNode(vip)
	k.eventually("the node is up", allUp)
	if err := c.BackUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	// Revisions that the cluster will not have any more, also not by its writes while it starts.
	for i := range 300 {
		s.writePools(fmt.Sprintf("198.18.1.%d", i%250+1))
	}
	s.create(s.single("new"))
	s.awaitAddresses("new", 1)
	k.eventually("the balancer has both", func(now *ops.Status) bool { return len(now.Services) == 4 && allUp(now) })
	if err := c.Restore(t.Context()); err != nil {
		t.Fatal(err)
	}
	k.eventually("the status names the Service that vanished", func(now *ops.Status) bool {
		return hasProblem(now, ops.ProblemKept, "Service "+s.name+"/new")
	})
	k.eventually("the balancer has both still", func(now *ops.Status) bool { return len(now.Services) == 4 })
	s.isServed(vip, "after the restoration")
	s.eventually("an Event says so", func() bool {
		list, err := c.Client.EventsV1().Events("jeoul-system").List(t.Context(), metav1.ListOptions{})
		return err == nil && slices.ContainsFunc(list.Items, func(e eventsv1.Event) bool {
			return e.Reason == "ClusterWentBack"
		})
	})
	s.create(s.single("new"))
	s.create(s.single("newer"))
	k.eventually("the cluster is followed again", func(now *ops.Status) bool {
		return len(now.Services) == 6 && !hasProblem(now, ops.ProblemKept, "")
	})
}

// single returns a Service of one family for the app web.
func (s *scope) single(name string) *corev1.Service {
	service := s.service(name, "web", corev1.ServiceExternalTrafficPolicyLocal)
	service.Spec.IPFamilyPolicy = ptr.To(corev1.IPFamilyPolicySingleStack)
	return service
}

// hasProblem reports whether a balancer's status has a problem of a source, of a kind and with a text in it.
func hasProblem(status *ops.Status, kind ops.ProblemKind, text string) bool {
	for _, f := range status.Feeds {
		for _, problem := range f.Problems {
			if problem.Kind == kind && strings.Contains(problem.Text(), text) {
				return true
			}
		}
	}
	return false
}

// TestTwoClaimOneLease: of two processes with one name one writes status, and the other when the first is killed.
func TestTwoClaimOneLease(t *testing.T) {
	c := sharedWith(t)
	first := startController(t, c)
	const leads = "this balancer writes the status of Services now"
	s := newScope(t, c)
	s.eventually("the first holds the Lease", func() bool { return strings.Contains(first.out.String(), leads) })
	second := startControllerBeside(t, c, first.balancer)
	s.spread("web", 1)
	s.create(s.single("web"))
	s.awaitAddresses("web", 1)
	first.eventually("both are at work", func(now *ops.Status) bool {
		return len(now.Services) == 2 && strings.Contains(second.out.String(), "the balancer has the services")
	})
	if strings.Contains(second.out.String(), leads) {
		t.Error("both hold the Lease")
	}
	if err := first.process.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.eventually("the second holds the Lease", func() bool { return strings.Contains(second.out.String(), leads) })
}
