// SPDX-License-Identifier: Apache-2.0

// Package direct has the baselines: no balancer, a router at its place, and the minimum that a program can do.
package direct

import (
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/weigh/bench/subject"
)

// Subjects are the subjects of this package, in the order of their presentation.
var Subjects = []subject.Subject{direct{}, routed{}, bare{lb.HookXDP}, bare{lb.HookTC}}
