// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/jeoul/jeoul/internal/balancer/kubernetes/model"
	"github.com/jeoul/jeoul/internal/balancer/kubernetes/status"
	"github.com/jeoul/jeoul/internal/balancer/kubernetes/watch"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/host/clock"
)

const (
	// rightsInterval is the interval of checks of the account's rights.
	rightsInterval = time.Minute
	// reportTimeout bounds a report to the balancer, and a request for the rights.
	reportTimeout = 5 * time.Second
	// claimTimeout is the time after which a Service without an address counts as unclaimed, and after which a Lease
	// without a holder is a problem.
	claimTimeout = time.Minute
	// maxNamed bounds the objects named per kind of problem, and maxText the text of a problem, in bytes.
	maxNamed = 6
	maxText  = 600
)

// reasons are the reasons of Events of problems; other kinds have ProblemOther's.
var reasons = map[ops.ProblemKind]string{ops.ProblemUnreached: "APIServerUnreached", ops.ProblemRight: "RightMissing",
	ops.ProblemUnclaimed: "ClassUnclaimed", ops.ProblemKept: "ClusterWentBack", ops.ProblemOther: "Trouble"}

// problemKey identifies a problem, whose text may change while it lasts.
type problemKey struct {
	kind ops.ProblemKind
	on   string
}

// followRights polls the API server for missing rights. While it does not answer, its last answer stays.
func (c *Controller) followRights(ctx context.Context) {
	for c.opt.Rights != nil {
		asking, cancel := context.WithTimeout(ctx, reportTimeout)
		missing, err := c.opt.Rights(asking)
		cancel()
		if err == nil {
			var list []string
			for _, r := range missing {
				list = append(list, fmt.Sprintf("the account may not %s, which it needs to %s", r, r.Purpose))
			}
			c.updateHealth(func(h *Health) { h.Rights = list })
		}
		if clock.Sleep(ctx, rightsInterval) != nil {
			return
		}
	}
}

