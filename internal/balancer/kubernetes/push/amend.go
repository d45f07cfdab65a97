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
	result := Result{Generation: p.generation, Refused: map[string]string{}}
	for range maxRounds {
		if len(changed)+len(removed) == 0 && p.generation > 0 {
			return result, nil
		}
		text, err := formatDifference(changed, removed)
		if err != nil {
			return result, err
		}
		done, err := p.Balancer.Amend(ctx, p.Source, p.generation, text)
		if err == nil {
			result.Generation = done.Generation
			p.recordTaken(changed, removed, done.Generation)
			return result, nil
		}
		refused := p.refusedServices(err, len(changed))
		if len(refused) == 0 {
			return result, err
		}
		kept := changed[:0:0]
		for i, s := range changed {
			if why, bad := refused[i]; bad {
				result.Refused[s.Name] = why
				continue
			}
			kept = append(kept, s)
		}
		changed = kept
	}
	return result, errTooManyRounds()
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
		if !wanted[name] {
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
