// SPDX-License-Identifier: Apache-2.0

package keytable

import (
	"fmt"
	"maps"

	"go.yaml.in/yaml/v3"

	"github.com/jeoul/jeoul/internal/text/yamlfile"
)

// short is one or several mappings in a field of T. A single value may replace each of them.
type short struct {
	mappings
	// word is the key of the single value.
	word string
	// single: the value is a mapping and not a list of mappings; several is then the key of the list.
	single  bool
	several string
	// onlyKey: a list of one has no other key.
	onlyKey bool
}

// Short is a list of mappings with one element, read into a field of T. The file has the mapping alone or, if only its
// key word is set, the value of that key. The table's key word is required. The key several of the same mapping has
// Shorts, and explains the keys.
func Short[T, V any](at func(*T) *[]V, table Table[V], word, several string) Value[T] {
	return Value[T]{short{mappings{list: newList(at), table: untyped(table)}, word, true, several, false}}
}

// Shorts is Short for several elements. A list of one is written by the key that has Short.
func Shorts[T, V any](at func(*T) *[]V, table Table[V], word string, length Length) Value[T] {
	return Value[T]{short{mappings{newList(at), untyped(table), length}, word, false, "", false}}
}

// ShortMappings is Shorts without another key beside it. A list of one is written like any other.
func ShortMappings[T, V any](at func(*T) *[]V, table Table[V], word string, length Length) Value[T] {
	return Value[T]{short{mappings{newList(at), untyped(table), length}, word, false, "", true}}
}

func (v short) read(f *yamlfile.File, node *yaml.Node, at string, to any) {
	v.clear(to)
	take := func(_ int, item *yaml.Node, at string) {
		element := v.table.create()
		v.table.reset(element)
		v.table.read(f, v.long(item), at, element)
		v.add(to, element)
	}
	if v.single {
		take(0, node, at)
		return
	}
	f.Sequence(node, at, take)
	v.length.check(f, node, at, v.count(to))
}

// long returns the mapping that a single value replaces.
func (v short) long(node *yaml.Node) *yaml.Node {
	if node.Kind != yaml.ScalarNode || node.Tag == "!!null" {
		return node
	}
	key := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: v.word, Line: node.Line}
	return &yaml.Node{Kind: yaml.MappingNode, Line: node.Line, Content: []*yaml.Node{key, node}}
}

func (v short) write(from any) *yaml.Node {
	count := v.count(from)
	if count == 0 || !v.onlyKey && v.single != (count == 1) {
		return nil
	}
	sequence := &yaml.Node{Kind: yaml.SequenceNode}
	words := true
	for i := range count {
		item := v.table.write(v.at(from, i))
		switch {
		case len(item.Content) == 2 && item.Content[0].Value == v.word:
			item = item.Content[1]
		case plain(item):
			item.Style, words = yaml.FlowStyle, false
		default:
			words = false
		}
		sequence.Content = append(sequence.Content, item)
	}
	if v.single {
		return sequence.Content[0]
	}
	if v.onlyKey && words {
		sequence.Style = yaml.FlowStyle
	}
	return sequence
}

func (v short) describe() description {
	keys := v.table.entries()
	var word map[string]any
	for _, k := range keys {
		if k.name == v.word {
			word = maps.Clone(k.value.schema)
		}
	}
	if v.single {
		return description{kind: fmt.Sprintf("a mapping, or its `%s` alone", v.word), fallback: "none", keys: keys,
			word: word, see: v.several}
	}
	return description{kind: fmt.Sprintf("a list of up to %d mappings, or of their `%s` alone", v.length.Max, v.word),
		fallback: v.length.Absent, schema: v.length.schema(), list: true, keys: keys, word: word}
}

// where is a value that is only written if a condition holds.
type where struct {
	value
	holds func(of any) bool
}

// Where is a value that is only written if holds returns true, such as a value in a part of T that may be missing.
func Where[T any](holds func(*T) bool, value Value[T]) Value[T] {
	return Value[T]{where{value.of, func(of any) bool { return holds(of.(*T)) }}}
}

func (v where) write(from any) *yaml.Node {
	if !v.holds(from) {
		return nil
	}
	return v.value.write(from)
}

// orEmpty is a list that may be written without elements.
type orEmpty struct {
	value
	shown func(of any) bool
}

// OrEmpty is a list (Mappings) that a file may write as `[]`. A list without elements is written so if shown returns
// true, because without the key the file would have another meaning.
func OrEmpty[T any](shown func(*T) bool, list Value[T]) Value[T] {
	return Value[T]{orEmpty{list.of, func(of any) bool { return shown(of.(*T)) }}}
}

func (v orEmpty) read(f *yamlfile.File, node *yaml.Node, field string, to any) {
	if node.Kind == yaml.SequenceNode && len(node.Content) == 0 {
		return
	}
	v.value.read(f, node, field, to)
}

func (v orEmpty) write(from any) *yaml.Node {
	if node := v.value.write(from); node != nil || !v.shown(from) {
		return node
	}
	return &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
}

func (v orEmpty) describe() description {
	d := v.value.describe()
	d.schema["minItems"] = 0
	return d
}
