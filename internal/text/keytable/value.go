// SPDX-License-Identifier: Apache-2.0

package keytable

import (
	"fmt"

	"go.yaml.in/yaml/v3"

	"github.com/jeoul/jeoul/internal/text/yamlfile"
)

// field is a single value.
type field struct {
	// take sets the value in *to from a text, or returns the problem.
	take func(to any, text string) (wrong string)
	// show returns the value's text, and whether it must be written.
	show func(from any) (text string, needed bool)
	// usual sets the default; nil: the zero value.
	usual    func(to any)
	tag      string
	kind     string
	fallback string
	schema   map[string]any
}

// Field is a single value in a field of T. standard is the default.
func Field[T any, V comparable](at func(*T) *V, scalar Scalar[V], standard V) Value[T] {
	words := "`" + scalar.Show(standard) + "`"
	return Computed(getter(at, standard), setter(at), scalar, standard, words)
}

// Optional is a single value in a field of T that stays zero if it is not written. The package that has the table
// provides the default, which fallback describes. An empty fallback is for a required value, or one whose absence means
// nothing.
func Optional[T any, V comparable](at func(*T) *V, scalar Scalar[V], fallback string) Value[T] {
	return Computed(getter(at, *new(V)), setter(at), scalar, *new(V), fallback)
}

// Computed is a single value that T does not store as it is written. get returns the value, and whether it must be
// written. If it is not written, standard is set unless it is zero, and fallback describes the default.
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

// getter returns a function that reports a default value as one that need not be written.
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

// Mapping is a mapping with its own keys, read into a field of T. It is written if one of its keys must be.
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

// writeSome is write, but returns nil if nothing need be written.
func (t table) writeSome(from any) *yaml.Node {
	if node := t.write(from); len(node.Content) > 0 {
		return node
	}
	return nil
}

func (v mapping) describe() description {
	return description{kind: "a mapping", keys: v.table.entries()}
}

// Length limits a list that must have an element.
type Length struct {
	Max int
	// Empty and TooMany are the remedies for a list without elements, and for one with more than Max.
	Empty, TooMany string
	// Absent describes the default without a list; empty if the list is required.
	Absent string
}

// check reports a list of the wrong length. node is the list, and n the number of elements read.
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

// list is a slice in a field of T whose element type is erased. All elements are passed by address.
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

// read makes the readers of the elements' keys only once, because there may be a hundred thousand elements.
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

// write writes an element with only single values on one line.
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

// plain reports whether a mapping has only single values.
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
	// keep: a rejected element remains as a zero value, so that the other indexes do not change.
	keep bool
	// skipSingle: a list of one is written by another key.
	skipSingle bool
	// inlineSingle: a list of one is written as its element.
	inlineSingle bool
	// allowDuplicates: an element may occur more than once.
	allowDuplicates bool
}

// Items is a list of single values without duplicates, read into a field of T. noun names an element. A rejected
// element remains as a zero value, so that the other indexes do not change.
func Items[T any, V comparable](at func(*T) *[]V, scalar Scalar[V], noun string, length Length) Value[T] {
	return Value[T]{items[T, V]{at: at, scalar: scalar, noun: noun, length: length, keep: true}}
}

// Several is Items beside a key for a single element of the same field. That key writes a list of one. Rejected
// elements are omitted.
func Several[T any, V comparable](at func(*T) *[]V, scalar Scalar[V], noun string, length Length) Value[T] {
	return Value[T]{items[T, V]{at: at, scalar: scalar, noun: noun, length: length, skipSingle: true}}
}

// OneOrItems is Items, but a single element may be written without a list.
func OneOrItems[T any, V comparable](at func(*T) *[]V, scalar Scalar[V], noun string, length Length) Value[T] {
	return Value[T]{items[T, V]{at: at, scalar: scalar, noun: noun, length: length, keep: true, inlineSingle: true}}
}

// Sequence is a list of single values that may contain duplicates, such as the arguments of a program.
func Sequence[T any, V comparable](at func(*T) *[]V, scalar Scalar[V], length Length) Value[T] {
	return Value[T]{items[T, V]{at: at, scalar: scalar, length: length, keep: true, allowDuplicates: true}}
}

func (v items[T, V]) reset(any) {}

func (v items[T, V]) read(f *yamlfile.File, node *yaml.Node, at string, to any) {
	list, seen := v.at(to.(*T)), map[V]string{}
	*list = nil
	if v.inlineSingle && node.Kind == yaml.ScalarNode {
		if value, ok := v.scalar.read(f, node, at); ok {
			*list = []V{value}
		}
		return
	}
	f.Sequence(node, at, func(_ int, item *yaml.Node, at string) {
		value, ok := v.scalar.read(f, item, at)
		if first, again := seen[value]; ok && again && !v.allowDuplicates {
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
	if len(list) == 0 || (v.skipSingle && len(list) == 1) {
		return nil
	}
	sequence := &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
	for _, value := range list {
		sequence.Content = append(sequence.Content, v.scalar.node(value))
	}
	if v.inlineSingle && len(list) == 1 {
		return sequence.Content[0]
	}
	return sequence
}

func (v items[T, V]) describe() description {
	schema := v.length.schema()
	schema["items"], schema["uniqueItems"] = v.scalar.Schema, !v.allowDuplicates
	kind := fmt.Sprintf("a list of up to %d, each %s", v.length.Max, v.scalar.Kind)
	if v.inlineSingle {
		kind = v.scalar.Kind + ", or " + kind
		schema = map[string]any{"anyOf": []any{v.scalar.Schema, schema}}
	}
	return description{kind: kind, fallback: v.length.Absent, schema: schema}
}
