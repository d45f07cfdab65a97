// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/text/keytable"
	"github.com/jeoul/jeoul/internal/text/yamlfile"
)

// The bounds of times. Samples of a backend's counters are a tenth of an interval apart, so that a long one costs no
// more than a short one; a longer one than this would find nothing in time.
const (
	maxOutlierInterval = 10 * time.Minute
	maxOutlierPause    = 24 * time.Hour
)

// optionalOutlier is a key of an optional part of a service: the default of the key, where the part is there, is set
// when all is read.
func optionalOutlier[V comparable](at func(*lb.Outliers) *V, scalar keytable.Scalar[V],
	usual V) keytable.Value[lb.Outliers] {
	return keytable.Computed(func(o *lb.Outliers) (V, bool) { return *at(o), *at(o) != usual },
		func(o *lb.Outliers, value V) { *at(o) = value }, scalar, *new(V), fmt.Sprintf("`%s`", scalar.Show(usual)))
}

func defaultMaxPause(o lb.Outliers) time.Duration {
	return max(lb.DefaultOutlierLongestPause, o.Pause)
}

// checkOutliers sets the defaults, and refuses settings with which no backend can be ejected.
func (p *parser) checkOutliers(i int) {
	s, field := &p.cfg.Services[i], ServiceField(i, "outliers")
	o := &s.Outliers
	if !o.On() { // not there, or reported before
		*o = lb.Outliers{}
		return
	}
	if !s.Mode.Translates() && !p.Bad(ServiceField(i, "mode")) {
		p.Fail(field,
			"in the mode %s the backends' answers do not come back through the balancer, which would judge by them; write a check, or use mode %s", s.Mode, lb.OutlierModes())
	}
	setDefault(&o.Connections, lb.DefaultOutlierConnections)
	setDefault(&o.Interval, lb.DefaultOutlierInterval)
	setDefault(&o.Pause, lb.DefaultOutlierPause)
	setDefault(&o.LongestPause, defaultMaxPause(*o))
	setDefault(&o.Ejected, lb.DefaultOutlierEjected)
	if at := yamlfile.Join(field, "longest_pause"); o.LongestPause < o.Pause && !p.Bad(at) {
		p.Fail(at, "%s is less than pause, %s, with which the pauses begin; raise it, or remove the line",
			keytable.ShowDuration(o.LongestPause), keytable.ShowDuration(o.Pause))
	}
}

func setDefault[V comparable](value *V, usual V) {
	if *value == *new(V) {
		*value = usual
	}
}
