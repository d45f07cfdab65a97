// SPDX-License-Identifier: Apache-2.0

package push

import (
	"context"
	"errors"
	"net/http"
	"reflect"
	"slices"

	"github.com/jeoul/jeoul/internal/balancer/api"
	"github.com/jeoul/jeoul/internal/balancer/config"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// isStatus reports whether the balancer answered by one of these statuses.
func isStatus(err error, statuses ...int) bool {
	var problem *api.Problem
	return errors.As(err, &problem) && slices.Contains(statuses, problem.Status)
}

// needsWhole reports whether a difference was refused because an earlier version does not support differences.
func needsWhole(err error) bool {
	return isStatus(err, http.StatusNotFound, http.StatusMethodNotAllowed)
}

// amend pushes the services that differ from the accepted ones. It creates a missing source, also without services.
func (p *Pusher) amend(ctx context.Context, services []lb.Service) (Result, error) {
	changed, removed := p.difference(services)
	if len(removed) > 0 { // that makes room
		p.Retry()
	}
	a := amending{Pusher: p, tries: maxRounds, result: Result{Generation: p.generation, Refused: map[string]string{}}}
	err := a.push(ctx, a.withoutExcess(changed), removed)
	return a.result, err
}

// amending is a difference that is being pushed, as a whole or in parts.
type amending struct {
	*Pusher
	result Result
	// tries are the requests that are left, and exceeded is the last refusal that names no service.
	tries    int
	exceeded error
}

// push pushes a part of the difference.
func (a *amending) push(ctx context.Context, changed []lb.Service, removed []string) error {
	for a.tries > 0 {
		if len(changed)+len(removed) == 0 && a.generation > 0 {
			return nil
		}
		text, err := formatDifference(changed, removed)
		if err != nil {
			return err
		}
		a.tries--
		done, err := a.Balancer.Amend(ctx, a.Source, a.generation, text)
		if err == nil {
			a.result.Generation = done.Generation
			a.recordTaken(changed, removed, done.Generation)
			return nil
		}
		refused := a.refusedServices(err, len(changed))
		if len(refused) == 0 {
			return a.pushParts(ctx, changed, removed, err)
		}
		kept := changed[:0:0]
		for i, s := range changed {
			if why, bad := refused[i]; bad {
				a.result.Refused[s.Name] = why
				continue
			}
			kept = append(kept, s)
		}
		changed = kept
	}
	if a.exceeded == nil || len(removed) > 0 {
		return errTooManyRounds()
	}
	a.leaveOut(changed)
	return nil
}

// pushParts pushes a difference that the balancer has refused without naming a service, as where all services together
// need more memory than they may. Removed services go first, for that makes room. Of the others it takes those halves
// that fit.
func (a *amending) pushParts(ctx context.Context, changed []lb.Service, removed []string, err error) error {
	if !isStatus(err, http.StatusUnprocessableEntity) || len(changed) == 0 {
		return err
	}
	a.exceeded = err
	if len(changed) == 1 && len(removed) == 0 {
		a.leaveOut(changed)
		return nil
	}
	first, second := []lb.Service(nil), changed
	if len(removed) == 0 {
		// Services that the balancer has come before new ones, which are what exceeds a limit mostly.
		slices.SortStableFunc(changed, func(x, y lb.Service) int { return a.order(x) - a.order(y) })
		first, second = changed[:len(changed)/2], changed[len(changed)/2:]
	}
	if err := a.push(ctx, first, removed); err != nil {
		return err
	}
	return a.push(ctx, second, nil)
}

// order is 0 for a service that the balancer has, and 1 for a new one.
func (a *amending) order(s lb.Service) int {
	if a.Has(s.Name) {
		return 0
	}
	return 1
}

// leaveOut leaves services as the balancer has them, until Retry or until they change.
func (a *amending) leaveOut(services []lb.Service) {
	for _, s := range services {
		a.excess[s.Name] = excess{s, a.exceeded.Error()}
		a.result.Refused[s.Name] = a.exceeded.Error()
	}
}

// withoutExcess returns the services without those that are left out: each push would search for them anew.
func (a *amending) withoutExcess(services []lb.Service) []lb.Service {
	return slices.DeleteFunc(services, func(s lb.Service) bool {
		left, is := a.excess[s.Name]
		is = is && same(&left.service, &s)
		if is {
			a.result.Refused[s.Name] = left.why
		}
		return is
	})
}

// difference returns the services that are new or changed, and the names of removed ones, both in the order of their
// names.
func (p *Pusher) difference(services []lb.Service) (changed []lb.Service, removed []string) {
	wanted := make(map[string]bool, len(services))
	for i := range services {
		s := &services[i]
		wanted[s.Name] = true
		if had, has := p.accepted[s.Name]; !has || !same(&had, s) {
			changed = append(changed, *s)
		}
	}
	for name := range p.accepted {
		if !wanted[name] && (p.Keep == nil || !p.Keep(name)) {
			removed = append(removed, name)
		}
	}
	slices.Sort(removed)
	return changed, removed
}

// Same reports whether two lists have the same services, which mostly share their memory.
func Same(a, b []lb.Service) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !same(&a[i], &b[i]) {
			return false
		}
	}
	return true
}

// same reports whether two services are equal. Mostly they share their lists of backends.
func same(a, b *lb.Service) bool {
	if lb.Identical(a, b) {
		return true
	}
	if !lb.SameBackends(a.Backends, b.Backends) {
		return false
	}
	x, y := *a, *b
	x.Backends, y.Backends = nil, nil
	return reflect.DeepEqual(x, y)
}

// formatDifference returns the text of a difference.
func formatDifference(changed []lb.Service, removed []string) ([]byte, error) {
	texts, err := config.WriteServices(config.New(), changed)
	if err != nil {
		return nil, err
	}
	text, err := config.WriteAmendment(texts, removed)
	if err == nil && len(text) == 0 {
		text = []byte("services: []\n")
	}
	return text, err
}

// recordTaken records the services that the balancer has accepted.
func (p *Pusher) recordTaken(changed []lb.Service, removed []string, generation uint64) {
	for _, s := range changed {
		p.accepted[s.Name] = s
	}
	for _, name := range removed {
		delete(p.accepted, name)
	}
	p.generation = generation
}
