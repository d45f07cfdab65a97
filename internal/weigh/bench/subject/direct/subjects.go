// SPDX-License-Identifier: Apache-2.0

// Package direct has the baselines: no balancer, a router in its place, and the least that a program can do.
package direct

import (
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/weigh/bench/subject"
)

// Subjects are those of this package, in the order in which a person should see them.
var Subjects = []subject.Subject{direct{}, routed{}, bare{lb.HookXDP}, bare{lb.HookTC}}
