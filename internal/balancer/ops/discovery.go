// SPDX-License-Identifier: Apache-2.0

package ops

import (
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// Discovered is an origin of backends of a service, and its set.
type Discovered struct {
	Origin lb.Origin `json:"origin"`
	// From names the origin and its query, as in "dns web.example.com".
	From string `json:"from"`
	// Backends is the number of the service's backends from there.
	Backends int `json:"backends"`
	// Taken is the time of the origin's last set, and AgeSeconds its age; absent if there was none.
	Taken      time.Time `json:"taken,omitzero"`
	AgeSeconds float64   `json:"age_seconds,omitempty"`
	// Problem is the reason for which there has been no newer set since Since; absent if there is none. Until is how
	// long the last set is used.
	Problem string    `json:"problem,omitempty"`
	Since   time.Time `json:"since,omitzero"`
	Until   time.Time `json:"until,omitzero"`
	// Overdue: Until has passed, and the set is used only where the service had no backend otherwise.
	Overdue bool `json:"overdue,omitempty"`
	// Refused are its entries that cannot be backends, each with the cause: the first 20, and a line that counts the
	// others.
	Refused []string `json:"refused,omitempty"`
	// RefusedCount is the number of all of them.
	RefusedCount int `json:"refused_count,omitempty"`
}
