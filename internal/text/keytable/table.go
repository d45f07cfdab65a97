// SPDX-License-Identifier: Apache-2.0

// Package keytable describes a file's keys once, and uses the description to read, write and document the file. Read
// converts YAML to Go values and reports problems with file, line and field. Write converts the values back to YAML.
// Reference writes the page that explains the keys, and Schema the JSON schema for editors. The package that has the
// table checks keys against each other.
package keytable

import (
	"go.yaml.in/yaml/v3"

	"github.com/jeoul/jeoul/internal/text/yamlfile"
)

// Table is the keys of a mapping that is read into a T, in the order in which they are written and explained.
type Table[T any] []Key[T]

// Key is one key of a mapping.
type Key[T any] struct {
	Name string
	// Required: a mapping without the key has a problem, unless it has Unless.
	Required bool
	// Unless names an alternative to this key. Both together are a problem, unless Beside is set.
	Unless string
	Beside bool
	// Text of the reference page on the key's effect: Markdown, complete sentences.
	What string
	// Refused names the condition under which a value is rejected although its type permits it; empty if there is none.
	Refused string
	// Since is the release that added the key; empty for the first one.
	Since string
	// Gone is the reason why the key was removed, and its replacement. Such a key is neither written nor explained.
	Gone string
	// Value is the kind of the key's value; the zero Value if the key was removed.
	Value Value[T]
}

// Value is the kind of a key's value in a mapping. The values are Scalar fields (Field, Optional), mappings (Mapping),
// and lists of either (Mappings, Items). The zero Value is that of a removed key.
type Value[T any] struct{ of value }

// value is a Value without its type T, so that the code that reads, writes and explains tables is compiled once and not
// for each type with keys. The arguments are a *T each.
type value interface {
	// reset sets the value in *to to the default.
	reset(to any)
	// read reads the value of a node, whose path is field, into *to.
	read(f *yamlfile.File, node *yaml.Node, field string, to any)
	// write returns the value in *from as a node; nil if it need not be written.
	write(from any) *yaml.Node
	// describe describes the value's kind.
	describe() description
}

// description describes a value for the reference page and the schema.
type description struct {
	// kind describes the text in words, and fallback the default.
	kind, fallback string
	// schema is the JSON schema of the value, without the parts of its keys.
	schema map[string]any
	// list: the value is a list of mappings, which keys describe. keys is nil for scalars.
	list bool
	keys []entry
	// word is the JSON schema of the single value that may replace a mapping, or nil.
	word map[string]any
	// see is the key of the same mapping whose section explains these keys; empty: they have their own section.
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
	// zero sets *to to its zero value. create returns the address of a new zero value.
	zero   func(to any)
	create func() any
}

// key is a Key without its type.
type key struct {
	entry
	removed string
	value   value
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

// Reset sets *to to the value of a mapping without any key.
func Reset[T any](t Table[T], to *T) { untyped(t).reset(to) }

// Read reads the mapping of a node, whose path is field, into *to, which must have been Reset. It reports problems to
// the file, and leaves values with a problem unchanged.
func Read[T any](t Table[T], f *yamlfile.File, node *yaml.Node, field string, to *T) {
	untyped(t).read(f, node, field, to)
}

// Write returns a mapping that Read reads into an equal value.
func Write[T any](t Table[T], from *T) *yaml.Node { return untyped(t).write(from) }

// entries describes the keys that were not removed.
func (t table) entries() []entry {
	var all []entry
	for _, k := range t.keys {
		if k.removed == "" {
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
		if k.removed == "" {
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

// readers returns readers of the table's keys into *to.
func (t table) readers(f *yamlfile.File, to any) []yamlfile.Key {
	keys := make([]yamlfile.Key, 0, len(t.keys))
	for _, k := range t.keys {
		read := func(node *yaml.Node, field string) { k.value.read(f, node, field, to) }
		if k.removed != "" {
			read = func(_ *yaml.Node, field string) { f.Fail(field, "%s", k.removed) }
		}
		keys = append(keys, yamlfile.Key{Name: k.name, Required: k.required, Unless: k.unless, Read: read})
	}
	return keys
}

func (t table) write(from any) *yaml.Node {
	mapping := &yaml.Node{Kind: yaml.MappingNode}
	for _, k := range t.keys {
		if k.removed != "" {
			continue
		}
		if value := k.value.write(from); value != nil {
			mapping.Content = append(mapping.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: k.name}, value)
		}
	}
	return mapping
}
