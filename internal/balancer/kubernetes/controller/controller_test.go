// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/jeoul/jeoul/internal/balancer/api"
	"github.com/jeoul/jeoul/internal/balancer/kubernetes/apiclock"
	"github.com/jeoul/jeoul/internal/balancer/kubernetes/model"
	"github.com/jeoul/jeoul/internal/balancer/kubernetes/pools"
	"github.com/jeoul/jeoul/internal/balancer/kubernetes/push"
	"github.com/jeoul/jeoul/internal/balancer/kubernetes/watch"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
)

// fakeBalancer keeps the last text that it was handed.
type fakeBalancer struct {
	mu         sync.Mutex
	text       string
	generation uint64
	// down is the error of each request; nil: it answers.
	down error
	// amends: it supports differences, and names are the services that it has of the source.
	amends bool
	names  []string
}

func (b *fakeBalancer) Apply(_ context.Context, _ string, text []byte, _ bool) (*api.Change, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.down != nil {
		return nil, b.down
	}
	b.text = string(text)
	b.generation++
	return &api.Change{Generation: b.generation}, nil
}

func (b *fakeBalancer) SourceServices(context.Context, string) ([]string, uint64, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.names, b.generation, b.down
}

// Amend answers as a balancer of an earlier version, which is handed everything, unless it supports differences.
func (b *fakeBalancer) Amend(ctx context.Context, source string, _ uint64, text []byte) (*api.Change, error) {
	if b.amends {
		return b.Apply(ctx, source, text, false)
	}
	return nil, &api.Problem{Status: http.StatusNotFound}
}

func (b *fakeBalancer) has() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text
}

// started returns a controller that follows a cluster of one Service, without a Lease.
func started(t *testing.T, client *fake.Clientset, b *fakeBalancer) *Controller {
	t.Helper()
	return startedWith(t, client, b, func(*Controller) {})
}

// startedWith is started with something changed before it runs.
func startedWith(t *testing.T, client *fake.Clientset, b *fakeBalancer, change func(*Controller)) *Controller {
	t.Helper()
	watcher, err := watch.New(client, "")
	if err != nil {
		t.Fatal(err)
	}
	c := New(Options{Client: client, Watcher: watcher, Settings: model.Settings{Class: model.DefaultClass,
		Mode: lb.L2DSR},
		Pools: func() ([]pools.Pool, error) {
			return pools.Parse("pools", []byte("pools: [{name: a, addresses: [192.0.2.0/28]}]"))
		},
		Generation: func(context.Context, string) (uint64, error) {
			b.mu.Lock()
			defer b.mu.Unlock()
			return b.generation, b.down
		},
		Unreached: func(context.Context) ([]ops.ServiceBackend, error) { return nil, nil },
		Skew:      func() apiclock.Skew { return apiclock.Skew{} },
		Pusher:    &push.Pusher{Balancer: b, Source: "kubernetes"}, Log: slog.New(slog.DiscardHandler)})
	change(c)
	var running sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	running.Go(func() { watcher.Run(ctx) })
	running.Go(func() { c.run(ctx) })
	running.Go(func() { c.followUnreached(ctx) })
	t.Cleanup(func() { stop(); running.Wait() })
	return c
}

func web() *corev1.Service {
	class := model.DefaultClass
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, LoadBalancerClass: &class,
			ClusterIP: "10.96.0.1",
			Ports:     []corev1.ServicePort{{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP}}},
		Status: corev1.ServiceStatus{LoadBalancer: corev1.LoadBalancerStatus{
			Ingress: []corev1.LoadBalancerIngress{{IP: "192.0.2.1"}},
		}}}
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !holds(); {
		if time.Now().After(end) {
			t.Fatalf("not within a minute: %s", what)
		}
		<-time.After(10 * time.Millisecond)
	}
}

