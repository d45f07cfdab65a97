// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/jeoul/jeoul/internal/balancer/api"
	"github.com/jeoul/jeoul/internal/balancer/config"
	"github.com/jeoul/jeoul/internal/balancer/kubernetes/model"
	"github.com/jeoul/jeoul/internal/balancer/kubernetes/pools"
	"github.com/jeoul/jeoul/internal/balancer/kubernetes/push"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/sources"
)

// The size of the cluster of BenchmarkScale.
const (
	manyServices = 5000
	manyPods     = 20
	manyNodes    = 50
)

// largeCluster has Services with an address each, whose pods are spread over nodes.
func largeCluster() (c model.Cluster) {
	for i := range manyNodes {
		c.Nodes = append(c.Nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node-%d", i)},
			Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP,
				Address: fmt.Sprintf("10.0.0.%d", i+1)}}}})
	}
	for i := range manyServices {
		s := web()
		s.Name, s.Spec.ExternalTrafficPolicy = fmt.Sprintf("web-%04d", i), corev1.ServiceExternalTrafficPolicyLocal
		s.Spec.HealthCheckNodePort = int32(30000 + i)
		s.Status.LoadBalancer.Ingress[0].IP = fmt.Sprintf("198.18.%d.%d", i/250, i%250+1)
		slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name + "-x",
			Labels: map[string]string{discoveryv1.LabelServiceName: s.Name}},
			AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: ptr.To("http"),
				Port: ptr.To(int32(8080)), Protocol: ptr.To(corev1.ProtocolTCP)}}}
		for j := range manyPods {
			slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{NodeName: &c.Nodes[(i+j)%manyNodes].Name,
				Addresses: []string{fmt.Sprintf("10.%d.%d.%d", 100+j, i/250, i%250+1)}})
		}
		c.Services, c.Slices = append(c.Services, s), append(c.Slices, slice)
	}
	return c
}

// sourced takes texts as a balancer's sources do, and puts nothing in force. It notes how long each took.
type sourced struct {
	*sources.Sources
	took time.Duration
	size int
}

func (s *sourced) Apply(ctx context.Context, source string, text []byte, dry bool) (*api.Change, error) {
	began := time.Now()
	value, err := sources.ReadYAML(text)
	if err != nil {
		return nil, err
	}
	done, err := s.Ask(ctx, sources.Request{At: sources.Place{Source: source}, Verb: sources.Put, Value: value,
		Text: text, Dry: dry})
	s.took, s.size = time.Since(began), len(text)
	return &api.Change{Generation: done.Generation}, err
}

func (s *sourced) Amend(ctx context.Context, source string, generation uint64, text []byte) (*api.Change, error) {
	began := time.Now()
	done, err := s.Sources.Amend(ctx, sources.Difference{Source: source, Text: text, If: func(at sources.Part) error {
		if at.Tag != sources.TagOf(generation) {
			return sources.ErrChanged
		}
		return nil
	}})
	s.took, s.size = time.Since(began), len(text)
	return &api.Change{Generation: done.Generation}, err
}

// newSourced returns one whose file has no service.
func newSourced(b *testing.B) *sourced {
	b.Helper()
	dir := b.TempDir()
	path := filepath.Join(dir, "jeoul.yaml")
	if err := os.WriteFile(path, []byte("interface: eth0\nservices: []\n"), 0o600); err != nil {
		b.Fatal(err)
	}
	opened, err := sources.Open(path, filepath.Join(dir, "store"))
	if err != nil {
		b.Fatal(err)
	}
	apply := func(_ context.Context, load func() (*config.Config, error)) error {
		_, err := load()
		return err
	}
	opened.Use(apply, apply)
	return &sourced{Sources: opened}
}

func cpuTime(b *testing.B) time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// BenchmarkScale is a change of one EndpointSlice of 5,000 with 20 endpoints each, from the picture of the cluster to
// the configuration that a balancer's sources have taken and stored, without its data plane and the API server. It says
// how much of it is the picture (build), the text (write) and the sources, the CPU time of all, how long the sources
// took with all of them at the start, and the memory in use.
func BenchmarkScale(b *testing.B) {
	c, balancer := largeCluster(), newSourced(b)
	all, err := pools.Parse("pools", []byte("pools: [{name: a, addresses: [198.18.0.0/16]}]"))
	if err != nil {
		b.Fatal(err)
	}
	settings := model.Settings{Class: model.DefaultClass, Mode: lb.L2DSR, Pools: all}
	pusher := &push.Pusher{Balancer: balancer, Source: "kubernetes"}
	var build, total, applied, used time.Duration
	picture := model.Build(c, settings, nil)
	if _, err := pusher.Push(b.Context(), picture.Services); err != nil {
		b.Fatal(err)
	}
	first := balancer.took
	for i := 0; b.Loop(); i++ {
		slice := c.Slices[i%manyServices].DeepCopy()
		slice.Endpoints = slices.Delete(slice.Endpoints, 0, 1)
		c.Slices[i%manyServices] = slice
		began, cpu := time.Now(), cpuTime(b)
		picture = model.Rebuild(c, settings, picture)
		build += time.Since(began)
		result, err := pusher.Push(b.Context(), picture.Services)
		if err != nil || len(result.Refused) > 0 {
			b.Fatalf("%v, refused %s", err, strings.Join(slices.Sorted(maps.Keys(result.Refused)), ", "))
		}
		total, applied, used = total+time.Since(began), applied+balancer.took, used+cpuTime(b)-cpu
	}
	perRun := func(d time.Duration) float64 { return d.Seconds() * 1000 / float64(b.N) }
	b.ReportMetric(perRun(build), "ms-build/op")
	b.ReportMetric(perRun(total-build-applied), "ms-write/op")
	b.ReportMetric(perRun(applied), "ms-sources/op")
	b.ReportMetric(perRun(used), "ms-cpu/op")
	b.ReportMetric(first.Seconds()*1000, "ms-first-sources")
	var memory runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&memory)
	b.ReportMetric(float64(memory.HeapAlloc)/(1<<20), "MiB-heap")
	b.ReportMetric(float64(balancer.size), "B-text")
}
