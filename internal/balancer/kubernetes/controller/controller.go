// SPDX-License-Identifier: Apache-2.0

// Package controller synchronises a balancer with a cluster's Services, and writes their status.
package controller

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/jeoul/jeoul/internal/balancer/kubernetes/apiclock"
	"github.com/jeoul/jeoul/internal/balancer/kubernetes/gateway"
	"github.com/jeoul/jeoul/internal/balancer/kubernetes/model"
	"github.com/jeoul/jeoul/internal/balancer/kubernetes/pools"
	"github.com/jeoul/jeoul/internal/balancer/kubernetes/push"
	"github.com/jeoul/jeoul/internal/balancer/kubernetes/rights"
	"github.com/jeoul/jeoul/internal/balancer/kubernetes/status"
	"github.com/jeoul/jeoul/internal/balancer/kubernetes/watch"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/host/clock"
)

// retryAfter is the time until a failed request to a balancer or an API server is repeated, and the interval of checks
// of whether the balancer still has the pushed services.
const retryAfter = 5 * time.Second

// ReasonRefused is the reason of a Service that the balancer's configuration does not allow.
const ReasonRefused = "RefusedByBalancer"

// Options are the settings and parts of a controller.
type Options struct {
	Client   kubernetes.Interface
	Watcher  *watch.Watcher
	Settings model.Settings
	// Gateways are the settings for Gateways; nil: none are served.
	Gateways *gateway.Settings
	// Pools returns the pools of a file, or an error if they cannot be read; nil: a ConfigMap has them.
	Pools  func() ([]pools.Pool, error)
	Pusher *push.Pusher
	// Generation returns the generation of a source that the balancer has.
	Generation func(ctx context.Context, source string) (uint64, error)
	// Unreached returns the backends of services that the balancer has no route to, possibly among others.
	Unreached func(ctx context.Context) ([]ops.ServiceBackend, error)
	// Rights returns the rights that the account lacks; nil: they are not checked.
	Rights func(ctx context.Context) ([]rights.Right, error)
	// Skew returns by how much the API server's clock differs from this host's.
	Skew func() apiclock.Skew
	// Report sends the balancer the age of the source, and its problems; nil: no reports. Follows names the cluster.
	Report  func(ctx context.Context, source string, report ops.FeedReport) error
	Follows string
	// Recorder records Events that are not about a Service; nil: none are.
	Recorder status.Recorder
	Writer   *status.Writer
	Lease    status.Lease
	Log      *slog.Logger
}

// Controller pushes a cluster's services to a balancer, and writes the results to the cluster.
type Controller struct {
	opt Options
	// Only the loop of run uses the fields below.
	result model.Result
	// plan is the plan of Gateways, nil if they are not served or not known yet; services are those of Services and
	// Gateways. Objects are what the API server listed last as a whole; listed: it still does.
	plan     *gateway.Plan
	objects  *gateway.Objects
	listed   bool
	services []lb.Service
	pushed   bool
	// retried is when refused services were tried again.
	retried time.Time
	// lastReport is the last report to the balancer, and reportedAt its time; announced are the problems that an Event
	// was made of, and waiting has the Services without an address, since when.
	lastReport ops.FeedReport
	reportedAt time.Time
	announced  map[problemKey]ops.FeedProblem
	waiting    map[types.UID]time.Time
	// expired counts the watches of each kind that have expired.
	expired map[watch.Kind]int
	started time.Time
	// lastRollback is the time of the last reported rollback of the cluster.
	lastRollback time.Time
	mu           sync.Mutex
	// latest are the verdicts from which the statuses are written.
	latest   map[string]model.Verdict
	gateways gateway.Report
	health   Health
	refused  map[string]string
	write    chan struct{}
	// unreached are the reasons for which packets do not reach backends, by the name of their service; reachChanged
	// signals changes.
	unreached    map[string]string
	reachChanged chan struct{}
	// firstPush is closed when the balancer has accepted the services for the first time.
	firstPush chan struct{}
}

// New returns a controller that does nothing before Run.
func New(opt Options) *Controller {
	return &Controller{opt: opt, write: make(chan struct{}, 1), expired: map[watch.Kind]int{}, started: time.Now(),
		reachChanged: make(chan struct{}, 1), firstPush: make(chan struct{})}
}

