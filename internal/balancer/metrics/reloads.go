// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// reloads counts reloads by their results.
type reloads struct {
	total      *prometheus.CounterVec
	successful prometheus.Gauge
	applied    prometheus.Gauge
}

// The results of a reload.
const (
	reloadApplied = "applied"
	reloadRefused = "refused"
)

func newReloads() *reloads {
	r := &reloads{
		total:      prometheus.NewCounterVec(prometheus.CounterOpts(reloadsTotal.options()), reloadsTotal.labels),
		successful: prometheus.NewGauge(prometheus.GaugeOpts(lastReloadSuccessful.options())),
		applied:    prometheus.NewGauge(prometheus.GaugeOpts(lastReloadSuccess.options())),
	}
	// Each series exists from the start: a first refusal would otherwise be no increase, and raise no alert.
	for _, result := range []string{reloadApplied, reloadRefused} {
		r.total.WithLabelValues(result)
	}
	// The start has read the configuration.
	r.successful.Set(1)
	r.applied.Set(seconds(time.Now()))
	return r
}

func (r *reloads) register(registry prometheus.Registerer) {
	registry.MustRegister(r.total, r.successful, r.applied)
}

func (r *reloads) record(err error, now time.Time) {
	if err != nil {
		r.total.WithLabelValues(reloadRefused).Inc()
		r.successful.Set(0)
		return
	}
	r.total.WithLabelValues(reloadApplied).Inc()
	r.successful.Set(1)
	r.applied.Set(seconds(now))
}
