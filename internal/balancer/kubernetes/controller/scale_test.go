// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
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
	"github.com/jeoul/jeoul/internal/test/testenv"
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

// sourceBalancer takes texts as a balancer's sources do, and puts nothing in force. It notes how long each took.
type sourceBalancer struct {
	*sources.Sources
	took time.Duration
	size int
}

func (s *sourceBalancer) Apply(ctx context.Context, source string, text []byte, dry bool) (*api.Change, error) {
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

func (s *sourceBalancer) Amend(ctx context.Context, source string, generation uint64, text []byte) (*api.Change,
	error) {
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

func (s *sourceBalancer) SourceServices(_ context.Context, source string) (names []string, generation uint64,
	err error) {
	for _, service := range s.Config().ServicesOf(source) {
		names = append(names, service.Name)
	}
	for _, f := range s.Heads() {
		if f.Name == source {
			generation = f.Generation
		}
	}
	return names, generation, nil
}

// newSourceBalancer returns a balancer whose file has no service.
func newSourceBalancer(b *testing.B) *sourceBalancer {
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
	return &sourceBalancer{Sources: opened}
}

func cpuTime(b *testing.B) time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// realBalancer is a balancer that runs in a namespace, beside another that has the addresses of the nodes.
type realBalancer struct {
	*api.Client
	process *os.Process
	took    time.Duration
	size    int
}

func (s *realBalancer) Apply(ctx context.Context, source string, text []byte, dry bool) (*api.Change, error) {
	began := time.Now()
	done, err := s.Client.Apply(ctx, source, text, dry)
	s.took, s.size = time.Since(began), len(text)
	return done, err
}

func (s *realBalancer) Amend(ctx context.Context, source string, generation uint64, text []byte) (*api.Change, error) {
	began := time.Now()
	done, err := s.Client.Amend(ctx, source, generation, text)
	s.took, s.size = time.Since(began), len(text)
	return done, err
}

// newRealBalancer starts one, whose log goes to a file.
func newRealBalancer(b *testing.B) *realBalancer {
	b.Helper()
	program := os.Getenv("JEOUL_TEST_BINARY")
	if program == "" {
		b.Skip("JEOUL_TEST_BINARY names no program: `make bench-kubernetes` does")
	}
	testenv.Root(b)
	nodes, own, dir := testenv.End{Namespace: testenv.Namespace(b), Name: "nodes"}, testenv.End{
		Namespace: testenv.Namespace(b), Name: "own",
		Addresses: []netip.Prefix{netip.MustParsePrefix("10.0.0.254/16")}}, b.TempDir()
	for i := range manyNodes {
		nodes.Addresses = append(nodes.Addresses, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)}), 16))
	}
	testenv.Veth(b, own, nodes)
	s := &realBalancer{Client: api.NewClient(filepath.Join(dir, "s"))}
	file := filepath.Join(dir, "jeoul.yaml")
	text := fmt.Sprintf("interface: own\nsocket: %s\nservices: []\n", filepath.Join(dir, "s"))
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		b.Fatal(err)
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		b.Fatal(err)
	}
	cmd := exec.Command(program, "run", "-c", file, "--state-dir", filepath.Join(dir, "state"), "--store-dir",
		filepath.Join(dir, "store"))
	cmd.Stdout, cmd.Stderr = log, log
	testenv.In(b, own.Namespace, cmd.Start)
	s.process = cmd.Process
	b.Cleanup(func() {
		_ = s.process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		log.Close()
	})
	testenv.Eventually(b, testenv.WaitLimit, "the balancer answers", func() bool {
		_, err := s.Status(b.Context())
		return err == nil
	})
	return s
}

// usage returns the CPU time and the memory of the balancer's process.
func (s *realBalancer) usage(b *testing.B) (cpu time.Duration, memory int) {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.process.Pid))
	if err != nil {
		b.Fatal(err)
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+2:]))
	ticks := 0
	for _, at := range []int{11, 12} {
		n, err := strconv.Atoi(fields[at])
		if err != nil {
			b.Fatal(err)
		}
		ticks += n
	}
	if memory, err = strconv.Atoi(fields[21]); err != nil {
		b.Fatal(err)
	}
	return time.Duration(ticks) * 10 * time.Millisecond, memory * os.Getpagesize()
}

