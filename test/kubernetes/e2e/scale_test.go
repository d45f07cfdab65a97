// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/jeoul/jeoul/internal/balancer/api"
	"github.com/jeoul/jeoul/internal/balancer/kubernetes/annotations"
	"github.com/jeoul/jeoul/internal/balancer/kubernetes/model"
	"github.com/jeoul/jeoul/internal/test/testenv"
	"github.com/jeoul/jeoul/internal/weigh/lab"
	"github.com/jeoul/jeoul/test/kubernetes/cluster"
)

// The cluster of TestScaleMeasured. Its nodes are addresses of one host, which answers their pings.
const (
	scaleNamespace = "scale"
	scaleServices  = 5000
	scaleEndpoints = 20
	scaleNodes     = 50
	// scaleRate is the number of changes of EndpointSlices a second, for scaleTime, by scaleWriters at once.
	scaleRate    = 100
	scaleTime    = time.Minute
	scaleWriters = 20
	// scaleFollowed says that every so many-th change is followed into the data plane.
	scaleFollowed = 25
	// scaleSlowest is the number of the slowest changes that are listed.
	scaleSlowest = 8
	// scalePoll is the interval at which the balancer is asked about the changes that are followed, and so what a time
	// may be too long by.
	scalePoll = 50 * time.Millisecond
	// scaleTimeout bounds the wait for all services, and for one change.
	scaleTimeout = 5 * time.Minute
)

// TestScaleMeasured measures a balancer and the `jeoul-kubernetes` beside it while a real API server has 5,000 Services
// of 20 endpoints each: how long a start takes until all are served, how long one of 100 changes of EndpointSlices a
// second takes into the data plane, and the memory and CPU time of both processes. It judges only that all arrives.
func TestScaleMeasured(t *testing.T) {
	c := newClusterOf(t, "bench-kubernetes", cluster.Options{NodeGrace: time.Hour, NodePorts: "20000-32767"})
	m := &scaleRun{t: t, c: c}
	m.addNodes()
	makeNamespace(t, c, scaleNamespace)
	makeNamespace(t, c, "jeoul-system")
	m.addServices()
	m.start("first start, which assigns 5,000 addresses")
	m.stop()
	m.start("cold start of both, the addresses assigned")
	m.settle()
	m.changes()
	m.report("jeoul", m.controller.daemon)
	m.report("jeoul-kubernetes", m.controller.process)
	m.stop()
}

// scaleRun is a run of TestScaleMeasured.
type scaleRun struct {
	t          *testing.T
	c          *cluster.Cluster
	controller *controller
	// slices are those of the services, as last written. Each belongs to one writer.
	slices []*discoveryv1.EndpointSlice

	mu sync.Mutex
	// following has the changes that have not arrived yet, by the service; arrived those that have.
	following map[string]followed
	arrived   []followed
}

// followed is a change whose arrival in the data plane is awaited.
type followed struct {
	// began is when the API server was asked for it, and answered how long that took.
	began    time.Time
	answered time.Duration
	// backends is the number of backends of the service after it.
	backends int
	// took is the time from began until it was in the data plane.
	took time.Duration
}

// scaleNode returns the name and the address of a node, from 0.
func scaleNode(i int) (string, netip.Addr) {
	return fmt.Sprintf("node-%02d", i), netip.AddrFrom4([4]byte{198, 18, 4, byte(i + 1)})
}

// addNodes makes the nodes, all of them ready.
func (m *scaleRun) addNodes() {
	m.t.Helper()
	host := m.c.Control
	for i := range scaleNodes {
		name, addr := scaleNode(i)
		err := host.Do(func() error {
			link, err := netlink.LinkByName(host.Interface)
			if err != nil {
				return err
			}
			whole := &net.IPNet{IP: addr.AsSlice(), Mask: net.CIDRMask(32, 32)}
			return netlink.AddrAdd(link, &netlink.Addr{IPNet: whole})
		})
		if err != nil {
			m.t.Fatalf("add %s to %s: %v", addr, host.Name, err)
		}
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{
			Addresses:  []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: addr.String()}},
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}}
		if _, err := m.c.Client.CoreV1().Nodes().Create(m.t.Context(), node, metav1.CreateOptions{}); err != nil {
			m.t.Fatal(err)
		}
	}
}

