// SPDX-License-Identifier: Apache-2.0

package health

import "github.com/jeoul/jeoul/internal/balancer/lb"

// The types of checks and their results are those of package lb: the control plane knows them without knowing the
// engine.
type (
	Wanted  = lb.CheckTarget
	State   = lb.Health
	Verdict = lb.Verdict
	Result  = lb.CheckResult
	Step    = lb.CheckStep
)

// The states.
const (
	Unknown = lb.HealthUnknown
	Healthy = lb.Healthy
	Failing = lb.Failing
)
