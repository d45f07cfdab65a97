// SPDX-License-Identifier: Apache-2.0

package keytable

import (
	"fmt"

	"go.yaml.in/yaml/v3"

	"github.com/jeoul/jeoul/internal/text/yamlfile"
)

// field is a single value.
type field[T any, V comparable] struct {
	// get returns the value, and whether it must be written.
	get      func(*T) (V, bool)
	set      func(*T, V)
	scalar   Scalar[V]
	standard V
	fallback string
}

// Field is a single value in a field of T; standard is its value where none is written.
func Field[T any, V comparable](at func(*T) *V, scalar Scalar[V], standard V) Value[T] {
	words := "`" + scalar.Show(standard) + "`"
	return field[T, V]{getter(at, standard), setter(at), scalar, standard, words}
}

// Optional is a single value in a field of T that stays zero where none is written; then
// holds what fallback says in words, for which the package that has the table provides.
// Empty words are for a value that is required, or whose absence says nothing.
func Optional[T any, V comparable](at func(*T) *V, scalar Scalar[V], fallback string) Value[T] {
	return field[T, V]{getter(at, *new(V)), setter(at), scalar, *new(V), fallback}
}

// Computed is a single value that T does not keep as it is written: get returns it, and
// whether it must be written. Where none is written, standard is set unless it is zero,
// and fallback says in words what holds.
func Computed[T any, V comparable](get func(*T) (V, bool), set func(*T, V), scalar Scalar[V], standard V,
	fallback string) Value[T] {
	return field[T, V]{get, set, scalar, standard, fallback}
}

// getter finds that what holds anyway need not be written.
func getter[T any, V comparable](at func(*T) *V, standard V) func(*T) (V, bool) {
	return func(from *T) (V, bool) { return *at(from), *at(from) != standard }
}

func setter[T any, V comparable](at func(*T) *V) func(*T, V) {
	return func(to *T, value V) { *at(to) = value }
}

func (v field[T, V]) reset(to *T) {
	if v.standard != *new(V) {
		v.set(to, v.standard)
	}
}

func (v field[T, V]) read(f *yamlfile.File, node *yaml.Node, at string, to *T) {
	if value, ok := v.scalar.read(f, node, at); ok {
		v.set(to, value)
	}
}

func (v field[T, V]) write(from *T) *yaml.Node {
	value, needed := v.get(from)
	if !needed {
		return nil
	}
	return v.scalar.node(value)
}

func (v field[T, V]) describe() description {
	return description{kind: v.scalar.Kind, fallback: v.fallback, schema: v.scalar.Schema}
}

// mapping is a mapping in a field of T.
type mapping[T, V any] struct {
	at    func(*T) *V
	table Table[V]
}

// Mapping is a mapping of keys of its own, read into a field of T. It is written where
// one of its keys must be.
func Mapping[T, V any](at func(*T) *V, table Table[V]) Value[T] { return mapping[T, V]{at, table} }

func (v mapping[T, V]) reset(to *T) { v.table.Reset(v.at(to)) }

func (v mapping[T, V]) read(f *yamlfile.File, node *yaml.Node, at string, to *T) {
	v.table.Read(f, node, at, v.at(to))
}

func (v mapping[T, V]) write(from *T) *yaml.Node {
	node := v.table.Write(v.at(from))
	if len(node.Content) == 0 {
		return nil
	}
	return node
}

func (v mapping[T, V]) describe() description {
	return description{kind: "a mapping", keys: v.table.entries()}
}

// Length bounds a list that must have an element.
type Length struct {
	Max int
	// Empty and TooMany say what to do about a list without elements, and about one with
	// more than Max.
	Empty, TooMany string
	// Absent says in words what holds where there is no list; empty for one that is required.
	Absent string
}

// check reports a list of the wrong length: node is the list, n the elements taken.
func (l Length) check(f *yamlfile.File, node *yaml.Node, at string, n int) {
	switch {
	case node.Kind == yaml.SequenceNode && len(node.Content) == 0:
		f.Fail(at, "empty; %s", l.Empty)
	case n > l.Max:
		f.Fail(at, "%d are more than the %d %s", n, l.Max, l.TooMany)
	}
}

func (l Length) schema() map[string]any {
	return map[string]any{"type": "array", "minItems": 1, "maxItems": l.Max}
}

// mappings is a list of mappings in a field of T.
type mappings[T, V any] struct {
	at     func(*T) *[]V
	table  Table[V]
	length Length
}

// Mappings is a list of mappings, read into a field of T.
func Mappings[T, V any](at func(*T) *[]V, table Table[V], length Length) Value[T] {
	return mappings[T, V]{at, table, length}
}

func (v mappings[T, V]) reset(*T) {}

