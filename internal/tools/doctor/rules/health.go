// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"cmp"
	"slices"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
)

// Consequences for a service with a backend that fails its checks, by the destination of new flows.
const (
	allUsed     = "So few backends are healthy that all get new flows, failing ones too (`panic`): rather than all backends at once, the checks may be at fault, or the network between."
	backupsUsed = "New flows go to the backups, for no other backend is healthy."
	noneHealthy = "No backend is healthy, and new flows are refused."
	vipGone     = "No backend of the VIP's services serves, and the VIP is withdrawn from the interface."
	othersUsed  = "New flows go to the other backends."
)

// Consequences for the flows of a backend that fails its checks.
const (
	flowsStay  = "Those that it has stay with it, and hang if it does."
	flowsReset = "Those that it has are reset."
	flowsMove  = "Those that it has move to the others."
)

// checkHealth finds backends whose health checks fail, and backends that fail clients.
func checkHealth(s *ops.Status) []Finding { return append(checkChecks(s), checkOutliers(s)...) }

// checkOutliers finds ejected backends, and failing backends that are not ejected for lack of others.
func checkOutliers(s *ops.Status) []Finding {
	var figures []Figure
	var means consequences
	for _, service := range s.Services {
		for _, b := range service.Backends {
			on := service.Name + "/" + b.Name
			switch {
			case b.Ejection != nil:
				figures = append(figures, Figure{Name: "state " + string(b.State), On: on, Value: 1, Unit: "backend",
					Note: b.Ejection.Reason})
				means.add(service.Name, withoutHealth(service))
			case b.Spared != "":
				figures = append(figures, Figure{Name: "state " + string(b.State), On: on, Value: 1, Unit: "backend",
					Note: "is not ejected, for " + b.Spared})
				means.add(service.Name, sparedServes)
			}
		}
	}
	return aboutBackends(backendUnhealthy, figures, means, "Backend %s fails what clients send it",
		"%d backends fail what clients send them, such as %s")
}

// sparedServes is the consequence for a service if a failing backend is not ejected.
const sparedServes = "New flows still go to it, and fail."

// checkChecks finds backends whose health checks fail.
func checkChecks(s *ops.Status) []Finding {
	var figures []Figure
	var means consequences
	for _, service := range s.Services {
		for _, b := range service.Backends {
			if b.Health == nil || b.Health.State != lb.Failing || b.State == lb.Out { // taken out by a person
				continue
			}
			reason := cmp.Or(b.Health.Reason, "fails its health checks")
			figures = append(figures, Figure{Name: "state " + string(b.State), On: service.Name + "/" + b.Name,
				Value: 1, Unit: "backend", Note: reason})
			means.add(service.Name, withoutHealth(service))
		}
	}
	return aboutBackends(backendUnhealthy, figures, means, "The health checks of backend %s fail",
		"The health checks of %d backends fail, such as those of %s")
}

// withoutHealth describes the consequences for the packets of a service's backends that fail their checks.
func withoutHealth(s ops.Service) string {
	takes := func(b ops.Backend) bool { return b.State == lb.Up && b.Weight > 0 }
	switch {
	case s.Withdrawn:
		return vipGone
	case s.Serving == ops.ServingAll:
		return allUsed
	case !slices.ContainsFunc(s.Backends, takes):
		return noneHealthy + " " + flowsOf(s)
	case s.Serving == ops.ServingBackups:
		return backupsUsed + " " + flowsOf(s)
	}
	return othersUsed + " " + flowsOf(s)
}

func flowsOf(s ops.Service) string {
	switch s.OnDown {
	case lb.ResetFlows:
		return flowsReset
	case lb.MoveFlows:
		return flowsMove
	}
	return flowsStay
}
