// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/jeoul/jeoul/internal/balancer/kubernetes/model"
	"github.com/jeoul/jeoul/internal/test/testenv"
	"github.com/jeoul/jeoul/test/kubernetes/cluster"
	"github.com/jeoul/jeoul/test/kubernetes/podserver"
)

// scope is a namespace of a cluster, which goes with its test.
type scope struct {
	*cluster.Cluster
	t    *testing.T
	name string
	// vip4, the one behind it, and vip6 are for services that get their addresses by hand. No other test of this
	// run has them: kube-proxy drops those of a deleted service a second or so later.
	vip4, vip6 netip.Addr
}

// scopes counts the scopes of this run.
var scopes atomic.Uint32

// newScope makes a namespace.
func newScope(t *testing.T, c *cluster.Cluster) *scope {
	t.Helper()
	made, err := c.Client.CoreV1().Namespaces().Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	n := byte(2 * scopes.Add(1)) // 198.18.0.102 and up
	s := &scope{Cluster: c, t: t, name: made.Name, vip4: netip.AddrFrom4([4]byte{198, 18, 0, 100 + n}),
		vip6: netip.MustParseAddr(fmt.Sprintf("2001:2::%d", 100+uint(n)))}
	t.Cleanup(s.remove)
	return s
}

// remove deletes the namespace. Pods and Services are deleted first: the namespace's controller gives pods their whole
// grace period, and deletes Services after them, whose addresses and backends the next test would meet.
func (s *scope) remove() {
	ctx := context.Background()
	services := s.Client.CoreV1().Services(s.name)
	list, err := services.List(ctx, metav1.ListOptions{})
	if err != nil {
		s.t.Errorf("list the Services of namespace %s: %v", s.name, err)
		return
	}
	for _, service := range list.Items {
		if err := services.Delete(ctx, service.Name, metav1.DeleteOptions{}); err != nil {
			s.t.Errorf("delete Service %s/%s: %v", s.name, service.Name, err)
		}
	}
	err = s.Client.CoreV1().Pods(s.name).DeleteCollection(ctx,
		metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](1)}, metav1.ListOptions{})
	if err == nil {
		err = s.Client.CoreV1().Namespaces().Delete(ctx, s.name, metav1.DeleteOptions{})
	}
	if err != nil {
		s.t.Errorf("delete namespace %s: %v", s.name, err)
	}
}

// deployment returns that of pod servers with a name and a number of pods, on one node, or on any if that is empty.
func (s *scope) deployment(name, app string, replicas int, node string) *appsv1.Deployment {
	labels := map[string]string{"app": app, "deployment": name}
	spec := corev1.PodSpec{
		TerminationGracePeriodSeconds: ptr.To[int64](30),
		Containers: []corev1.Container{{Name: "server", Image: cluster.PodServerImage,
			Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: podserver.DefaultPort}},
			// A pod that is slow on a busy core is not to be taken out of its service.
			ReadinessProbe: &corev1.Probe{PeriodSeconds: 1, TimeoutSeconds: 30, ProbeHandler: corev1.ProbeHandler{
				HTTPGet: &corev1.HTTPGetAction{Path: "/readyz", Port: intstr.FromString("http")}}}}},
	}
	if node != "" {
		spec.NodeSelector = map[string]string{corev1.LabelHostname: node}
	}
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: s.name},
		Spec: appsv1.DeploymentSpec{Replicas: ptr.To(int32(replicas)),
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec}}}
}

// deploy makes deployments.
func (s *scope) deploy(deployments ...*appsv1.Deployment) {
	s.t.Helper()
	for _, d := range deployments {
		if _, err := s.Client.AppsV1().Deployments(s.name).Create(s.t.Context(), d,
			metav1.CreateOptions{}); err != nil {
			s.t.Fatal(err)
		}
	}
}

// spread deploys pods of an app, so many on each node, and waits until all are ready.
func (s *scope) spread(app string, replicas ...int) {
	s.t.Helper()
	total := 0
	for i, n := range replicas {
		total += n
		if n > 0 {
			s.deploy(s.deployment(fmt.Sprintf("%s-%d", app, i+1), app, n, s.Nodes[i].Name))
		}
	}
	s.awaitReady(app, total)
}

// awaitReady waits until an app has so many ready pods.
func (s *scope) awaitReady(app string, n int) {
	s.t.Helper()
	s.eventually(fmt.Sprintf("%d pods of %s are ready", n, app), func() bool {
		return len(s.readyPods(app)) == n
	})
}

func (s *scope) pods(app string) []corev1.Pod {
	list, err := s.Client.CoreV1().Pods(s.name).List(s.t.Context(), metav1.ListOptions{LabelSelector: "app=" + app})
	if err != nil {
		return nil // the next look tells
	}
	return list.Items
}

// readyPods returns the pods of an app that are ready and do not end.
func (s *scope) readyPods(app string) []corev1.Pod {
	return slices.DeleteFunc(s.pods(app), func(pod corev1.Pod) bool {
		return pod.DeletionTimestamp != nil || !slices.ContainsFunc(pod.Status.Conditions,
			func(c corev1.PodCondition) bool {
				return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
			})
	})
}

// endpoints returns the endpoints of a service in all its slices.
func (s *scope) endpoints(service string) (all []discoveryv1.Endpoint) {
	list, err := s.Client.DiscoveryV1().EndpointSlices(s.name).List(s.t.Context(),
		metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + service})
	if err != nil {
		return nil
	}
	for _, slice := range list.Items {
		if slice.AddressType == discoveryv1.AddressTypeIPv4 {
			all = append(all, slice.Endpoints...)
		}
	}
	return all
}

func (s *scope) eventually(what string, ok func() bool) {
	s.t.Helper()
	testenv.Eventually(s.t, waitTimeout, what, ok)
}

// service returns a load balancer of ours for an app: port 80 for the pods' port, by TCP and UDP, both families.
func (s *scope) service(name, app string, policy corev1.ServiceExternalTrafficPolicy) *corev1.Service {
	port := func(name string, protocol corev1.Protocol) corev1.ServicePort {
		return corev1.ServicePort{Name: name, Port: 80, Protocol: protocol,
			TargetPort: intstr.FromInt32(podserver.DefaultPort)}
	}
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: s.name},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Selector: map[string]string{"app": app},
			LoadBalancerClass: ptr.To(model.DefaultClass), ExternalTrafficPolicy: policy,
			IPFamilyPolicy: ptr.To(corev1.IPFamilyPolicyRequireDualStack),
			Ports: []corev1.ServicePort{port("http", corev1.ProtocolTCP),
				port("datagrams", corev1.ProtocolUDP)}}}
}

// create makes a service, and returns it as it was allocated.
func (s *scope) create(service *corev1.Service) *corev1.Service {
	s.t.Helper()
	made, err := s.Client.CoreV1().Services(s.name).Create(s.t.Context(), service, metav1.CreateOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	return made
}

// assign writes the status of a service by hand, as a balancer's controller does.
func (s *scope) assign(service *corev1.Service, addresses ...string) {
	s.t.Helper()
	service = service.DeepCopy()
	service.Status.LoadBalancer.Ingress = nil
	for _, address := range addresses {
		service.Status.LoadBalancer.Ingress = append(service.Status.LoadBalancer.Ingress,
			corev1.LoadBalancerIngress{IP: address, IPMode: ptr.To(corev1.LoadBalancerIPModeVIP)})
	}
	_, err := s.Client.CoreV1().Services(s.name).UpdateStatus(s.t.Context(), service, metav1.UpdateOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
}
