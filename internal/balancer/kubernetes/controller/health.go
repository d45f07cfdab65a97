// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/jeoul/jeoul/internal/balancer/kubernetes/watch"
	"github.com/jeoul/jeoul/internal/balancer/ops"
)

// Problem is a fault, and when it began; zero: there is none.
type Problem struct {
	Since   time.Time `json:"since,omitzero"`
	Problem string    `json:"problem,omitempty"`
}

// continueProblem returns a problem that goes on, or begins now; the zero Problem for "".
func continueProblem(before Problem, problem string) Problem {
	if problem == "" {
		return Problem{}
	}
	if before.Problem == "" {
		before.Since = time.Now()
	}
	before.Problem = problem
	return before
}

// Health is the state of a controller.
type Health struct {
	// Synced: all objects of the cluster were listed once. Watches has the kinds of objects that the API server does
	// not list: those are known as of the problem's time.
	Synced  bool                   `json:"synced"`
	Watches map[watch.Kind]Problem `json:"stale,omitempty"`
	// Missing are the kinds of the Gateway API that the cluster does not have.
	Missing []watch.Kind `json:"missing,omitempty"`
	// Rights are the rights that the account lacks, and Kept the Services and Gateways that are still served although
	// they vanished in a rollback of the cluster.
	Rights []string `json:"missing_rights,omitempty"`
	Kept   []string `json:"kept,omitempty"`
	// Pools, Balancer and Status are the faults of reading the pools, of handing services to the balancer, and of
	// writing the status.
	Pools    Problem `json:"pools,omitzero"`
	Balancer Problem `json:"balancer,omitzero"`
	Status   Problem `json:"status,omitzero"`
	// Clock is the difference of the API server's clock.
	Clock Problem `json:"clock,omitzero"`
	// Leader is the holder of the Lease, which writes the status; Leading: it is this one.
	Leader  string `json:"leader"`
	Leading bool   `json:"leading"`
	// Generation is that of the source of configuration, Pushed the time of the last push, Services the number of its
	// services, and Refused the balancer's reasons for refusing others.
	Generation uint64            `json:"generation"`
	Pushed     time.Time         `json:"pushed,omitzero"`
	Services   int               `json:"services"`
	Refused    map[string]string `json:"refused,omitempty"`
}

// Ready reports whether the balancer has the cluster's present services.
func (h Health) Ready() bool {
	return h.Synced && len(h.Watches) == 0 && h.Balancer == Problem{} && !h.Pushed.IsZero()
}

// Health returns the controller's present state.
func (c *Controller) Health() Health {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := c.health
	h.Watches, h.Refused = maps.Clone(h.Watches), maps.Clone(h.Refused)
	h.Rights = slices.Clone(h.Rights)
	return h
}

func (c *Controller) updateHealth(change func(*Health)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(&c.health)
}

// reportWatches logs the kinds that become stale, and that no longer are.
func (c *Controller) reportWatches() {
	before, now := c.Health().Watches, map[watch.Kind]Problem{}
	for kind, state := range c.opt.Watcher.States() {
		if state.Expired > c.expired[kind] {
			c.expired[kind] = state.Expired
			c.opt.Log.Info("a watch expired, and all objects are listed again", "kind", string(kind))
			c.recordEvent(corev1.EventTypeNormal, "WatchExpired", fmt.Sprintf(
				"the watch of %s expired (410), and all of them are listed again", kind))
		}
		if state.Problem == "" {
			if was, stale := before[kind]; stale {
				c.opt.Log.Info("the API server answers again", "kind", string(kind), "after",
					time.Since(was.Since).Round(time.Second))
			}
			continue
		}
		now[kind] = Problem{state.Since, state.Problem}
		if _, known := before[kind]; !known {
			c.opt.Log.Warn("the API server does not list its objects: the last known ones stay", "kind",
				string(kind), "err", state.Problem)
		}
	}
	missing := c.opt.Watcher.Missing()
	if previous := c.Health().Missing; !slices.Equal(missing, previous) && len(missing) > 0 {
		c.opt.Log.Warn(
			"the cluster does not have all of the Gateway API (standard channel), and Gateways are served without",
			"missing", missing)
	}
	c.reportRollback()
	synced := c.opt.Watcher.GatewaysSynced()
	kept, _ := c.opt.Watcher.Kept()
	kept = append(kept, c.opt.Watcher.KeptGateways()...)
	c.updateHealth(func(h *Health) { h.Watches, h.Synced, h.Missing, h.Kept = now, synced, missing, kept })
	c.reportSkew()
}

// reportSkew logs that the API server's clock begins to differ from this host's, and that it ceases to.
func (c *Controller) reportSkew() {
	before, problem := c.Health().Clock.Problem, c.opt.Skew().Problem()
	switch {
	case problem != "" && before == "":
		c.opt.Log.Warn(problem + ": " + skewRemedy)
	case problem == "" && before != "":
		c.opt.Log.Info("the API server's clock agrees with this host's again")
	}
	c.updateHealth(func(h *Health) { h.Clock = continueProblem(h.Clock, problem) })
}

// skewRemedy is the remedy for clocks that differ.
const skewRemedy = "set both by NTP; by them certificates are judged, and the times of Leases and Events written"

// reportRollback logs each rollback of the cluster once.
func (c *Controller) reportRollback() {
	at := c.opt.Watcher.RolledBack()
	if at.IsZero() || at.Equal(c.lastRollback) {
		return
	}
	c.lastRollback = at
	const text = "the cluster went back to an older state, as when a backup of etcd is restored: all objects are listed " +
		"anew, and Services and Gateways that vanished stay balanced until jeoul-kubernetes is restarted, or they are made again"
	c.opt.Log.Warn(text)
	c.recordEvent(corev1.EventTypeWarning, reasonOf(ops.ProblemKept), text)
}

// Handler serves /healthz (the process runs) and /readyz (503 unless Ready), both with the Health as JSON.
func (c *Controller) Handler() http.Handler {
	mux := http.NewServeMux()
	answer := func(ready bool) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			h := c.Health()
			w.Header().Set("Content-Type", "application/json")
			if ready && !h.Ready() {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
			// A client that hangs up is no error.
			_ = json.NewEncoder(w).Encode(h)
		}
	}
	mux.HandleFunc("GET /healthz", answer(false))
	mux.HandleFunc("GET /readyz", answer(true))
	return mux
}