// Run follows the cluster until the context ends. The balancer's services stay.
func (c *Controller) Run(ctx context.Context) error {
	var running sync.WaitGroup
	running.Go(func() { c.opt.Watcher.Run(ctx) })
	running.Go(func() { c.run(ctx) })
	running.Go(func() { c.followRights(ctx) })
	running.Go(func() { c.followUnreached(ctx) })
	err := c.opt.Lease.Hold(ctx, c.opt.Client, func(leading context.Context) {
		c.opt.Log.Info("this balancer writes the status of Services now", "lease", c.opt.Lease.Namespace+"/"+
			c.opt.Lease.Name)
		c.updateHealth(func(h *Health) { h.Leading = true })
		defer c.updateHealth(func(h *Health) { h.Leading = false })
		c.writeStatus(leading)
	}, func(identity string) { c.updateHealth(func(h *Health) { h.Leader = identity }) })
	running.Wait()
	return err
}

// run builds the services after each change, and pushes them.
func (c *Controller) run(ctx context.Context) {
	tick := time.NewTicker(retryAfter)
	defer tick.Stop()
	var pace pace
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.reachChanged:
			c.publish()
			continue
		case <-tick.C:
		case <-c.opt.Watcher.Changed():
			if c.collect(ctx, pace.collecting(time.Now())) != nil {
				return
			}
		}
		pace.measure(func() { c.reconcile(ctx) })
		c.sendReport(ctx)
	}
}

// collect collects changes for a time. The error is that of ctx.
func (c *Controller) collect(ctx context.Context, duration time.Duration) error {
	if err := clock.Sleep(ctx, duration); err != nil {
		return err
	}
	select {
	case <-c.opt.Watcher.Changed(): // that is collected, too
	default:
	}
	return nil
}

// reconcile builds the services, and pushes them if they or their certificates have changed, or if the balancer lacks
// them.
func (c *Controller) reconcile(ctx context.Context) {
	c.reportWatches()
	if !c.opt.Watcher.Synced() || c.awaitsGateways() {
		return // not synced yet: the balancer's present services stay
	}
	c.readPools()
	certificates, planned := c.certificates(), c.plan != nil
	services := c.build()
	same := c.pushed && planned == (c.plan != nil) && push.Same(services, c.services) &&
		maps.EqualFunc(certificates, c.certificates(), bytes.Equal)
	c.services = services
	if same && !c.isPushed(ctx) {
		c.opt.Pusher.Forget()
		same = false
	}
	if c.retryRefused() {
		c.opt.Pusher.Retry()
		same = false
	}
	if !same {
		c.pushAll(ctx)
	}
	c.publish()
}

// retryRefused reports whether refused services are to be tried again, because the balancer's file may have changed.
func (c *Controller) retryRefused() bool {
	due := len(c.refused) > 0 && time.Since(c.retried) > reachInterval
	if due {
		c.retried = time.Now()
	}
	return due
}

// pushAll pushes the services.
func (c *Controller) pushAll(ctx context.Context) {
	began := time.Now()
	result, err := c.pushServices(ctx)
	c.pushed = err == nil
	if err != nil {
		if ctx.Err() == nil {
			c.opt.Log.Error("the balancer did not take the services, and goes on with those it has", "err", err)
		}
		c.updateHealth(func(h *Health) { h.Balancer = continueProblem(h.Balancer, err.Error()) })
		return
	}
	select {
	case <-c.firstPush:
	default:
		close(c.firstPush)
	}
	for name, why := range result.Refused {
		if c.refused[name] != why {
			c.opt.Log.Warn("the balancer refuses a service", "service", name, "why", why)
		}
	}
	c.mu.Lock()
	c.refused = result.Refused
	c.mu.Unlock()
	changed := c.Health().Generation != result.Generation
	c.updateHealth(func(h *Health) {
		h.Balancer, h.Generation, h.Pushed, h.Services = Problem{}, result.Generation, time.Now(), len(c.services)
		h.Refused = result.Refused
	})
	if changed {
		c.opt.Log.Info("the balancer has the services of the cluster", "services", len(c.services),
			"refused", len(result.Refused), "generation", result.Generation,
			"took", time.Since(began).Round(time.Millisecond))
	}
}