// addServices makes the Services, and their EndpointSlices as a controller of this test's own.
func (m *scaleRun) addServices() {
	m.t.Helper()
	m.slices = make([]*discoveryv1.EndpointSlice, scaleServices)
	m.inParallel(func(writer int) error {
		for i := writer; i < scaleServices; i += scaleWriters {
			name := fmt.Sprintf("web-%04d", i)
			service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name,
				// Pings ask each node once for all services.
				Annotations: map[string]string{annotations.Check: "icmp"}},
				Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer,
					LoadBalancerClass:             ptr.To(model.DefaultClass),
					ExternalTrafficPolicy:         corev1.ServiceExternalTrafficPolicyLocal,
					AllocateLoadBalancerNodePorts: ptr.To(false),
					Ports:                         []corev1.ServicePort{{Name: "http", Port: 80}}}}
			_, err := m.c.Client.CoreV1().Services(scaleNamespace).Create(m.t.Context(), service,
				metav1.CreateOptions{})
			if err != nil {
				return fmt.Errorf("create Service %s: %w", name, err)
			}
			slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: name + "-x",
				Labels: map[string]string{discoveryv1.LabelServiceName: name, discoveryv1.LabelManagedBy: "scale-test"}},
				AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: ptr.To("http"),
					Port: ptr.To[int32](8080), Protocol: ptr.To(corev1.ProtocolTCP)}}}
			for j := range scaleEndpoints {
				slice.Endpoints = append(slice.Endpoints, scaleEndpoint(i, j))
			}
			m.slices[i], err = m.c.Client.DiscoveryV1().EndpointSlices(scaleNamespace).Create(m.t.Context(), slice,
				metav1.CreateOptions{})
			if err != nil {
				return fmt.Errorf("create EndpointSlice of %s: %w", name, err)
			}
		}
		return nil
	})
}

// scaleEndpoint returns endpoint j of service i. Each endpoint of a service is on another node.
func scaleEndpoint(i, j int) discoveryv1.Endpoint {
	node, _ := scaleNode((i + j) % scaleNodes)
	return discoveryv1.Endpoint{NodeName: &node, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)},
		Addresses: []string{fmt.Sprintf("10.%d.%d.%d", 100+j, i/250, i%250+1)}}
}

// inParallel runs the writers, and waits for all.
func (m *scaleRun) inParallel(do func(writer int) error) {
	m.t.Helper()
	errs := make(chan error, scaleWriters)
	for writer := range scaleWriters {
		go func() { errs <- do(writer) }()
	}
	for range scaleWriters {
		if err := <-errs; err != nil {
			m.t.Error(err)
		}
	}
	if m.t.Failed() {
		m.t.FailNow()
	}
}

// start starts a balancer that knows nothing yet and a jeoul-kubernetes, and logs how long both took until the balancer
// has all services in its data plane.
func (m *scaleRun) start(what string) {
	m.t.Helper()
	began := time.Now()
	b := startBalancer(m.t, m.c.Lab.Balancer)
	pools := b.path("pools.yaml")
	err := os.WriteFile(pools, []byte("pools: [{name: scale, addresses: [10.200.0.0/16]}]\n"), 0o644)
	if err != nil {
		m.t.Fatal(err)
	}
	m.controller = &controller{balancer: b, arguments: []string{"--kubeconfig", m.c.Kubeconfig, "--socket", b.socket(),
		"--pools", pools, "--identity", "balancer-1"}}
	m.controller.run()
	client, got := api.NewClient(b.socket()), 0
	testenv.Eventually(m.t, scaleTimeout, "all services are in the data plane", func() bool {
		list, err := client.Sources(m.t.Context())
		if err != nil {
			return false
		}
		got = 0
		for _, source := range list {
			got += source.Services
		}
		return got == scaleServices
	})
	m.t.Logf("%s: all of %d Services after %.1f s", what, got, time.Since(began).Seconds())
	m.logUse(time.Since(began))
}

