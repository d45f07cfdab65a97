// SPDX-License-Identifier: Apache-2.0

package sources

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strconv"

	"go.yaml.in/yaml/v3"

	"github.com/jeoul/jeoul/internal/balancer/config"
)

// Place is a part of the configuration: a source as a whole, a service of it, or a backend of that.
type Place struct {
	// Source may be empty if there is a service: then it is the service's source or, if none has it, API.
	Source, Service, Backend string
}

// String returns "web/web01", or the source's name.
func (at Place) String() string {
	switch {
	case at.Service == "":
		return "source " + at.Source
	case at.Backend == "":
		return "service " + at.Service
	}
	return "backend " + at.Service + "/" + at.Backend
}

// Part is the value at a place.
type Part struct {
	Source string
	// Value is the value there; nil where there is none.
	Value *yaml.Node
	// Tag identifies the value: it changes with the value.
	Tag string
}

// Verb is the kind of change to a place.
type Verb int

const (
	// Put puts a value in the place of the present one, if there is any.
	Put Verb = iota
	// Patch changes the present value by a JSON merge patch (RFC 7396).
	Patch
	// Delete takes it away.
	Delete
)

// Request is a request to change a place.
type Request struct {
	At   Place
	Verb Verb
	// Value is put there, or the patch.
	Value *yaml.Node
	// Text is the text of Value where its lines are to be named in problems; only of a whole source.
	Text []byte
	// If decides from the present value whether the change may happen; nil: always.
	If func(Part) error
	By string
	// Dry: return the result, and change nothing.
	Dry bool
}

// Owner returns the source that has a service; empty if none has.
func (s *Sources) Owner(service string) string {
	cfg := s.Config()
	for i := range cfg.Services {
		if cfg.Services[i].Name == service {
			return cfg.Owner(i)
		}
	}
	return ""
}

// text returns the text of a source's services, and its generation; those of the file as they would
// be written.
func (p *revision) text(source string) (text []byte, generation uint64, err error) {
	if source == config.FileOwner {
		text, err = config.WriteFragment(p.cfg, config.FileOwner)
		return text, 0, err
	}
	f := p.fragment(source)
	return f.Text, f.Generation, nil
}

// Get returns the value at a place. Errors: ErrNotFound.
func (s *Sources) Get(at Place) (Part, error) {
	at = s.resolve(at)
	p := s.now.Load()
	if _, known := p.find(at.Source); at.Service == "" && !known && at.Source != config.FileOwner && at.Source != API {
		return Part{}, fmt.Errorf("%w: there is no %s", ErrNotFound, at)
	}
	text, generation, err := p.text(at.Source)
	if err != nil {
		return Part{}, err
	}
	part, err := at.lookup(text, generation)
	if err == nil && part.Value == nil {
		err = fmt.Errorf("%w: there is no %s", ErrNotFound, at)
	}
	return part, err
}

// resolve names the source of a place.
func (s *Sources) resolve(at Place) Place {
	if at.Source == "" {
		at.Source = s.Owner(at.Service)
	}
	if at.Source == "" {
		at.Source = API
	}
	return at
}

// lookup returns the value at a place of a source's text.
func (at Place) lookup(text []byte, generation uint64) (Part, error) {
	document, services, err := servicesOf(text)
	if err != nil {
		return Part{}, err
	}
	part := Part{Source: at.Source}
	if at.Service == "" {
		part.Value, part.Tag = document, TagOf(generation)
		if at.Source != config.FileOwner {
			return part, nil
		}
	} else if list, i := at.find(services); i >= 0 {
		part.Value = list.Content[i]
	}
	if part.Value == nil {
		return part, nil
	}
	content, err := WriteJSON(part.Value)
	part.Tag = fmt.Sprintf("%x", sha256.Sum256(content))[:24]
	return part, err
}

// find returns the list that a service or backend stands in, and where; nil where there is no such
// list, -1 where it does not stand there.
func (at Place) find(services *yaml.Node) (list *yaml.Node, i int) {
	i = indexOfName(services, at.Service)
	if at.Backend == "" || i < 0 {
		if at.Backend != "" {
			return nil, -1
		}
		return services, i
	}
	if list = get(services.Content[i], "backends"); list == nil {
		return nil, -1
	}
	return list, indexOfName(list, at.Backend)
}

