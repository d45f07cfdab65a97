// SPDX-License-Identifier: Apache-2.0

// Package keytable describes a file's keys once, and reads, writes and documents the file from that description: Read
// takes YAML into Go values and reports faults with file, line and field; Write makes YAML of the values again;
// Reference is the page that explains the keys, and Schema the JSON schema for editors. What a key means beside others
// is checked by the package that has the table.
package keytable

import (
	"go.yaml.in/yaml/v3"

	"github.com/jeoul/jeoul/internal/text/yamlfile"
)

// Table is the keys of a mapping that is read into a T, in the order in which they are
// written and explained.
type Table[T any] []Key[T]

// Key is one key of a mapping.
type Key[T any] struct {
	Name string
	// Required: a mapping without it has a problem, unless it has Unless.
	Required bool
	// Unless names the key that stands in this one's place; both together are a problem, but
	// with Beside.
	Unless string
	Beside bool
	// Text for the reference page on the key's effect: Markdown, whole sentences.
	What string
	// Refused names the condition that refuses a value which its type permits; empty where there is none.
	Refused string
	// Since is the release that brought the key; empty for the first one.
	Since string
	// Gone says why the key is no longer there and names its replacement; such a key is neither written nor explained.
	Gone string
	// Value is the kind of the key's value; none where it is gone.
	Value Value[T]
}

// Value is the kind of a key's value in a mapping. The values are Scalar fields (Field, Optional), mappings (Mapping),
// and lists of either (Mappings, Items). The zero Value is that of a key that is gone.
type Value[T any] struct{ of value }

// value is a Value whose T the compiler does not know, so that the code that reads, writes and explains tables is
// compiled once and not for each type that has keys. The arguments are a *T each.
type value interface {
	// reset makes the value in *to the one that holds where the key is not written.
	reset(to any)
	// read takes the value of a node, whose path is field, into *to.
	read(f *yamlfile.File, node *yaml.Node, field string, to any)
	// write returns the value in *from as a node; nil where it need not be written.
	write(from any) *yaml.Node
	// describe describes the value's kind.
	describe() description
}

// description is the description of a value for the reference page and the schema.
type description struct {
	// kind describes the text in words, and fallback the default.
	kind, fallback string
	// schema is the JSON schema of the value, without the parts of its keys.
	schema map[string]any
	// list: the value is a list of mappings, which keys describe. keys is nil for scalars.
	list bool
	keys []entry
	// word is the JSON schema of the single value that may stand for a mapping; nil where none
	// may.
	word map[string]any
	// see is the key of the same mapping whose section explains these keys; empty: they have
	// their own.
	see string
}

// entry is a key without its type.
type entry struct {
	name, what, refused, since, unless string
	required, beside                   bool
	value                              description
}

// table is a Table without its type.
type table struct {
	keys []key
	// zero makes *to its zero value, and create makes another such value, and returns its address.
	zero   func(to any)
	create func() any
}

// key is a Key without its type.
type key struct {
	entry
	gone  string
	value value
}

// untyped returns the table without its type.
func untyped[T any](t Table[T]) table {
	keys := make([]key, len(t))
	for i, k := range t {
		keys[i] = key{entry{name: k.Name, what: k.What, refused: k.Refused, since: k.Since, unless: k.Unless,
			required: k.Required, beside: k.Beside}, k.Gone, k.Value.of}
	}
	return table{keys, func(to any) { *to.(*T) = *new(T) }, func() any { return new(T) }}
}

// Reset makes *to the value of a mapping without any key.
func Reset[T any](t Table[T], to *T) { untyped(t).reset(to) }

// Read takes the mapping of a node, whose path is field, into *to, which was Reset. Faults are reported to the file;
// such values are left as they were.
func Read[T any](t Table[T], f *yamlfile.File, node *yaml.Node, field string, to *T) {
	untyped(t).read(f, node, field, to)
}

// Write returns the mapping that Read takes into an equal value.
func Write[T any](t Table[T], from *T) *yaml.Node { return untyped(t).write(from) }

// entries describes the keys that are not gone.
func (t table) entries() []entry {
	var all []entry
	for _, k := range t.keys {
		if k.gone == "" {
			described := k.entry
			described.value = k.value.describe()
			all = append(all, described)
		}
	}
	return all
}

func (t table) reset(to any) {
	t.zero(to)
	for _, k := range t.keys {
		if k.gone == "" {
			k.value.reset(to)
		}
	}
}

func (t table) read(f *yamlfile.File, node *yaml.Node, field string, to any) {
	f.Mapping(node, field, t.readers(f, to))
	for _, k := range t.keys {
		if k.unless != "" && !k.beside && yamlfile.HasKey(node, k.unless) && yamlfile.HasKey(node, k.name) {
			f.Fail(yamlfile.Join(field, k.unless), "written beside %s; keep one of the two", k.name)
		}
	}
}

// readers are the table's keys as the reader of mappings takes them, into *to.
func (t table) readers(f *yamlfile.File, to any) []yamlfile.Key {
	keys := make([]yamlfile.Key, 0, len(t.keys))
	for _, k := range t.keys {
		read := func(node *yaml.Node, field string) { k.value.read(f, node, field, to) }
		if k.gone != "" {
			read = func(_ *yaml.Node, field string) { f.Fail(field, "%s", k.gone) }
		}
		keys = append(keys, yamlfile.Key{Name: k.name, Required: k.required, Unless: k.unless, Read: read})
	}
	return keys
}

func (t table) write(from any) *yaml.Node {
	mapping := &yaml.Node{Kind: yaml.MappingNode}
	for _, k := range t.keys {
		if k.gone != "" {
			continue
		}
		if value := k.value.write(from); value != nil {
			mapping.Content = append(mapping.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: k.name}, value)
		}
	}
	return mapping
}
