// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/jeoul/jeoul/internal/balancer/api/access"
)

// The values of the label "lacking": the credentials or role that a denied client lacks.
const (
	lackingCredentials = "credentials"
	lackingRole        = "role"
)

// newDenials counts clients of the API that are not let in. The series exist from the start: one that is not there
// cannot be alerted on.
func newDenials() *prometheus.CounterVec {
	total := prometheus.NewCounterVec(prometheus.CounterOpts(deniedTotal.options()), deniedTotal.labels)
	for _, lacking := range []string{lackingCredentials, lackingRole} {
		total.WithLabelValues(lacking)
	}
	return total
}

// Denied counts a request to the API over TCP that was refused: access.ErrNoRole, or for lack of credentials.
func (m *Metrics) Denied(why error) {
	lacking := lackingCredentials
	if errors.Is(why, access.ErrNoRole) {
		lacking = lackingRole
	}
	m.denials.WithLabelValues(lacking).Inc()
}
