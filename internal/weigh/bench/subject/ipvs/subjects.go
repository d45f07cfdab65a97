// SPDX-License-Identifier: Apache-2.0

// Package ipvs has the kernel's own balancer, alone or as several behind a router. The bench or keepalived fills its
// table.
package ipvs

import "github.com/jeoul/jeoul/internal/weigh/bench/subject"

// Subjects are the subjects of this package, in the order of their presentation.
var Subjects = []subject.Subject{
	ipvs{ipvsDirect}, ipvs{ipvsMasquerade}, ipvs{ipvsTunnel},
	keepalived{ipvsDirect}, keepalived{ipvsMasquerade}, keepalived{ipvsTunnel},
}
