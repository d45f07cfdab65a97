// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	jeoule2e "github.com/jeoul/jeoul/cmd/jeoul/e2e"
	"github.com/jeoul/jeoul/internal/balancer/kubernetes/annotations"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/weigh/lab"
	"github.com/jeoul/jeoul/test/kubernetes/cluster"
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
	s.rollUnderLoad(vip, load{held: 100, turn: turn, perSecond: 100})
}

// TestFiftyPodsMeasured replaces 50 pods under 500 connections that are held open and 500 new ones a second, served by
// the product as a whole: through nodes whose pods share the Service's connections, and to the pods themselves. It is a
// measurement, for on two cores it is kube-proxy and the stand-ins for kubelets that such a load keeps busy.
func TestFiftyPodsMeasured(t *testing.T) {
	c := newClusterOf(t, "bench-kubernetes", cluster.Options{Nodes: 3, Clients: 2})
	k := startControllerBeside(t, c, startConfigured(t, c.Lab.Balancer, fields{"services": []fields{},
		"fullnat": fields{"addresses": []string{"198.18.0.240", "198.18.0.241"}}}), "--routed-pods")
	for _, to := range []struct {
		name string
		mode lb.Mode
		ip   corev1.LoadBalancerIPMode
	}{{"nodes", lb.L2DSR, corev1.LoadBalancerIPModeVIP}, {"pods", lb.FullNAT, corev1.LoadBalancerIPModeProxy}} {
		t.Run(to.name, func(t *testing.T) {
			s := newScope(t, c)
			s.deploy(s.rolled(50, ""))
			s.awaitReady("web", 50)
			service := s.service("web", "web", corev1.ServiceExternalTrafficPolicyLocal)
			service.Spec.IPFamilyPolicy = ptr.To(corev1.IPFamilyPolicySingleStack)
			service.Annotations = map[string]string{annotations.Mode: string(to.mode)}
			s.create(service)
			vip := netip.AddrPortFrom(s.awaitAddressesOf(to.ip, "web", 1)[0], 80)
			if to.mode == lb.L2DSR {
				s.awaitNodes(vip)
			}
			k.eventually("every backend is up", allUp)
			s.rollUnderLoad(vip, load{held: 500, turn: time.Second, perSecond: 500})
		})
	}
}

// rolled returns the deployment "web" for rollUnderLoad.
func (s *scope) rolled(replicas int, node string) *appsv1.Deployment {
	d := s.deployment("web", "web", replicas, node)
	d.Spec.Template.Spec.TerminationGracePeriodSeconds = ptr.To[int64](15)
	return d
}

// load is the traffic under which pods are replaced: connections that are held open, each with a request a turn, and
// new ones a second.
type load struct {
	held, perSecond int
	turn            time.Duration
}

// rollUnderLoad replaces all pods of the deployment "web" while connections to a service are held open, and new ones
// are made. No new one may fail, and one that is open may break only when its pod's grace period has ended.
func (s *scope) rollUnderLoad(vip netip.AddrPort, load load) {
	t := s.t
	t.Helper()
	s.awaitAnswer(s.Lab.Clients[0], "tcp", vip)
	connections := holdAt(t, s.Lab.Clients[0], vip, load.held, load.turn)
	s.eventually("every connection was answered", func() bool { return connections.asked.Load() >= int64(load.held)*3 })
	refusals := watchICMP(t, s.Lab.Clients[1])
	made := open(t, s.Lab.Clients[1], vip, load.perSecond)
	made.progress(t, int64(load.perSecond))

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
	made.progress(t, int64(load.perSecond))
	failed := made.end()
	if errors := refusals(); len(failed) > 0 {
		t.Logf("ICMP errors that the client of new connections got: %v", errors)
	}
	s.checkRoll(connections.end(), failed, ends)
	t.Logf("%d new connections, %d requests over %d held ones", made.opened.Load(), connections.asked.Load(), load.held)
}

func (s *scope) checkRoll(broken []breakage, failed []error, ends map[string]time.Time) {
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

// watchICMP notes the ICMP errors that a host gets, until the function that it returns is called: who sends them, of
// what type, and for which packet.
func watchICMP(t *testing.T, host *lab.Host) func() []string {
	t.Helper()
	var mu sync.Mutex
	var seen []string
	capture := jeoule2e.StartCapture(t, host, host.Interface, func(packet gopacket.Packet) {
		icmp, isICMP := packet.Layer(layers.LayerTypeICMPv4).(*layers.ICMPv4)
		ip, isIP := packet.Layer(layers.LayerTypeIPv4).(*layers.IPv4)
		if !isICMP || !isIP || icmp.TypeCode.Type() == layers.ICMPv4TypeEchoReply {
			return
		}
		quoted := gopacket.NewPacket(icmp.Payload, layers.LayerTypeIPv4, gopacket.Default)
		about := "?"
		if inner, ok := quoted.Layer(layers.LayerTypeIPv4).(*layers.IPv4); ok {
			about = fmt.Sprintf("%s to %s TTL %d", inner.SrcIP, inner.DstIP, inner.TTL)
			if p := inner.Payload; len(p) >= 4 {
				about += fmt.Sprintf(" ports %d %d", int(p[0])<<8|int(p[1]), int(p[2])<<8|int(p[3]))
			}
		}
		mu.Lock()
		defer mu.Unlock()
		if len(seen) < 100 {
			seen = append(seen, fmt.Sprintf("%s %s %s of %s", time.Now().Format(time.StampMilli), ip.SrcIP,
				icmp.TypeCode, about))
		}
	})
	return func() []string {
		capture.Stop(t)
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(seen)
	}
}