// read makes the readers of the elements' keys once: there may be a hundred thousand.
func (v mappings[T, V]) read(f *yamlfile.File, node *yaml.Node, at string, to *T) {
	var element V
	list := v.at(to)
	keys := v.table.keys(f, &element)
	f.Sequence(node, at, func(_ int, item *yaml.Node, at string) {
		v.table.Reset(&element)
		f.Mapping(item, at, keys)
		*list = append(*list, element)
	})
	v.length.check(f, node, at, len(*list))
}

// write puts an element that has only single values into a line of its own.
func (v mappings[T, V]) write(from *T) *yaml.Node {
	list := *v.at(from)
	if len(list) == 0 {
		return nil
	}
	sequence := &yaml.Node{Kind: yaml.SequenceNode}
	for i := range list {
		item := v.table.Write(&list[i])
		if plain(item) {
			item.Style = yaml.FlowStyle
		}
		sequence.Content = append(sequence.Content, item)
	}
	return sequence
}

// plain says whether a mapping has nothing but single values.
func plain(mapping *yaml.Node) bool {
	for _, node := range mapping.Content {
		if node.Kind != yaml.ScalarNode {
			return false
		}
	}
	return true
}

func (v mappings[T, V]) describe() description {
	return description{kind: fmt.Sprintf("a list of up to %d mappings", v.length.Max),
		schema: v.length.schema(), list: true, keys: v.table.entries()}
}

// items is a list of single values in a field of T.
type items[T any, V comparable] struct {
	at     func(*T) *[]V
	scalar Scalar[V]
	noun   string
	length Length
	// keep: what was refused stays as a zero value, so that the others keep their places.
	keep bool
	// lone: a list of one is written by another key.
	lone bool
	// bare: a list of one is written as its element.
	bare bool
	// again: an element may come again.
	again bool
}

// Items is a list of single values, each once, read into a field of T; noun is one of
// them. An element that was refused stays as a zero value, so that the others keep their
// places.
func Items[T any, V comparable](at func(*T) *[]V, scalar Scalar[V], noun string, length Length) Value[T] {
	return items[T, V]{at: at, scalar: scalar, noun: noun, length: length, keep: true}
}

// Several is Items beside a key of the same field for a single one: a list of one is
// written by that key. Elements that were refused are left out.
func Several[T any, V comparable](at func(*T) *[]V, scalar Scalar[V], noun string, length Length) Value[T] {
	return items[T, V]{at: at, scalar: scalar, noun: noun, length: length, lone: true}
}

// OneOrItems is Items, where a single element may be written as it is, without a list.
func OneOrItems[T any, V comparable](at func(*T) *[]V, scalar Scalar[V], noun string, length Length) Value[T] {
	return items[T, V]{at: at, scalar: scalar, noun: noun, length: length, keep: true, bare: true}
}

// Sequence is a list of single values in which one may come again, as the arguments of a
// program.
func Sequence[T any, V comparable](at func(*T) *[]V, scalar Scalar[V], length Length) Value[T] {
	return items[T, V]{at: at, scalar: scalar, length: length, keep: true, again: true}
}

func (v items[T, V]) reset(*T) {}

func (v items[T, V]) read(f *yamlfile.File, node *yaml.Node, at string, to *T) {
	list, seen := v.at(to), map[V]string{}
	*list = nil
	if v.bare && node.Kind == yaml.ScalarNode {
		if value, ok := v.scalar.read(f, node, at); ok {
			*list = []V{value}
		}
		return
	}
	f.Sequence(node, at, func(_ int, item *yaml.Node, at string) {
		value, ok := v.scalar.read(f, item, at)
		if first, again := seen[value]; ok && again && !v.again {
			f.Fail(at, "%s is already %s; name each %s once", v.scalar.Show(value), f.Place(first), v.noun)
			ok = v.keep
		} else if ok {
			seen[value] = at
		}
		if ok || v.keep {
			*list = append(*list, value)
		}
	})
	v.length.check(f, node, at, len(*list))
}

func (v items[T, V]) write(from *T) *yaml.Node {
	list := *v.at(from)
	if len(list) == 0 || (v.lone && len(list) == 1) {
		return nil
	}
	sequence := &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
	for _, value := range list {
		sequence.Content = append(sequence.Content, v.scalar.node(value))
	}
	if v.bare && len(list) == 1 {
		return sequence.Content[0]
	}
	return sequence
}

func (v items[T, V]) describe() description {
	schema := v.length.schema()
	schema["items"], schema["uniqueItems"] = v.scalar.Schema, !v.again
	kind := fmt.Sprintf("a list of up to %d, each %s", v.length.Max, v.scalar.Kind)
	if v.bare {
		kind = v.scalar.Kind + ", or " + kind
		schema = map[string]any{"anyOf": []any{v.scalar.Schema, schema}}
	}
	return description{kind: kind, fallback: v.length.Absent, schema: schema}
}
