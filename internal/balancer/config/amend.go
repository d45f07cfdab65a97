// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/text/keytable"
	"github.com/jeoul/jeoul/internal/text/yamlfile"
)

// Amendment is a difference of a fragment.
type Amendment struct {
	// Put are the new and changed services, as they are in force now.
	Put []lb.Service
	// Removed are the names of the removed ones.
	Removed []string
}

// amendment is a parsed difference.
type amendment struct {
	services []lb.Service
	remove   []string
}

var amendmentKeys = keytable.Table[amendment]{
	{Name: "services",
		What: "Services that take the places of those of the same names, or are new.",
		Value: keytable.OrEmpty(func(*amendment) bool { return false },
			keytable.Mappings(func(a *amendment) *[]lb.Service { return &a.services }, serviceKeys,
				keytable.Length{Max: MaxServices, TooMany: "that a balancer can hold; split them between two",
					Absent: "none"}))},
	{Name: "remove",
		What: "Names of services of the source that are taken away.",
		Value: keytable.OrEmpty(func(*amendment) bool { return false },
			keytable.Items(func(a *amendment) *[]string { return &a.remove }, label, "name",
				keytable.Length{Max: MaxServices, TooMany: "that a balancer can hold", Absent: "none"}))},
}

var amendmentKind = yamlfile.Kind{Noun: "a difference of a fragment", Needs: "services or remove", MaxBytes: MaxBytes}

// Amend returns the configuration in which a text has changed a fragment: its `services` replace those of the same
// names, and its `remove` names the removed ones. A new service is inserted before the first of the fragment whose name
// is greater. Only the services of the text are checked: all others are known to be valid. The error is a
// yamlfile.Problems with all mistakes, each under the name of the fragment and its field in the text.
func (c *Config) Amend(source Source) (*Config, Amendment, error) {
	part, read := yamlfile.NewFile(source.Name), amendment{}
	if root := part.Document(source.Data, amendmentKind); root != nil {
		keytable.Read(amendmentKeys, part, root, "", &read)
	}
	a := amender{before: c, name: source.Name, read: read, put: map[string]int{}, gone: map[string]bool{}}
	a.first, a.last = c.placeOf(source.Name)
	a.indexNames(part)
	p := a.check(part)
	if err := p.Problems.Err(); err != nil {
		p.Problems.SortByLine()
		return nil, Amendment{}, err
	}
	made, difference := a.result(p)
	return made, difference, nil
}

// placeOf returns the indices of a fragment's services, or those at which they would be.
func (c *Config) placeOf(name string) (first, last int) {
	n, there := c.findFragment(name)
	end := func(n int) int {
		if n < len(c.fragments) {
			return c.fragments[n].first
		}
		return len(c.Services)
	}
	if !there {
		return end(n), end(n)
	}
	return end(n), end(n + 1)
}

// findFragment returns the index of the fragment with a name, or that at which it would be.
func (c *Config) findFragment(name string) (n int, there bool) {
	return slices.BinarySearchFunc(c.fragments, name, func(f fragment, name string) int {
		return cmp.Compare(f.name, name)
	})
}

// amender applies a text of changes to a fragment of a configuration.
type amender struct {
	before *Config
	name   string
	// The fragment's services are those from first up to last.
	first, last int
	read        amendment
	// put are the services of the text by their names, and gone the names of the removed ones.
	put  map[string]int
	gone map[string]bool
}

// indexNames records the names in the text.
func (a *amender) indexNames(f *yamlfile.File) {
	for k, s := range a.read.services {
		claim(a.put, s.Name, k)
	}
	there := make(map[string]bool, a.last-a.first)
	if len(a.read.remove) > 0 {
		for _, s := range a.before.Services[a.first:a.last] {
			there[s.Name] = true
		}
	}
	for k, name := range a.read.remove {
		field := yamlfile.Element("remove", k)
		_, put := a.put[name]
		switch {
		case name == "": // reported before
		case put:
			f.Fail(field, "%s is one of the services, too; keep it in one of the two lists", name)
		case !there[name]:
			f.Fail(field, "there is no service %s in the source; read it again, and decide again", name)
		}
		a.gone[name] = true
	}
}