// settle waits until both programs have done what follows a start, such as the first round of checks.
func (m *scaleRun) settle() {
	m.t.Helper()
	const interval = time.Second
	used := func() (sum time.Duration) {
		for _, process := range m.processes() {
			cpu, err := process.CPUTime()
			if err != nil {
				m.t.Fatal(err)
			}
			sum += cpu
		}
		return sum
	}
	last, at, quiet := used(), time.Now(), 0
	testenv.Eventually(m.t, scaleTimeout, "both programs have settled", func() bool {
		elapsed := time.Since(at)
		if elapsed < interval {
			return false
		}
		now := used()
		if quiet++; now-last > elapsed/5 {
			quiet = 0
		}
		last, at = now, time.Now()
		return quiet >= 3 // seconds on end, longer than a balancer waits before it returns memory to the kernel
	})
}

// stop ends both programs.
func (m *scaleRun) stop() {
	m.controller.process.Stop(context.WithoutCancel(m.t.Context()))
	m.controller.daemon.Stop(context.WithoutCancel(m.t.Context()))
}

// logUse logs the CPU time of both programs since their start.
func (m *scaleRun) logUse(since time.Duration) {
	m.t.Helper()
	for name, process := range m.processes() {
		used, err := process.CPUTime()
		if err != nil {
			m.t.Fatal(err)
		}
		m.t.Logf("  CPU time of %s: %.1f s in %.1f s", name, used.Seconds(), since.Seconds())
	}
}

func (m *scaleRun) processes() map[string]*lab.Process {
	return map[string]*lab.Process{"jeoul": m.controller.daemon, "jeoul-kubernetes": m.controller.process}
}

// changes changes EndpointSlices at a rate, and logs how long those that were followed took from before the API server
// was asked until the balancer's data plane had them.
func (m *scaleRun) changes() {
	m.t.Helper()
	before := map[string]time.Duration{}
	for name, process := range m.processes() {
		before[name], _ = process.CPUTime()
	}
	began := time.Now()
	m.following = map[string]followed{}
	ctx, cancel := context.WithTimeout(m.t.Context(), scaleTimeout)
	defer cancel()
	wroteAll, arrived := make(chan struct{}), make(chan error, 1)
	go func() { arrived <- m.follow(ctx, wroteAll) }()
	m.inParallel(func(writer int) error {
		for n := writer; n < scaleRate*int(scaleTime/time.Second); n += scaleWriters {
			// Each change has its time, whether or not those before it were late.
			if err := sleepUntil(ctx, began.Add(time.Duration(n)*time.Second/scaleRate)); err != nil {
				return err
			}
			at := time.Now()
			if err := m.change(n % scaleServices); err != nil {
				return err
			}
			if n%scaleFollowed != 0 {
				continue
			}
			if err := m.noteWritten(n%scaleServices, at); err != nil {
				return err
			}
		}
		return nil
	})
	wrote := time.Since(began)
	close(wroteAll)
	if err := <-arrived; err != nil {
		m.t.Fatal(err)
	}
	m.t.Logf("%d changes in %.1f s, %d of them followed", scaleRate*int(scaleTime/time.Second), wrote.Seconds(),
		len(m.arrived))
	m.logTimes("in the data plane after", func(f followed) time.Duration { return f.took })
	m.logTimes("  of it until the API server had answered", func(f followed) time.Duration { return f.answered })
	slices.SortFunc(m.arrived, func(a, b followed) int { return cmp.Compare(b.took, a.took) })
	for _, f := range m.arrived[:scaleSlowest] {
		m.t.Logf("  among the slowest: begun after %.1f s, answered after %d ms, in the data plane after %d ms",
			f.began.Sub(began).Seconds(), f.answered.Milliseconds(), f.took.Milliseconds())
	}
	for name, process := range m.processes() {
		now, err := process.CPUTime()
		if err != nil {
			m.t.Fatal(err)
		}
		m.t.Logf("  CPU time of %s: %.0f %% of a core", name, 100*(now-before[name]).Seconds()/wrote.Seconds())
	}
}