// sendReport sends the balancer the age of the cluster's state and the problems, and records an Event of each new one.
func (c *Controller) sendReport(ctx context.Context) {
	now := time.Now()
	report := ops.FeedReport{Follows: c.opt.Follows, Platform: ops.Kubernetes, Problems: c.problems(now)}
	for _, t := range report.Problems {
		if t.Kind == ops.ProblemUnreached {
			report.AsOf = t.Since
		}
	}
	c.recordProblems(report.Problems, now)
	if c.opt.Report == nil || reflect.DeepEqual(report, c.lastReport) && now.Sub(c.reportedAt) < retryAfter {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	if c.opt.Report(ctx, c.opt.Pusher.Source, report) == nil { // isPushed reports a balancer that does not answer
		c.lastReport, c.reportedAt = report, now
	}
}

// problems returns the faults, the worst first.
func (c *Controller) problems(now time.Time) (list []ops.FeedProblem) {
	h := c.Health()
	if t, away := apiServerProblem(h.Watches, c.opt.Watcher.RevisionState()); away {
		list = append(list, t)
	}
	list = append(list, c.keptProblems()...)
	for _, right := range listNames(h.Rights, "rights") {
		list = append(list, ops.FeedProblem{Kind: ops.ProblemRight, On: right, Problem: "this right is missing",
			Remedy: "apply deploy/kubernetes again"})
	}
	list = append(list, c.unclaimedServices(now)...)
	other := func(on string, t Problem, remedy string) {
		if t.Problem != "" {
			list = append(list, ops.FeedProblem{Kind: ops.ProblemOther, On: on, Since: t.Since,
				Problem: truncate(t.Problem), Remedy: remedy})
		}
	}
	other("pools", h.Pools, "those before stay")
	other("balancer", h.Balancer, "it goes on with the services that it has")
	other("status", h.Status, "what is balanced goes on")
	other("clock", h.Clock, skewRemedy)
	if h.Leader == "" && now.Sub(c.started) > claimTimeout {
		other("Lease "+c.opt.Lease.Namespace+"/"+c.opt.Lease.Name,
			Problem{c.started, "no balancer holds it, so the status of Services is not written"},
			"see whether the account may get, create and update it")
	}
	return list
}

// apiServerProblem returns the problem of an API server that fails to list objects, if it does: the kinds, the time
// since when, and the reason.
func apiServerProblem(stale map[watch.Kind]Problem, reached watch.State) (ops.FeedProblem, bool) {
	t := ops.FeedProblem{Kind: ops.ProblemUnreached, Remedy: "what was known last goes on"}
	var kinds []string
	for _, kind := range slices.Sorted(maps.Keys(stale)) {
		kinds = append(kinds, string(kind))
		if since := stale[kind].Since; t.Since.IsZero() || since.Before(t.Since) {
			t.Since = since
		}
		t.Problem = stale[kind].Problem
	}
	switch {
	case len(kinds) > 0:
		t.Problem = truncate(fmt.Sprintf("the API server does not list %s: %s", strings.Join(kinds, ", "), t.Problem))
	case reached.Problem != "":
		t.Since, t.Problem = reached.Since, truncate("the API server does not answer: "+reached.Problem)
	}
	return t, t.Problem != ""
}

// keptProblems names the objects that are still served although they vanished in a rollback of the cluster.
func (c *Controller) keptProblems() (list []ops.FeedProblem) {
	names, since := c.opt.Watcher.Kept()
	for i := range names {
		names[i] = "Service " + names[i]
	}
	for _, name := range listNames(append(names, c.opt.Watcher.KeptGateways()...), "objects") {
		list = append(list, ops.FeedProblem{Kind: ops.ProblemKept, On: name, Since: since,
			Problem: "it vanished when the cluster went back to an older state, and is balanced as it was last known",
			Remedy:  "make it again, or restart jeoul-kubernetes to have it balanced no longer"})
	}
	return list
}

// unclaimedServices names Services that have had no address for claimTimeout, and whose class this balancer does not
// serve.
func (c *Controller) unclaimedServices(now time.Time) (list []ops.FeedProblem) {
	if !c.opt.Watcher.Synced() {
		return nil
	}
	waiting, names, classes := map[types.UID]time.Time{}, []string{}, map[string]string{}
	for _, s := range model.Unclaimed(c.opt.Watcher.Services(), c.opt.Settings) {
		since, known := c.waiting[s.UID]
		if !known {
			since = now
		}
		waiting[s.UID] = since
		if now.Sub(since) >= claimTimeout {
			names = append(names, model.Key(s))
			classes[model.Key(s)] = "no class"
			if class := s.Spec.LoadBalancerClass; class != nil {
				classes[model.Key(s)] = "the class " + *class
			}
		}
	}
	c.waiting = waiting
	slices.Sort(names)
	for _, name := range listNames(names, "Services") {
		list = append(list, ops.FeedProblem{Kind: ops.ProblemUnclaimed, On: "Service " + name,
			Problem: "it has " + cmp.Or(classes[name], "another class") + ", and no controller gives it an address",
			Remedy:  "this balancer serves the loadBalancerClass " + c.opt.Settings.Class})
	}
	return list
}

// listNames returns a bounded number of names, with how many more there are.
func listNames(names []string, noun string) []string {
	if len(names) <= maxNamed {
		return names
	}
	return append(slices.Clone(names[:maxNamed]), fmt.Sprintf("(%d more %s)", len(names)-maxNamed, noun))
}

func truncate(text string) string { return status.Truncate(text, maxText) }

// recordProblems records an Event on the Lease for the beginning and the end of each problem. The second repeats the
// text, because the problem may have prevented the first.
func (c *Controller) recordProblems(problems []ops.FeedProblem, now time.Time) {
	current := map[problemKey]ops.FeedProblem{}
	for _, t := range problems {
		key := problemKey{t.Kind, t.On}
		if t.Since.IsZero() {
			t.Since = now
		}
		current[key] = t
		if before, lasts := c.announced[key]; lasts {
			t.Since = before.Since
			current[key] = t
			continue
		}
		c.recordEvent(corev1.EventTypeWarning, reasonOf(t.Kind), t.Text())
	}
	for key, t := range c.announced {
		if _, lasts := current[key]; !lasts {
			c.recordEvent(corev1.EventTypeNormal, reasonOf(key.kind)+"Ended", fmt.Sprintf("it ended after %s: %s",
				now.Sub(t.Since).Round(time.Second), t.Text()))
		}
	}
	c.announced = current
}

func reasonOf(kind ops.ProblemKind) string { return cmp.Or(reasons[kind], reasons[ops.ProblemOther]) }

// recordEvent records an Event that is not about a Service, on the Lease, which every cluster has.
func (c *Controller) recordEvent(kind, reason, text string) {
	if c.opt.Recorder == nil {
		return
	}
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: c.opt.Lease.Namespace,
		Name: c.opt.Lease.Name}}
	c.opt.Recorder.Eventf(lease, nil, kind, reason, "Follow", "%s", truncate(c.opt.Lease.Identity+": "+text))
}
