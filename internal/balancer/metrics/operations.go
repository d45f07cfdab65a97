// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"time"

	"github.com/jeoul/jeoul/internal/balancer/ops"
)

// operation is an operation in force on a backend.
type operation struct {
	*ops.Overlay
	// word names the operation, by whom and when it was done.
	word, by string
	at       time.Time
	// deadline is when a drained backend is taken out; zero: never. drained: it has flows left.
	deadline time.Time
	drained  bool
}

var operationLabels = []string{"service", "backend", "operation", "by"}

// operationFamilies are the families of operations; they are there while there are some.
var operationFamilies = []metric[operation]{
	{
		family{
			"jeoul_operation_info",
			"1, with an operation that is in force on a backend, and who has done it: drain, disable, out (its drain's " +
				"deadline has passed), enable, weight or force.",
			gauge,
			operationLabels,
		},
		always(func(operation) float64 { return 1 }),
	},
	{family{"jeoul_operation_timestamp_seconds", "When the operation was done.", gauge, operationLabels},
		always(func(o operation) float64 { return seconds(o.at) })},
	{
		family{
			"jeoul_operation_deadline_timestamp_seconds",
			"When a drained backend is taken out of its service, where its drain has a deadline.",
			gauge,
			operationLabels,
		},
		func(o operation) (float64, bool) { return seconds(o.deadline), !o.deadline.IsZero() },
	},
	{family{"jeoul_operation_flows_left", "Remembered flows of a drained backend.", gauge, operationLabels},
		func(o operation) (float64, bool) { return float64(o.Left.Flows), o.drained }},
}

// operationMetrics makes the families of the operations in force.
func operationMetrics(overlays []ops.Overlay) []metricFamily {
	var all []operation
	for i := range overlays {
		o := &overlays[i]
		if d := o.Drain; d != nil {
			all = append(all, operation{o, d.StateName(), d.By, d.At, d.Deadline, d.On})
		}
		if w := o.Weight; w != nil {
			all = append(all, operation{Overlay: o, word: string(ops.Weight), by: w.By, at: w.At})
		}
		if f := o.Forced; f != nil {
			all = append(all, operation{Overlay: o, word: "force", by: f.By, at: f.At})
		}
	}
	return series(
		operationFamilies,
		all,
		func(o operation) []string { return []string{o.Service, o.Backend, o.word, o.by} },
	)
}