// logTimes logs a time of the changes that were followed.
func (m *scaleRun) logTimes(what string, of func(followed) time.Duration) {
	m.t.Helper()
	times := make([]time.Duration, len(m.arrived))
	for i, f := range m.arrived {
		times[i] = of(f)
	}
	slices.Sort(times)
	m.t.Logf("%s: median %d ms, p99 %d ms, at most %d ms", what, times[len(times)/2].Milliseconds(),
		times[len(times)*99/100].Milliseconds(), times[len(times)-1].Milliseconds())
}

// change takes the first endpoint of a service out, or puts it back.
func (m *scaleRun) change(i int) error {
	slice := m.slices[i].DeepCopy()
	if len(slice.Endpoints) == scaleEndpoints {
		slice.Endpoints = slice.Endpoints[1:]
	} else {
		slice.Endpoints = slices.Insert(slice.Endpoints, 0, scaleEndpoint(i, 0))
	}
	written, err := m.c.Client.DiscoveryV1().EndpointSlices(scaleNamespace).Update(m.t.Context(), slice,
		metav1.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("change EndpointSlice %s: %w", slice.Name, err)
	}
	m.slices[i] = written
	return nil
}

// noteWritten has a change followed, which the API server was asked for at a time, and has made.
func (m *scaleRun) noteWritten(i int, began time.Time) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	name := scaleService(i)
	if before, ok := m.following[name]; ok {
		return fmt.Errorf("the change of %s before has not arrived after %s", name, time.Since(before.began))
	}
	m.following[name] = followed{began: began, answered: time.Since(began), backends: len(m.slices[i].Endpoints)}
	return nil
}

// scaleService returns the balancer's name of a service.
func scaleService(i int) string { return fmt.Sprintf("%s:web-%04d:http", scaleNamespace, i) }

// follow notes how long the changes that are followed take, until all are written and have arrived. It asks for all of
// them at once, so that asking costs the balancer the same however many there are.
func (m *scaleRun) follow(ctx context.Context, wroteAll <-chan struct{}) error {
	client := api.NewClient(m.controller.socket())
	for ended := false; ; {
		if err := sleepUntil(ctx, time.Now().Add(scalePoll)); err != nil {
			return fmt.Errorf("%d changes have not arrived: %w", len(m.following), err)
		}
		m.mu.Lock()
		names := slices.Collect(maps.Keys(m.following))
		m.mu.Unlock()
		if len(names) == 0 {
			if ended {
				return nil
			}
			select {
			case <-wroteAll:
				ended = true
			default:
			}
			continue
		}
		list, err := client.Services(ctx, names...)
		if err != nil {
			continue // the next time; ctx bounds it
		}
		m.mu.Lock()
		for _, service := range list {
			if f, ok := m.following[service.Name]; ok && len(service.Backends) == f.backends {
				f.took = time.Since(f.began)
				m.arrived = append(m.arrived, f)
				delete(m.following, service.Name)
			}
		}
		m.mu.Unlock()
	}
}

// report logs the memory of a process.
func (m *scaleRun) report(name string, process *lab.Process) {
	m.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", process.PID()))
	if err != nil {
		m.t.Fatal(err)
	}
	var parts []string
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(line, ":")
		kib, err := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(value), " kB"))
		if meaning := map[string]string{"VmHWM": "at most", "VmRSS": "now", "RssAnon": "of it its own"}[key]; err == nil &&
			meaning != "" {
			parts = append(parts, fmt.Sprintf("%s %d MiB", meaning, kib>>10))
		}
	}
	m.t.Logf("memory of %s: %s", name, strings.Join(parts, ", "))
}

// sleepUntil waits for a time; an error means that ctx ended before.
func sleepUntil(ctx context.Context, at time.Time) error {
	timer := time.NewTimer(time.Until(at))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