// BenchmarkScale is a change of one EndpointSlice of 5,000 with 20 endpoints each, from the watched objects to the
// configuration that a balancer's sources have taken and stored, without its data plane and the API server. It reports
// how much of the time the model (build), the text (write) and the sources take, the CPU time of all, how long the
// sources took with all slices at the start, and the memory in use.
func BenchmarkScale(b *testing.B) {
	c, balancer := largeCluster(), newSourceBalancer(b)
	all, err := pools.Parse("pools", []byte("pools: [{name: a, addresses: [198.18.0.0/16]}]"))
	if err != nil {
		b.Fatal(err)
	}
	settings := model.Settings{Class: model.DefaultClass, Mode: lb.L2DSR, Pools: all}
	pusher := &push.Pusher{Balancer: balancer, Source: "kubernetes"}
	var build, total, applied, used time.Duration
	result := model.Build(c, settings, nil)
	if _, err := pusher.Push(b.Context(), result.Services); err != nil {
		b.Fatal(err)
	}
	first := balancer.took
	for i := 0; b.Loop(); i++ {
		slice := c.Slices[i%manyServices].DeepCopy()
		slice.Endpoints = slices.Delete(slice.Endpoints, 0, 1)
		c.Slices[i%manyServices] = slice
		began, cpu := time.Now(), cpuTime(b)
		result = model.Rebuild(c, settings, result)
		build += time.Since(began)
		result, err := pusher.Push(b.Context(), result.Services)
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

// awaitIdle waits until the balancer has nothing more to do for the services that it took.
func (s *realBalancer) awaitIdle(b *testing.B) {
	b.Helper()
	before, _ := s.usage(b)
	since := time.Now()
	testenv.Eventually(b, testenv.WaitLimit, "the balancer is at rest", func() bool {
		if time.Since(since) < time.Second {
			return false
		}
		now, _ := s.usage(b)
		used := now - before
		before, since = now, time.Now()
		return used < 50*time.Millisecond
	})
}

// measureAsking returns the CPU time in which the balancer tells how one service is.
func (s *realBalancer) measureAsking(b *testing.B) time.Duration {
	b.Helper()
	const times = 20
	before, _ := s.usage(b)
	for i := range times {
		list, err := s.Services(b.Context(), fmt.Sprintf("shop:web-%04d:http", i))
		if err != nil || len(list) != 1 {
			b.Fatalf("%d services, %v", len(list), err)
		}
	}
	after, _ := s.usage(b)
	return (after - before) / times
}

// BenchmarkServed is BenchmarkScale with a balancer that runs, over its socket, up to its data plane. It reports the
// times of a change, the CPU time of the balancer and of this process for each, the balancer's memory, and how long all
// services took at the start, of CPU time too; and the balancer's CPU time for saying how one service is.
func BenchmarkServed(b *testing.B) {
	for _, check := range []string{"none", "icmp"} {
		for _, together := range []int{1, 100} {
			b.Run(fmt.Sprintf("%s/%d-at-once", check, together), func(b *testing.B) {
				benchmarkServed(b, check,
					together)
			})
		}
	}
}

// benchmarkServed changes so many services with each hand-over, whose nodes are checked, icmp: by pings.
func benchmarkServed(b *testing.B, check string, together int) {
	c, balancer := largeCluster(), newRealBalancer(b)
	for _, s := range c.Services {
		s.Annotations = map[string]string{"jeoul.io/check": check}
	}
	all, err := pools.Parse("pools", []byte("pools: [{name: a, addresses: [198.18.0.0/16]}]"))
	if err != nil {
		b.Fatal(err)
	}
	settings := model.Settings{Class: model.DefaultClass, Mode: lb.L2DSR, Pools: all}
	pusher := &push.Pusher{Balancer: balancer, Source: "kubernetes"}
	_, empty := balancer.usage(b)
	began := time.Now()
	result := model.Build(c, settings, nil)
	if _, err := pusher.Push(b.Context(), result.Services); err != nil {
		b.Fatal(err)
	}
	first := time.Since(began)
	balancer.awaitIdle(b)
	before, _ := balancer.usage(b)
	own := cpuTime(b)
	var took []time.Duration
	for i := 0; b.Loop(); i += together {
		for n := i; n < i+together; n++ {
			slice := c.Slices[n%manyServices].DeepCopy()
			slice.Endpoints = slices.Delete(slice.Endpoints, 0, 1)
			c.Slices[n%manyServices] = slice
		}
		at := time.Now()
		result = model.Rebuild(c, settings, result)
		result, err := pusher.Push(b.Context(), result.Services)
		if err != nil || len(result.Refused) > 0 {
			b.Fatalf("%v, refused %s", err, strings.Join(slices.Sorted(maps.Keys(result.Refused)), ", "))
		}
		took = append(took, time.Since(at))
	}
	after, memory := balancer.usage(b)
	own = cpuTime(b) - own
	asked := balancer.measureAsking(b)
	slices.Sort(took)
	for _, m := range []struct {
		of   time.Duration
		unit string
	}{{took[len(took)/2], "ms-median"}, {took[len(took)*99/100], "ms-p99"}, {first, "ms-first"},
		{before, "ms-first-cpu"}, {(after - before) / time.Duration(b.N), "ms-balancer-cpu/op"},
		{own / time.Duration(b.N), "ms-own-cpu/op"}, {asked, "ms-balancer-cpu/ask"}} {
		b.ReportMetric(m.of.Seconds()*1000, m.unit)
	}
	b.ReportMetric(float64(memory-empty)/(1<<20), "MiB-balancer-grown")
}
