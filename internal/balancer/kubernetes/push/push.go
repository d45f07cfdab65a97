// SPDX-License-Identifier: Apache-2.0

// Package push pushes services to the balancer of this host, as one source of its configuration.
package push

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strconv"
	"strings"

	"github.com/jeoul/jeoul/internal/balancer/api"
	"github.com/jeoul/jeoul/internal/balancer/config"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// maxRounds bounds the attempts to push the rest after the balancer has refused services.
const maxRounds = 64

// Balancer is the API of a balancer.
type Balancer interface {
	// SourceServices returns the names of a source's services, and its generation, which is 0 if there is no such
	// source; api.Client implements it.
	SourceServices(ctx context.Context, source string) (names []string, generation uint64, err error)
	// Apply replaces the content of a source by a text; api.Client implements it.
	Apply(ctx context.Context, source string, text []byte, dry bool) (*api.Change, error)
	// Amend changes a source of a generation by a difference; api.Client implements it.
	Amend(ctx context.Context, source string, generation uint64, text []byte) (*api.Change, error)
}

// Pusher pushes services, and remembers the accepted ones.
type Pusher struct {
	Balancer Balancer
	// Source is the name of the source of configuration.
	Source string
	// Keep reports whether a service of the balancer stays that is not pushed; nil: none does.
	Keep func(name string) bool
	// accepted are the services that the balancer has, by name, as of a generation of the source.
	accepted   map[string]lb.Service
	generation uint64
	// stale: the balancer may lack the accepted services.
	stale bool
	// excess are the services that the balancer has refused without naming one, by name.
	excess map[string]excess
}

// excess is a service that does not fit beside the others, and the balancer's reason.
type excess struct {
	service lb.Service
	why     string
}

// Result is the balancer's answer to services that were pushed.
type Result struct {
	// Generation is the generation of the source.
	Generation uint64
	// Refused are the balancer's reasons for refusing services, by name. It keeps their previous version, if there is
	// one.
	Refused map[string]string
}

// Forget has the next Push push all services: the balancer may lack those that it has accepted.
func (p *Pusher) Forget() { p.stale = true }

// Retry has the next Push try again the services that did not fit beside the others.
func (p *Pusher) Retry() { p.excess = map[string]excess{} }

// Push makes services the content of the source. Services that the balancer refuses keep their previous version. On an
// error, nothing is changed, or a part of what exceeds a limit. Only the difference from the accepted services is
// pushed, unless another client has changed the source.
func (p *Pusher) Push(ctx context.Context, services []lb.Service) (Result, error) {
	if p.accepted == nil || p.stale {
		return p.pushAll(ctx, services)
	}
	result, err := p.amend(ctx, services)
	switch {
	case isStatus(err, http.StatusPreconditionFailed):
		return p.pushAll(ctx, services)
	case needsWhole(err):
		return p.applyWhole(ctx, services)
	}
	return result, err
}

// pushAll pushes all services, as a difference from the source that the balancer has: refused ones stay as they are
// there, also after a restart of this program, and conflicts with other sources are reported at ours.
func (p *Pusher) pushAll(ctx context.Context, services []lb.Service) (Result, error) {
	names, generation, err := p.Balancer.SourceServices(ctx, p.Source)
	if err != nil {
		return Result{}, err
	}
	before := p.accepted
	p.Retry()
	p.accepted, p.generation, p.stale = make(map[string]lb.Service, len(names)), generation, false
	for _, name := range names {
		p.accepted[name] = lb.Service{Name: name} // its fields are not known: it differs from each service
	}
	result, err := p.amend(ctx, services)
	if needsWhole(err) {
		p.accepted, p.stale = before, true
		return p.applyWhole(ctx, services)
	}
	return result, err
}

// applyWhole replaces the source by all services, on a balancer of an earlier version.
func (p *Pusher) applyWhole(ctx context.Context, services []lb.Service) (Result, error) {
	if p.Keep != nil {
		return Result{}, errors.New("push the services that are known: a balancer of this version drops all others; update it")
	}
	wanted := append([]lb.Service(nil), services...)
	result := Result{Refused: map[string]string{}}
	old := map[string]bool{}
	for range maxRounds {
		text, err := formatServices(wanted)
		if err != nil {
			return result, err
		}
		change, err := p.Balancer.Apply(ctx, p.Source, text, false)
		if err == nil {
			result.Generation = change.Generation
			p.recordAll(wanted, change.Generation)
			return result, nil
		}
		refused := p.refusedServices(err, len(wanted))
		if len(refused) == 0 {
			return result, err
		}
		wanted = p.replaceRefused(wanted, refused, old, result.Refused)
	}
	return result, errTooManyRounds()
}

func errTooManyRounds() error {
	return fmt.Errorf("the balancer refused other services in each of %d tries", maxRounds)
}

// Has reports whether the balancer has accepted a service of this name.
func (p *Pusher) Has(name string) bool {
	_, has := p.accepted[name]
	return has
}

// formatServices returns services as the text of a source.
func formatServices(services []lb.Service) ([]byte, error) {
	made := config.New()
	made.Services = services
	text, err := config.WriteFragment(made, config.FileOwner)
	if err == nil && len(text) == 0 {
		text = []byte("services: []\n")
	}
	return text, err
}

// refusedServices returns the balancer's reasons for refusing services, by index.
func (p *Pusher) refusedServices(err error, count int) map[int]string {
	var problem *api.Problem
	if !errors.As(err, &problem) || problem.Status != http.StatusUnprocessableEntity {
		return nil
	}
	refused := map[int]string{}
	for _, fault := range problem.Errors {
		field, found := strings.CutPrefix(fault.Field, "services[")
		digits, rest, closed := strings.Cut(field, "]")
		i, err := strconv.Atoi(digits)
		if fault.Source != p.Source || !found || !closed || err != nil || i < 0 || i >= count {
			continue
		}
		if _, duplicate := refused[i]; !duplicate {
			refused[i] = strings.TrimPrefix(strings.TrimPrefix(rest, ".")+": "+fault.Message, ": ")
		}
	}
	return refused
}

// replaceRefused returns the services, with each refused one replaced by its previous version; a service whose previous
// version is refused, too, is left out.
func (p *Pusher) replaceRefused(wanted []lb.Service, refused map[int]string, old map[string]bool,
	why map[string]string) []lb.Service {
	kept := make([]lb.Service, 0, len(wanted))
	for i, s := range wanted {
		message, bad := refused[i]
		if !bad {
			kept = append(kept, s)
			continue
		}
		if _, known := why[s.Name]; !known {
			why[s.Name] = message
		}
		if before, existed := p.accepted[s.Name]; existed && !old[s.Name] && !reflect.DeepEqual(before, s) {
			kept = append(kept, before)
		}
		old[s.Name] = true
	}
	return kept
}

func (p *Pusher) recordAll(services []lb.Service, generation uint64) {
	p.generation, p.stale = generation, false
	p.accepted = make(map[string]lb.Service, len(services))
	for _, s := range services {
		p.accepted[s.Name] = s
	}
}