// TestFollow: a Service of the cluster comes to the balancer, and goes with it.
func TestFollow(t *testing.T) {
	client, b := fake.NewClientset(web()), &fakeBalancer{}
	c := started(t, client, b)
	eventually(t, "the balancer has the Service", func() bool { return strings.Contains(b.has(), "shop:web:http") })
	eventually(t, "it is ready", func() bool { return c.Health().Ready() })
	if err := client.CoreV1().Services("shop").Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the Service is gone", func() bool { return b.has() == "services: []\n" })
}

// TestLostSource: a balancer that has lost the services gets them again, though the cluster is as it was.
func TestLostSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, b := fake.NewClientset(web()), &fakeBalancer{}
		started(t, client, b)
		eventually(t, "the balancer has the Service", func() bool { return strings.Contains(b.has(), "shop:web:http") })
		b.mu.Lock()
		b.text, b.generation = "", 0
		b.mu.Unlock()
		eventually(t, "the balancer has it again", func() bool { return strings.Contains(b.has(), "shop:web:http") })
	})
}

// TestFollowWithoutAPIServer: where the API server does not list all its objects, the balancer is handed nothing, keeps
// its services, and /readyz says why.
func TestFollowWithoutAPIServer(t *testing.T) {
	client, b := fake.NewClientset(web()), &fakeBalancer{text: "what it had"}
	client.PrependReactor("list", "endpointslices", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("forbidden")
	})
	c := started(t, client, b)
	c.opt.Watcher.States()
	answer := func() *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		c.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/readyz", nil))
		return w
	}
	eventually(t, "/readyz says that it is stale", func() bool {
		w := answer()
		return w.Code == http.StatusServiceUnavailable &&
			strings.Contains(w.Body.String(), `"endpointslices":{"since":`) &&
			strings.Contains(w.Body.String(), "forbidden")
	})
	if b.has() != "what it had" {
		t.Errorf("the balancer was handed %q", b.has())
	}
}

// TestFollowUnreached: a backend without a route is named in the verdict on its Service though the balancer takes its
// time to say so, for which no hand-over waits.
func TestFollowUnreached(t *testing.T) {
	client, b, answer := fake.NewClientset(web()), &fakeBalancer{}, make(chan struct{})
	c := startedWith(t, client, b, func(c *Controller) {
		c.opt.Unreached = func(ctx context.Context) ([]ops.ServiceBackend, error) {
			select {
			case <-answer:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
			one := ops.ServiceBackend{Service: "shop:web:http"}
			one.Name, one.State, one.Reason = "n1", lb.NoRoute, "is in no subnet of eth0"
			return []ops.ServiceBackend{one}, nil
		}
	})
	eventually(t, "the balancer has the Service", func() bool { return strings.Contains(b.has(), "shop:web:http") })
	if err := client.CoreV1().Services("shop").Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the Service is gone", func() bool { return b.has() == "services: []\n" })
	if _, err := client.CoreV1().Services("shop").Create(t.Context(), web(), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is back", func() bool { return strings.Contains(b.has(), "shop:web:http") })
	close(answer)
	eventually(t, "its verdict names the backend", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return slices.ContainsFunc(c.latest["shop/web"].Problems, func(p model.Problem) bool {
			return strings.Contains(p.Message, "backend n1")
		})
	})
}

// TestUnreached: backends without a route are named, a bounded number of them.
func TestUnreached(t *testing.T) {
	var list []ops.ServiceBackend
	add := func(service string, state lb.BackendState) {
		b := ops.ServiceBackend{Service: service}
		b.Name, b.Address, b.State, b.Reason = "n1", netip.MustParseAddr("10.0.0.1"), state, "is in no subnet of eth0"
		list = append(list, b)
	}
	add("web", lb.NoRoute)
	add("web", lb.NoMAC)
	for range 7 {
		add("many", lb.NoRoute)
	}
	got := unreachedOf(list)
	if want := "backend n1 (10.0.0.1) is in no subnet of eth0"; len(got) != 2 || got["web"] != want ||
		got["many"] != strings.Repeat(want+"; ", 5)+"2 more" {
		t.Errorf("got %q", got)
	}
}