// check checks the services of the text behind all others, as a fragment of their own. The services that they replace,
// and removed ones, are left empty.
func (a *amender) check(part *yamlfile.File) *parser {
	c := a.before
	p := &parser{File: c.file.Alone(), cfg: &Config{}, old: len(c.Services), oldVIPs: map[netip.Addr]bool{}}
	*p.cfg = *c
	p.cfg.file, p.cfg.Warnings = p.File, nil
	if len(c.spareFullNAT.Addresses) > 0 {
		p.cfg.FullNAT = c.spareFullNAT
	}
	p.cfg.Services = make([]lb.Service, len(c.Services), len(c.Services)+len(a.read.services))
	copy(p.cfg.Services, c.Services)
	count := len(c.Services) + len(a.read.services)
	for i := a.first; i < a.last; i++ {
		name := c.Services[i].Name
		if _, replaced := a.put[name]; replaced || a.gone[name] {
			count--
			p.oldVIPs[c.Services[i].VIP] = true
			p.cfg.Services[i] = lb.Service{}
		}
	}
	for n, of := range c.file.Parts() {
		p.Append(of, "services", c.fragments[n].first)
	}
	p.Append(part, "services", p.old)
	p.cfg.Services = append(p.cfg.Services, a.read.services...)
	if count > MaxServices {
		p.Fail("services",
			"%d services of all sources are more than the %d that a balancer can hold; split them between two", count,
			MaxServices)
	}
	p.check()
	return p
}

// result returns the configuration with the services of the text in their places.
func (a *amender) result(p *parser) (*Config, Amendment) {
	c, difference := *p.cfg, Amendment{Put: p.cfg.Services[p.old:]}
	for i := a.first; i < a.last; i++ {
		if name := a.before.Services[i].Name; a.gone[name] {
			difference.Removed = append(difference.Removed, name)
		}
	}
	list := a.merge(difference.Put)
	c.Services = list
	if a.first > 0 || a.last < len(a.before.Services) {
		c.Services = slices.Concat(a.before.Services[:a.first], list, a.before.Services[a.last:])
	}
	a.placeFragments(&c, len(list))
	c.Warnings = a.warnings(p, list)
	return &c, difference
}

// merge returns the services of the fragment with those of the text in their places.
func (a *amender) merge(fresh []lb.Service) []lb.Service {
	put := make(map[string]lb.Service, len(fresh))
	for name, k := range a.put {
		put[name] = fresh[k]
	}
	return ReplaceByName(a.before.Services[a.first:a.last], func(s *lb.Service) string { return s.Name }, put, a.gone)
}

// ReplaceByName returns a list in which the elements of put take the places of those of the same names, new ones stand
// before the first whose name comes after their own, and those that are gone are left out.
func ReplaceByName[T any](before []T, nameOf func(*T) string, put map[string]T, gone map[string]bool) []T {
	added := maps.Clone(put)
	for i := range before {
		delete(added, nameOf(&before[i]))
	}
	list, names := make([]T, 0, len(before)+len(added)), slices.Sorted(maps.Keys(added))
	for i := range before {
		name := nameOf(&before[i])
		for len(names) > 0 && names[0] < name {
			list, names = append(list, added[names[0]]), names[1:]
		}
		if replacement, replaced := put[name]; replaced {
			list = append(list, replacement)
		} else if !gone[name] {
			list = append(list, before[i])
		}
	}
	for _, name := range names {
		list = append(list, added[name])
	}
	return list
}

// placeFragments records where each fragment's services begin; the amended one has no line numbers.
func (a *amender) placeFragments(c *Config, count int) {
	parts := a.before.file.Parts()
	c.fragments = slices.Clone(a.before.fragments)
	n, there := a.before.findFragment(a.name)
	if !there {
		c.fragments = slices.Insert(c.fragments, n, fragment{a.name, a.first})
		parts = slices.Insert(parts, n, nil)
	}
	parts[n] = yamlfile.NewFile(a.name)
	for later := n + 1; later < len(c.fragments); later++ {
		c.fragments[later].first += count - (a.last - a.first)
	}
	c.file = a.before.file.Alone()
	for n, of := range parts {
		c.file.Append(of, "services", c.fragments[n].first)
	}
}