// isPushed reports whether the balancer has the services of the last push: an operator may have changed the source.
func (c *Controller) isPushed(ctx context.Context) bool {
	generation, err := c.opt.Generation(ctx, c.opt.Pusher.Source)
	if err != nil {
		c.updateHealth(func(h *Health) { h.Balancer = continueProblem(h.Balancer, err.Error()) })
		return true // the balancer does not answer: nothing can be pushed
	}
	c.updateHealth(func(h *Health) { h.Balancer = Problem{} })
	c.mu.Lock()
	defer c.mu.Unlock()
	return generation == c.health.Generation
}

// readPools reads the pools again. If they cannot be read, the previous ones stay.
func (c *Controller) readPools() {
	read, err := c.currentPools()
	if err != nil {
		if before := c.Health().Pools.Problem; before != err.Error() {
			c.opt.Log.Error("the pools cannot be read, and those before stay", "err", err)
		}
		c.updateHealth(func(h *Health) { h.Pools = continueProblem(h.Pools, err.Error()) })
		return
	}
	c.opt.Settings.Pools = read
	c.updateHealth(func(h *Health) { h.Pools = Problem{} })
}

// poolsKey is the key of a ConfigMap that has the pools.
const poolsKey = "pools.yaml"

func (c *Controller) currentPools() ([]pools.Pool, error) {
	if c.opt.Pools != nil {
		return c.opt.Pools()
	}
	m := c.opt.Watcher.ConfigMap()
	if m == nil {
		return nil, fmt.Errorf("there is no such ConfigMap; make it, with the pools under the key %s", poolsKey)
	}
	text, there := m.Data[poolsKey]
	if !there {
		return nil, fmt.Errorf("the ConfigMap %s/%s has no key %s", m.Namespace, m.Name, poolsKey)
	}
	return pools.Parse(m.Namespace+"/"+m.Name, []byte(text))
}

// publish passes the verdicts to the loop that writes the status.
func (c *Controller) publish() {
	c.mu.Lock()
	verdicts := make(map[string]model.Verdict, len(c.result.Verdicts))
	for key, v := range c.result.Verdicts {
		verdicts[key] = v
	}
	for i, s := range c.result.Services {
		v := verdicts[c.result.Owners[i]]
		if why, refused := c.refused[s.Name]; refused {
			v.Problems = append(slices.Clip(v.Problems),
				model.Problem{Reason: ReasonRefused, Message: s.Name + ": " + why})
		}
		if why := c.unreached[s.Name]; why != "" {
			v.Problems = append(slices.Clip(v.Problems), model.Problem{Reason: model.ReasonNodeUnusable,
				Message: s.Name + ": " + why})
		}
		verdicts[c.result.Owners[i]] = v
	}
	c.latest = verdicts
	c.gateways = gateway.Report{}
	if c.plan != nil && c.listed { // otherwise the objects are not those that the cluster has
		c.gateways = c.plan.Report(c.pending)
	}
	c.mu.Unlock()
	select {
	case c.write <- struct{}{}:
	default:
	}
}

// writeStatus writes the status of Services while this balancer holds the Lease.
func (c *Controller) writeStatus(ctx context.Context) {
	retry := time.NewTicker(retryAfter)
	defer retry.Stop()
	failed := true
	c.opt.Writer.Newer = func() bool { return len(c.write) > 0 }
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.write:
		case <-retry.C:
			if !failed {
				continue
			}
		}
		c.mu.Lock()
		verdicts, gateways := c.latest, c.gateways
		c.mu.Unlock()
		if verdicts == nil {
			continue
		}
		err := errors.Join(c.opt.Writer.Write(ctx, c.opt.Watcher.Services(), verdicts),
			c.opt.Writer.WriteGateways(ctx, gateways))
		failed = err != nil
		if err != nil && ctx.Err() == nil {
			c.opt.Log.Error("status cannot be written", "err", err)
			c.updateHealth(func(h *Health) { h.Status = continueProblem(h.Status, err.Error()) })
			continue
		}
		c.updateHealth(func(h *Health) { h.Status = Problem{} })
	}
}
