// SPDX-License-Identifier: Apache-2.0

package results

import (
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
)

// metricName matches the names of metrics: the contract's names, whose unit ends them, are all of this form.
var metricName = regexp.MustCompile(`^[a-z][a-z0-9]*(_[a-z0-9]+)*$`)

// Validate checks the properties that every reader of a run relies on. Its error wraps ErrInvalid and names the trial
// and the field.
func (r *Run) Validate() error {
	switch {
	case r.Schema != Schema:
		return invalid("schema is %d, not %d", r.Schema, Schema)
	case r.Suite == "":
		return invalid("suite is empty")
	case r.Started.IsZero():
		return invalid("started is missing")
	case !r.Ended.IsZero() && r.Ended.Before(r.Started):
		return invalid("ended is before started")
	}
	for i, trial := range r.Trials {
		if err := trial.validate(); err != nil {
			return invalid("trials[%d] (%s, %s, repeat %d): %v", i, trial.Subject, trial.Load, trial.Repeat, err)
		}
	}
	if r.Published != nil {
		return r.Published.validate()
	}
	return nil
}

func invalid(format string, arguments ...any) error {
	return fmt.Errorf("%w: %s", ErrInvalid, fmt.Sprintf(format, arguments...))
}

func (t *Trial) validate() error {
	switch {
	case t.Subject == "":
		return fmt.Errorf("subject is empty")
	case t.Load == "":
		return fmt.Errorf("load is empty")
	case t.Repeat < 1:
		return fmt.Errorf("repeat is %d, but repeats count from 1", t.Repeat)
	case !t.Valid && !slices.ContainsFunc(t.Notes, func(note string) bool { return strings.TrimSpace(note) != "" }):
		return fmt.Errorf("valid is false, but no note says why")
	case t.Valid && len(t.Metrics) == 0:
		return fmt.Errorf("valid is true, but there are no metrics")
	}
	if !slices.Contains([]Part{SaturatedBalancer, SaturatedClient, SaturatedBackend, SaturatedNone, SaturatedUnknown},
		t.Saturated) {
		return fmt.Errorf("saturated is %q, which is not a part", t.Saturated)
	}
	for _, name := range slices.Sorted(maps.Keys(t.Metrics)) {
		if err := validateMetric(name, t.Metrics[name]); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(t.Samples)) {
		for _, value := range t.Samples[name] {
			if err := validateMetric(name, value); err != nil {
				return fmt.Errorf("samples: %v", err)
			}
		}
	}
	for i, backend := range t.Backends {
		if backend.Name == "" {
			return fmt.Errorf("backends[%d].name is empty", i)
		}
	}
	return nil
}

func validateMetric(name string, value float64) error {
	switch {
	case !metricName.MatchString(name):
		return fmt.Errorf("metrics: %q is not a metric's name (lower case words joined by _)", name)
	case math.IsNaN(value), math.IsInf(value, 0):
		return fmt.Errorf("metrics.%s is %v, not a finite number", name, value)
	}
	return nil
}

func (p *Published) validate() error {
	for i, row := range p.Rows {
		if len(row) != len(p.Columns) {
			return invalid("published.rows[%d] has %d cells, but there are %d columns", i, len(row), len(p.Columns))
		}
	}
	for i, beside := range p.Beside {
		if unknown := p.UnknownColumns(beside); len(unknown) > 0 {
			return invalid("published.beside[%d] names %q, which the table does not have", i, unknown)
		}
	}
	return nil
}
