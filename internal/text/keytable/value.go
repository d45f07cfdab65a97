// SPDX-License-Identifier: Apache-2.0

package keytable

import (
	"fmt"

	"go.yaml.in/yaml/v3"

	"github.com/jeoul/jeoul/internal/text/yamlfile"
)

// field is a single value.
type field struct {
	// take has the value that a text stands for in *to, or returns the fault.
	take func(to any, text string) (wrong string)
	// show returns the value's text, and whether it must be written.
	show func(from any) (text string, needed bool)
	// usual sets the value that holds where none is written; nil: the zero value.
	usual    func(to any)
	tag      string
	kind     string
	fallback string
	schema   map[string]any
}

// Field is a single value in a field of T; standard is its value where none is written.
func Field[T any, V comparable](at func(*T) *V, scalar Scalar[V], standard V) Value[T] {
	words := "`" + scalar.Show(standard) + "`"
	return Computed(getter(at, standard), setter(at), scalar, standard, words)
}

// Optional is a single value in a field of T that stays zero where none is written; then the default holds that
// fallback describes, for which the package that has the table provides. Empty words are for a value that is required,
// or whose absence says nothing.
func Optional[T any, V comparable](at func(*T) *V, scalar Scalar[V], fallback string) Value[T] {
	return Computed(getter(at, *new(V)), setter(at), scalar, *new(V), fallback)
}

// Computed is a single value that T does not keep as it is written: get returns it, and whether it must be written.
// Where none is written, standard is set unless it is zero, and fallback describes the default.
func Computed[T any, V comparable](get func(*T) (V, bool), set func(*T, V), scalar Scalar[V], standard V,
	fallback string) Value[T] {
	f := field{tag: scalar.Tag, kind: scalar.Kind, fallback: fallback, schema: scalar.Schema}
	f.take = func(to any, text string) string {
		value, wrong := scalar.Parse(text)
		if wrong == "" {
			set(to.(*T), value)
		}
		return wrong
	}
	f.show = func(from any) (string, bool) {
		value, needed := get(from.(*T))
		if !needed {
			return "", false
		}
		return scalar.Show(value), true
	}
	if standard != *new(V) {
		f.usual = func(to any) { set(to.(*T), standard) }
	}
	return Value[T]{f}
}

// getter finds that a value which holds anyway need not be written.
func getter[T any, V comparable](at func(*T) *V, standard V) func(*T) (V, bool) {
	return func(from *T) (V, bool) { return *at(from), *at(from) != standard }
}

func setter[T any, V comparable](at func(*T) *V) func(*T, V) {
	return func(to *T, value V) { *at(to) = value }
}

func (v field) reset(to any) {
	if v.usual != nil {
		v.usual(to)
	}
}

func (v field) read(f *yamlfile.File, node *yaml.Node, at string, to any) {
	text, ok := f.Scalar(node, at)
	if !ok {
		return
	}
	if wrong := v.take(to, text); wrong != "" {
		f.Fail(at, "%s", wrong)
	}
}

func (v field) write(from any) *yaml.Node {
	text, needed := v.show(from)
	if !needed {
		return nil
	}
	return scalarNode(v.tag, text)
}

func (v field) describe() description {
	return description{kind: v.kind, fallback: v.fallback, schema: v.schema}
}

// mapping is a mapping in a field of T.
type mapping struct {
	// at returns the address of the field.
	at    func(of any) any
	table table
}

// Mapping is a mapping of keys of its own, read into a field of T. It is written where
// one of its keys must be.
func Mapping[T, V any](at func(*T) *V, table Table[V]) Value[T] {
	return Value[T]{newMapping(at, table)}
}

func newMapping[T, V any](at func(*T) *V, table Table[V]) mapping {
	return mapping{func(of any) any { return at(of.(*T)) }, untyped(table)}
}

func (v mapping) reset(to any) { v.table.reset(v.at(to)) }

func (v mapping) read(f *yamlfile.File, node *yaml.Node, at string, to any) {
	v.table.read(f, node, at, v.at(to))
}

func (v mapping) write(from any) *yaml.Node { return v.table.writeSome(v.at(from)) }

// writeSome is write; nil where nothing need be written.
func (t table) writeSome(from any) *yaml.Node {
	if node := t.write(from); len(node.Content) > 0 {
		return node
	}
	return nil
}

