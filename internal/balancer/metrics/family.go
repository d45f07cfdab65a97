// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/jeoul/jeoul/internal/balancer/ops"
)

// family is a metric: the series of one name.
type family struct {
	name, help string
	kind       dto.MetricType
	labels     []string
}

// metric is a family with the function that computes its series: one for each T of a status.
type metric[T any] struct {
	family
	// value returns a series' value; false leaves the series out.
	value func(T) (float64, bool)
}

const (
	gauge   = dto.MetricType_GAUGE
	counter = dto.MetricType_COUNTER
)

func always[T any](value func(T) float64) func(T) (float64, bool) {
	return func(from T) (float64, bool) { return value(from), true }
}

func boolValue(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func (f family) options() prometheus.Opts { return prometheus.Opts{Name: f.name, Help: f.help} }

// member is a backend, and whose.
type member struct {
	of *ops.Service
	*ops.Backend
}

func pointers[T any](of []T) []*T {
	all := make([]*T, len(of))
	for i := range of {
		all[i] = &of[i]
	}
	return all
}

// seconds is a moment as Prometheus has it: seconds since 1970.
func seconds(t time.Time) float64 { return float64(t.UnixNano()) / 1e9 }

var backendLabels = []string{"service", "backend"}
