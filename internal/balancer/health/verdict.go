// SPDX-License-Identifier: Apache-2.0

package health

import "github.com/jeoul/jeoul/internal/balancer/lb"

// What is asked, and what comes of it, are words of the domain: the control plane knows them
// without knowing who asks.
type (
	Wanted  = lb.Checking
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
