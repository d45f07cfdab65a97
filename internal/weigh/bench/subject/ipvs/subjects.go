// SPDX-License-Identifier: Apache-2.0

// Package ipvs has the kernel's own balancer, whose table the bench fills or keepalived, alone or as several behind a
// router.
package ipvs

import "github.com/jeoul/jeoul/internal/weigh/bench/subject"

// Subjects are those of this package, in the order in which a person should see them.
var Subjects = []subject.Subject{
	ipvs{ipvsDirect}, ipvs{ipvsMasquerade}, ipvs{ipvsTunnel},
	keepalived{ipvsDirect}, keepalived{ipvsMasquerade}, keepalived{ipvsTunnel},
}