func (v mapping) describe() description {
	return description{kind: "a mapping", keys: v.table.entries()}
}

// Length bounds a list that must have an element.
type Length struct {
	Max int
	// Empty and TooMany name the remedy for a list without elements, and for one with more than Max.
	Empty, TooMany string
	// Absent describes the default where there is no list; empty for one that is required.
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
type mappings struct {
	list
	table  table
	length Length
}

// list is a slice in a field of T, of elements whose type the compiler does not know: all are given by address.
type list struct {
	count func(of any) int
	at    func(of any, i int) any
	add   func(to, element any)
	clear func(of any)
}

func newList[T, V any](at func(*T) *[]V) list {
	return list{
		count: func(of any) int { return len(*at(of.(*T))) },
		at:    func(of any, i int) any { return &(*at(of.(*T)))[i] },
		add: func(to, element any) {
			list := at(to.(*T))
			*list = append(*list, *element.(*V))
		},
		clear: func(of any) { *at(of.(*T)) = nil },
	}
}

// Mappings is a list of mappings, read into a field of T.
func Mappings[T, V any](at func(*T) *[]V, table Table[V], length Length) Value[T] {
	return Value[T]{mappings{newList(at), untyped(table), length}}
}

func (v mappings) reset(any) {}

// read makes the readers of the elements' keys once: there may be a hundred thousand.
func (v mappings) read(f *yamlfile.File, node *yaml.Node, at string, to any) {
	element := v.table.create()
	keys := v.table.readers(f, element)
	f.Sequence(node, at, func(_ int, item *yaml.Node, at string) {
		v.table.reset(element)
		f.Mapping(item, at, keys)
		v.add(to, element)
	})
	v.length.check(f, node, at, v.count(to))
}

// write puts an element that has only single values into a line of its own.
func (v mappings) write(from any) *yaml.Node {
	if v.count(from) == 0 {
		return nil
	}
	sequence := &yaml.Node{Kind: yaml.SequenceNode}
	for i := range v.count(from) {
		item := v.table.write(v.at(from, i))
		if plain(item) {
			item.Style = yaml.FlowStyle
		}
		sequence.Content = append(sequence.Content, item)
	}
	return sequence
}

// plain reports whether a mapping has nothing but single values.
func plain(mapping *yaml.Node) bool {
	for _, node := range mapping.Content {
		if node.Kind != yaml.ScalarNode {
			return false
		}
	}
	return true
}

func (v mappings) describe() description {
	return description{kind: fmt.Sprintf("a list of up to %d mappings", v.length.Max),
		schema: v.length.schema(), list: true, keys: v.table.entries()}
}

// items is a list of single values in a field of T.
type items[T any, V comparable] struct {
	at     func(*T) *[]V
	scalar Scalar[V]
	noun   string
	length Length
	// keep: a refused element stays as a zero value, so that the others keep their places.
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
	return Value[T]{items[T, V]{at: at, scalar: scalar, noun: noun, length: length, keep: true}}
}

// Several is Items beside a key of the same field for a single one: a list of one is
// written by that key. Elements that were refused are left out.
func Several[T any, V comparable](at func(*T) *[]V, scalar Scalar[V], noun string, length Length) Value[T] {
	return Value[T]{items[T, V]{at: at, scalar: scalar, noun: noun, length: length, lone: true}}
}

// OneOrItems is Items, where a single element may be written as it is, without a list.
func OneOrItems[T any, V comparable](at func(*T) *[]V, scalar Scalar[V], noun string, length Length) Value[T] {
	return Value[T]{items[T, V]{at: at, scalar: scalar, noun: noun, length: length, keep: true, bare: true}}
}

// Sequence is a list of single values in which one may come again, as the arguments of a
// program.
func Sequence[T any, V comparable](at func(*T) *[]V, scalar Scalar[V], length Length) Value[T] {
	return Value[T]{items[T, V]{at: at, scalar: scalar, length: length, keep: true, again: true}}
}

func (v items[T, V]) reset(any) {}

func (v items[T, V]) read(f *yamlfile.File, node *yaml.Node, at string, to any) {
	list, seen := v.at(to.(*T)), map[V]string{}
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

func (v items[T, V]) write(from any) *yaml.Node {
	list := *v.at(from.(*T))
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
