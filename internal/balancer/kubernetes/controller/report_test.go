// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"github.com/jeoul/jeoul/internal/balancer/kubernetes/apiclock"
	"github.com/jeoul/jeoul/internal/balancer/kubernetes/model"
	"github.com/jeoul/jeoul/internal/balancer/kubernetes/rights"
	"github.com/jeoul/jeoul/internal/balancer/ops"
)

// reportRecorder keeps the last report on a source, and the Events.
type reportRecorder struct {
	mu     sync.Mutex
	report ops.FeedReport
	events []string
}

func (h *reportRecorder) record(_ context.Context, _ string, report ops.FeedReport) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.report = report
	return nil
}

func (h *reportRecorder) Eventf(_, _ runtime.Object, kind, reason, _, note string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, fmt.Sprintf("%s %s: %s", kind, reason, fmt.Sprintf(note, args...)))
}

// has reports whether the last report has a problem of a kind, of which a text is part.
func (h *reportRecorder) has(kind ops.ProblemKind, text string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, t := range h.report.Problems {
		if t.Kind == kind && strings.Contains(t.Text(), text) {
			return true
		}
	}
	return false
}

func (h *reportRecorder) hasEvent(text string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return strings.Contains(strings.Join(h.events, "\n"), text)
}

// TestAPIServerAway: while the API server does not list its objects, and where a right is missing, the balancer is told
// so, with an age, and Events are made; when it lists them again, that is over.
func TestAPIServerAway(t *testing.T) {
	t.Parallel()
	client, b, h := fake.NewClientset(web()), &fakeBalancer{}, &reportRecorder{}
	var away atomic.Bool
	away.Store(true)
	client.PrependReactor("list", "endpointslices", func(clienttesting.Action) (bool, runtime.Object, error) {
		if away.Load() {
			return true, nil, errors.New("connection refused")
		}
		return false, nil, nil
	})
	c := startedWith(t, client, b, func(c *Controller) {
		c.opt.Report, c.opt.Recorder, c.opt.Follows = h.record, h, "the cluster"
		c.opt.Rights = func(context.Context) ([]rights.Right, error) {
			return []rights.Right{{Verb: "patch", Resource: "services", Subresource: "status", Purpose: "write"}}, nil
		}
	})
	ctx, stop := context.WithCancel(t.Context())
	var asking sync.WaitGroup
	asking.Go(func() { c.followRights(ctx) })
	t.Cleanup(func() { stop(); asking.Wait() })
	eventually(t, "the balancer gets the report that it is away, and of the right", func() bool {
		return h.has(ops.ProblemUnreached, "endpointslices: connection refused") &&
			h.has(ops.ProblemRight, "may not patch services/status")
	})
	if h.mu.Lock(); h.report.AsOf.IsZero() || h.report.Follows != "the cluster" {
		t.Errorf("the report is %+v", h.report)
	}
	h.mu.Unlock()
	eventually(t, "there are Events", func() bool {
		return h.hasEvent("Warning APIServerUnreached") && h.hasEvent("Warning RightMissing")
	})
	away.Store(false)
	eventually(t, "it is there again", func() bool {
		return !h.has(ops.ProblemUnreached, "") && h.hasEvent("Normal APIServerUnreachedEnded: : it ended after") &&
			strings.Contains(b.has(), "shop:web:http")
	})
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.report.AsOf.IsZero() {
		t.Errorf("the source is old: %+v", h.report)
	}
}

// TestClocksDiffer: a clock of the API server that is wrong is named, with an Event, until it is right.
func TestClocksDiffer(t *testing.T) {
	t.Parallel()
	h := &reportRecorder{}
	var ahead atomic.Int64
	ahead.Store(int64(time.Minute))
	client := fake.NewClientset(web())
	startedWith(t, client, &fakeBalancer{}, func(c *Controller) {
		c.opt.Report, c.opt.Recorder = h.record, h
		c.opt.Skew = func() apiclock.Skew {
			skew := time.Duration(ahead.Load())
			return apiclock.Skew{Least: skew, Most: skew}
		}
	})
	const problem = "the API server's clock is 1m0s ahead of this host's"
	eventually(t, "it is named", func() bool {
		return h.has(ops.ProblemOther, "clock: "+problem) && h.hasEvent("Warning Trouble: : clock: "+problem)
	})
	ahead.Store(0)
	other := web()
	other.Name = "other"
	if _, err := client.CoreV1().Services("shop").Create(t.Context(), other, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is over", func() bool {
		return !h.has(ops.ProblemOther, "") && h.hasEvent("Normal TroubleEnded")
	})
}