// warnings returns the warnings about the services that stay, and those found now.
func (a *amender) warnings(p *parser, list []lb.Service) yamlfile.Problems {
	if len(a.before.Warnings)+len(p.cfg.Warnings) == 0 {
		return nil
	}
	at := make(map[string]int, len(list))
	for i, s := range list {
		at[s.Name] = i
	}
	var all yamlfile.Problems
	// take copies a warning about a service of a list; old: the list is the previous one.
	take := func(w yamlfile.Problem, services []lb.Service, old bool) {
		i, rest, ok := yamlfile.ElementOf(w.Field, "services")
		switch {
		case !ok && old: // of the file as a whole: found again
			return
		case ok && w.File == a.name && i < len(services):
			name := services[i].Name
			_, replaced := a.put[name]
			to, there := at[name]
			if !there || old && replaced {
				return
			}
			w.Line, w.Field = 0, yamlfile.Element("services", to)+rest
		}
		all = append(all, w)
	}
	for _, w := range a.before.Warnings {
		take(w, a.before.Services[a.first:a.last], true)
	}
	for _, w := range p.cfg.Warnings {
		take(w, a.read.services, false)
	}
	all.SortByLine()
	return all
}

// checkOld refuses VIPs of new services that are addresses of backends which are there.
func (p *parser) checkOld(fresh map[netip.Addr]int) {
	if len(fresh) == 0 {
		return
	}
	for i, s := range p.cfg.Services[:p.old] {
		for j, b := range s.Backends {
			if at, isVIP := fresh[b.Address]; isVIP {
				p.Fail(ServiceField(at, "vip"), "%s is the address of a backend, %s; use another", b.Address,
					p.Place(BackendField(i, j, "address")))
				delete(fresh, b.Address) // once is enough
			}
		}
	}
}

// WriteService returns the text of a service in the form of WriteFragment, without FragmentHead.
func WriteService(c *Config, s lb.Service) ([]byte, error) {
	only := Config{Services: []lb.Service{withoutDefaults(c, s)}}
	text, err := yamlfile.Encode(keytable.Write(fragmentKeys, &only))
	if err != nil {
		return nil, fmt.Errorf("write the service %s: %w", s.Name, err)
	}
	return bytes.TrimPrefix(text, []byte(FragmentHead)), nil
}

// WriteServices returns the texts of services as WriteService does. It encodes them as one list: an encoder for each
// service would take more memory than all texts.
func WriteServices(c *Config, services []lb.Service) ([][]byte, error) {
	if len(services) == 0 {
		return nil, nil
	}
	all := Config{Services: make([]lb.Service, len(services))}
	for i := range services {
		all.Services[i] = withoutDefaults(c, services[i])
	}
	text, err := yamlfile.Encode(keytable.Write(fragmentKeys, &all))
	if err != nil {
		return nil, fmt.Errorf("write %d services: %w", len(services), err)
	}
	if texts := itemsOf(bytes.TrimPrefix(text, []byte(FragmentHead))); len(texts) == len(services) {
		return texts, nil
	}
	texts := make([][]byte, len(services)) // a text has a line that looks like the first one of a service
	for i, s := range services {
		if texts[i], err = WriteService(c, s); err != nil {
			return nil, err
		}
	}
	return texts, nil
}

// itemsOf splits a list that encode has written, by indentation. Each item has memory of its own, because it may be
// kept for longer than the others.
func itemsOf(list []byte) (items [][]byte) {
	begin, at := 0, 0
	for line := range bytes.Lines(list) {
		if bytes.HasPrefix(line, []byte("  - ")) && at > 0 {
			items, begin = append(items, bytes.Clone(list[begin:at])), at
		}
		at += len(line)
	}
	return append(items, bytes.Clone(list[begin:at]))
}

// FragmentHead precedes the services in a text of WriteFragment.
const FragmentHead = "services:\n"

// WriteAmendment returns the text of a difference, for Amend, from the texts of its services as WriteService returns
// them.
func WriteAmendment(services [][]byte, removed []string) ([]byte, error) {
	var text []byte
	if len(services) > 0 {
		text = append([]byte(FragmentHead), bytes.Join(services, nil)...)
	}
	if len(removed) == 0 {
		return text, nil
	}
	names, err := yamlfile.Encode(keytable.Write(amendmentKeys, &amendment{remove: removed}))
	return append(text, names...), err
}

// ServicesOf returns the services of a fragment, in their order.
func (c *Config) ServicesOf(name string) []lb.Service {
	first, last := c.placeOf(name)
	return c.Services[first:last]
}
