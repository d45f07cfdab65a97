// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"maps"
	"slices"
	"strings"

	"github.com/jeoul/jeoul/internal/text/yamlfile"
)

// SettingsOf returns a load's settings of its own kind; the zero T, if it has none.
func SettingsOf[T any](l Load) T {
	own, _ := l.settings.(T)
	return own
}

// With returns the load with other settings of its own kind.
func (l Load) With(settings any) Load {
	l.settings = settings
	return l
}

// settle has each load's kind read the keys that are its own: true if that could be done.
func (p *suiteParser) settle(f *Form, at Path) (read bool) {
	f.Loads, read = slices.Clone(f.Loads), true
	for i := range f.Loads {
		read = p.settleLoad(&f.Loads[i], at.To("loads", i)) && read
	}
	return read
}

// settleLoad reads the keys that belong to the kind of a load, and reports those that do not.
func (p *suiteParser) settleLoad(l *Load, at Path) (read bool) {
	e, ok := findExperiment(l.Kind)
	if !ok {
		return true // which is said elsewhere
	}
	keys := keysOf(e)
	rest := maps.Clone(l.Rest)
	for _, key := range slices.Sorted(maps.Keys(rest)) {
		if owners := ownersOf(key); !slices.Contains(keys, key) && len(owners) > 0 {
			p.fail(at.To(key), "goes with %s, not with %s", strings.Join(owners, " and "), l.Kind)
			delete(rest, key)
		}
	}
	l.Rest = nil
	own, ok := e.(setting)
	if !ok {
		return p.DecodeRest(rest, &struct{}{})
	}
	l.settings = own.Settings(func(into any) { read = p.DecodeRest(rest, into) })
	return read
}

// keysOf are the keys that a kind has to itself.
func keysOf(e Experiment) (keys []string) {
	if own, ok := e.(setting); ok {
		own.Settings(func(into any) { keys = yamlfile.Keys(into) })
	}
	return keys
}

// ownersOf are the kinds that have a key.
func ownersOf(key string) (names []string) {
	for _, e := range registered {
		if slices.Contains(keysOf(e), key) {
			names = append(names, e.Name())
		}
	}
	return names
}
