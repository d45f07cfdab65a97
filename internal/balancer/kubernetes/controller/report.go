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
	// rightsInterval is how often the account's rights are asked for.
	rightsInterval = time.Minute
	// reportTimeout bounds a report to the balancer, and a request for the rights.
	reportTimeout = 5 * time.Second
	// claimTimeout is how long a Service may have no address before it counts as unclaimed, and the Lease no holder.
	claimTimeout = time.Minute
	// maxNamed bounds the objects that are named of one kind of trouble, and maxText a text of it, in bytes.
	maxNamed = 6
	maxText  = 600
)

// reasons are the reasons of Events of troubles; other kinds have TroubleOther's.
var reasons = map[ops.TroubleKind]string{ops.TroubleUnreached: "APIServerUnreached", ops.TroubleRight: "RightMissing",
	ops.TroubleUnclaimed: "ClassUnclaimed", ops.TroubleKept: "ClusterWentBack", ops.TroubleOther: "Trouble"}

// troubleKey identifies a trouble, whose words may change while it lasts.
type troubleKey struct {
	kind ops.TroubleKind
	on   string
}

// followRights asks again and again which rights are missing. While the API server does not answer, its last answer
// stays.
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

// sendReport sends the balancer the age of the picture and the faults, and makes an Event of each new one.
func (c *Controller) sendReport(ctx context.Context) {
	now := time.Now()
	report := ops.FeedReport{Follows: c.opt.Follows, Platform: ops.Kubernetes, Troubles: c.troubles(now)}
	for _, t := range report.Troubles {
		if t.Kind == ops.TroubleUnreached {
			report.AsOf = t.Since
		}
	}
	c.recordTroubles(report.Troubles, now)
	if c.opt.Report == nil || reflect.DeepEqual(report, c.lastReport) && now.Sub(c.reportedAt) < retryAfter {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	if c.opt.Report(ctx, c.opt.Pusher.Source, report) == nil { // isPushed says where it is not there
		c.lastReport, c.reportedAt = report, now
	}
}

// troubles returns the faults, the worst first.
func (c *Controller) troubles(now time.Time) (list []ops.FeedTrouble) {
	h := c.Health()
	if t, away := apiServerTrouble(h.Watches, c.opt.Watcher.RevisionState()); away {
		list = append(list, t)
	}
	list = append(list, c.keptTroubles()...)
	for _, right := range listNames(h.Rights, "rights") {
		list = append(list, ops.FeedTrouble{Kind: ops.TroubleRight, On: right, Problem: "this right is missing",
			Remedy: "apply deploy/kubernetes again"})
	}
	list = append(list, c.unclaimedServices(now)...)
	other := func(on string, t Trouble, remedy string) {
		if t.Problem != "" {
			list = append(list, ops.FeedTrouble{Kind: ops.TroubleOther, On: on, Since: t.Since,
				Problem: truncate(t.Problem), Remedy: remedy})
		}
	}
	other("pools", h.Pools, "those before stay")
	other("status", h.Status, "what is balanced goes on")
	if h.Leader == "" && now.Sub(c.started) > claimTimeout {
		other("Lease "+c.opt.Lease.Namespace+"/"+c.opt.Lease.Name,
			Trouble{c.started, "no balancer holds it, so the status of Services is not written"},
			"see whether the account may get, create and update it")
	}
	return list
}

// apiServerTrouble returns the fault of an API server that does not list its objects, if it does not: of which kinds,
// since when, and why.
func apiServerTrouble(stale map[watch.Kind]Trouble, reached watch.State) (ops.FeedTrouble, bool) {
	t := ops.FeedTrouble{Kind: ops.TroubleUnreached, Remedy: "what was known last goes on"}
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

// keptTroubles names the objects that are balanced still, although the cluster has them no more, because it went back
// in time.
func (c *Controller) keptTroubles() (list []ops.FeedTrouble) {
	names, since := c.opt.Watcher.Kept()
	for i := range names {
		names[i] = "Service " + names[i]
	}
	for _, name := range listNames(append(names, c.opt.Watcher.KeptGateways()...), "objects") {
		list = append(list, ops.FeedTrouble{Kind: ops.TroubleKept, On: name, Since: since,
			Problem: "it vanished when the cluster went back to an older state, and is balanced as it was last known",
			Remedy:  "make it again, or restart jeoul-kubernetes to have it balanced no longer"})
	}
	return list
}

// unclaimedServices names Services that have no address for claimTimeout, and whose class this balancer does not serve.
func (c *Controller) unclaimedServices(now time.Time) (list []ops.FeedTrouble) {
	if !c.opt.Watcher.Synced() {
		return nil
	}
	waiting, names, classes := map[types.UID]time.Time{}, []string{}, map[string]string{}
	for _, s := range model.Unclaimed(c.opt.Watcher.Cluster().Services, c.opt.Settings) {
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
	for _, name := range listNames(names, "Services") {
		list = append(list, ops.FeedTrouble{Kind: ops.TroubleUnclaimed, On: "Service " + name,
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

// recordTroubles makes an Event, on the Lease, of each trouble that begins and of each that ends: of one that kept
// Events from being made, the second has all that there is to say.
func (c *Controller) recordTroubles(troubles []ops.FeedTrouble, now time.Time) {
	current := map[troubleKey]ops.FeedTrouble{}
	for _, t := range troubles {
		key := troubleKey{t.Kind, t.On}
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

func reasonOf(kind ops.TroubleKind) string { return cmp.Or(reasons[kind], reasons[ops.TroubleOther]) }

// recordEvent makes an Event that is about no Service: on the Lease, which each cluster that is served has.
func (c *Controller) recordEvent(kind, reason, text string) {
	if c.opt.Recorder == nil {
		return
	}
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: c.opt.Lease.Namespace,
		Name: c.opt.Lease.Name}}
	c.opt.Recorder.Eventf(lease, nil, kind, reason, "Follow", "%s", truncate(c.opt.Lease.Identity+": "+text))
}