// Ask changes a place, as Change does a source. Errors: those of Change and of If, ErrNotFound, ErrOwned,
// ErrMalformed.
func (s *Sources) Ask(ctx context.Context, r Request) (Change, error) {
	if r.At = s.resolve(r.At); r.At.Source == config.FileOwner {
		return Change{}, fmt.Errorf("%w: %s is of the file %s: change it there, and reload", ErrOwned, r.At, s.path)
	}
	return s.Change(ctx, r.At.Source, r.By, r.Dry, func(before Fragment) ([]byte, bool, error) {
		if err := s.owned(r.At); err != nil {
			return nil, false, err
		}
		part, err := r.At.lookup(before.Text, before.Generation)
		if err == nil && r.If != nil {
			err = r.If(part)
		}
		if err != nil {
			return nil, false, err
		}
		return r.edit(before, part)
	})
}

// owned refuses a service of another source.
func (s *Sources) owned(at Place) error {
	switch owner := s.Owner(at.Service); {
	case at.Service == "" || owner == "" || owner == at.Source:
		return nil
	case owner == config.FileOwner:
		return fmt.Errorf("%w: %s is of the file %s: change it there, or remove it there first", ErrOwned,
			at.Service, s.path)
	default:
		return fmt.Errorf("%w: %s is of the source %s: name that, or remove it there first", ErrOwned,
			at.Service, owner)
	}
}

// edit returns the text of the source with the change.
func (r *Request) edit(before Fragment, part Part) (text []byte, composed bool, err error) {
	missing := fmt.Errorf("%w: there is no %s", ErrNotFound, r.At)
	if part.Value == nil && r.Verb != Put {
		return nil, false, missing
	}
	if r.At.Service == "" {
		return r.editSource(part)
	}
	document, services, err := servicesOf(before.Text)
	if err != nil {
		return nil, false, err
	}
	list, i := r.At.find(services)
	if list == nil {
		return nil, false, fmt.Errorf("%w: there is no service %s", ErrNotFound, r.At.Service)
	}
	if r.Verb == Delete {
		list.Content = append(list.Content[:i:i], list.Content[i+1:]...)
		text, err = encode(document, services)
		return text, true, err
	}
	value := r.Value
	if r.Verb == Patch {
		value = merge(part.Value, value)
	}
	if value, err = r.At.withName(value); err != nil {
		return nil, false, err
	}
	if i < 0 {
		list.Content = append(list.Content, value)
	} else {
		list.Content[i] = value
	}
	text, err = encode(document, services)
	return text, true, err
}

// editSource is edit for a source as a whole.
func (r *Request) editSource(part Part) (text []byte, composed bool, err error) {
	switch {
	case r.Verb == Delete:
		return nil, false, nil
	case r.Verb == Put && empty(r.Value):
		return nil, false, nil
	case r.Verb == Put && r.Text != nil:
		return r.Text, false, nil
	case r.Verb == Put:
		text, err = yaml.Marshal(r.Value)
		return text, true, err
	}
	merged := merge(part.Value, r.Value)
	if empty(merged) {
		return nil, false, nil
	}
	text, err = yaml.Marshal(merged)
	return text, true, err
}

// empty reports whether a source's value has no services and nothing else.
func empty(value *yaml.Node) bool {
	if value.Kind != yaml.MappingNode || len(value.Content) > 2 {
		return false
	}
	services := get(value, "services")
	return len(value.Content) == 0 || services != nil && services.Kind == yaml.SequenceNode &&
		len(services.Content) == 0
}

// withName returns a service or backend with the name of its place.
func (at Place) withName(value *yaml.Node) (*yaml.Node, error) {
	name, kind := at.Backend, "backend"
	if name == "" {
		name, kind = at.Service, "service"
	}
	if value.Kind != yaml.MappingNode {
		return nil, fmt.Errorf("%w: a %s must be a mapping of keys", ErrMalformed, kind)
	}
	switch given := get(value, "name"); {
	case given == nil:
		value.Content = append([]*yaml.Node{stringNode("name"), stringNode(name)}, value.Content...)
	case given.Value != name:
		return nil, fmt.Errorf("%w: name is %s, and the request is for %s; write the same, or leave it out",
			ErrMalformed, strconv.Quote(given.Value), name)
	}
	return value, nil
}