// TestBalancerTakesNothing: while the balancer takes no services, the report and an Event say so.
func TestBalancerTakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, b, h := fake.NewClientset(web()), &fakeBalancer{}, &reportRecorder{}
		down := func(err error) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.down = err
		}
		down(errors.New("too many tables"))
		startedWith(t, client, b, func(c *Controller) { c.opt.Report, c.opt.Recorder = h.record, h })
		const problem = "balancer: too many tables; it goes on with the services that it has"
		eventually(t, "it is named", func() bool {
			return h.has(ops.ProblemOther, problem) && h.hasEvent("Warning Trouble: : balancer: too many tables")
		})
		down(nil)
		eventually(t, "it is over", func() bool {
			return !h.has(ops.ProblemOther, "balancer") && strings.Contains(b.has(), "shop:web:http")
		})
	})
}

// TestUnclaimed: a Service of another class without an address is named after a while, and not before; one that has an
// address, or is ours, is not.
func TestUnclaimed(t *testing.T) {
	t.Parallel()
	other := func(name string, class *string, addresses ...corev1.LoadBalancerIngress) *corev1.Service {
		s := web()
		s.Name, s.UID, s.Spec.LoadBalancerClass = name, types.UID(name), class
		s.Status.LoadBalancer.Ingress = addresses
		return s
	}
	typo, none := other("typo", ptr.To("jeoul.io/balanser")), other("none", nil)
	served := other("served", ptr.To("example.com/lb"), corev1.LoadBalancerIngress{IP: "192.0.2.9"})
	client, b := fake.NewClientset(web(), typo, none, served), &fakeBalancer{}
	c := startedWith(t, client, b, func(*Controller) {})
	eventually(t, "the cluster is known", c.opt.Watcher.Synced)
	alone := New(c.opt) // which does not run
	now := time.Now()
	if got := alone.unclaimedServices(now); len(got) > 0 {
		t.Errorf("at once: %v", got)
	}
	text := ""
	for _, problem := range alone.unclaimedServices(now.Add(2 * claimTimeout)) {
		text += problem.Text() + "\n"
	}
	for _, want := range []string{"Service shop/typo: it has the class jeoul.io/balanser", "Service shop/none: it has no class",
		"this balancer serves the loadBalancerClass " + model.DefaultClass} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in %q", want, text)
		}
	}
	if strings.Count(text, "\n") != 2 {
		t.Errorf("got %q", text)
	}
}

// TestUnclaimedIsStable: of many Services that no controller serves, the same ones are named each time.
func TestUnclaimedIsStable(t *testing.T) {
	client := fake.NewClientset()
	for i := range 20 {
		s := other(fmt.Sprintf("s%02d", i))
		s.UID, s.Spec.LoadBalancerClass = types.UID(s.Name), ptr.To("example.com/lb")
		if err := client.Tracker().Add(s); err != nil {
			t.Fatal(err)
		}
	}
	c := startedWith(t, client, &fakeBalancer{}, func(*Controller) {})
	eventually(t, "the cluster is known", c.opt.Watcher.Synced)
	alone, now := New(c.opt), time.Now()
	alone.unclaimedServices(now)
	for range 5 {
		list := alone.unclaimedServices(now.Add(2 * claimTimeout))
		if len(list) != maxNamed+1 || list[0].On != "Service shop/s00" || list[maxNamed-1].On != "Service shop/s05" {
			t.Errorf("it names %v", list)
		}
	}
}
