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
	// Backends is how many of the service's are from there.
	Backends int `json:"backends"`
	// Taken is when it gave the set that they are of, and AgeSeconds how long ago that was; absent
	// where it has given none.
	Taken      time.Time `json:"taken,omitzero"`
	AgeSeconds float64   `json:"age_seconds,omitempty"`
	// Problem is why it gives no newer set, since Since; absent where it does. Until is how long the
	// set is used meanwhile.
	Problem string    `json:"problem,omitempty"`
	Since   time.Time `json:"since,omitzero"`
	Until   time.Time `json:"until,omitzero"`
	// Overdue: Until has passed, and the set is used only where the service had no backend otherwise.
	Overdue bool `json:"overdue,omitempty"`
	// Refused are backends that it names and that cannot be any, each with the cause.
	Refused []string `json:"refused,omitempty"`
}
