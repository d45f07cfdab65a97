// SPDX-License-Identifier: Apache-2.0

package yamlfile

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/jeoul/jeoul/internal/text/nearest"
)

// Key is a key that a mapping may have, with the function that reads its value.
type Key struct {
	Name string
	// Required: a mapping without the key has a problem, unless it has the key Unless.
	Required bool
	Unless   string
	// Read reads the value, whose path is field.
	Read func(node *yaml.Node, field string)
}

// Mapping reads the keys of a mapping. field is the path of the mapping.
func (f *File) Mapping(node *yaml.Node, field string, keys []Key) {
	f.lines[field] = node.Line
	if !f.kind(node, field, yaml.MappingNode, "a mapping (key: value)") {
		return
	}
	lines := make([]int, len(keys)) // 0: not written
	for i := 0; i+1 < len(node.Content); i += 2 {
		name, value := node.Content[i], node.Content[i+1]
		index := slices.IndexFunc(keys, func(k Key) bool { return k.Name == name.Value })
		if name.Kind != yaml.ScalarNode || index < 0 {
			f.unknown(name, field, keys)
			continue
		}
		at := Join(field, keys[index].Name)
		if first := lines[index]; first > 0 {
			f.Problems = append(f.Problems, Problem{File: f.Name, Line: name.Line, Field: at,
				Message: fmt.Sprintf("written twice, first at line %d; keep one", first)})
			continue
		}
		lines[index] = name.Line
		f.lines[at] = name.Line
		keys[index].Read(value, at)
	}
	for i, k := range keys {
		instead := slices.IndexFunc(keys, func(o Key) bool { return o.Name == k.Unless })
		if k.Required && lines[i] == 0 && (instead < 0 || lines[instead] == 0) {
			f.Fail(Join(field, k.Name), "missing; add it")
		}
	}
}

// unknown reports a key that the mapping cannot have, with the nearest key that it can have.
func (f *File) unknown(name *yaml.Node, field string, keys []Key) {
	names := make([]string, len(keys))
	for i, k := range keys {
		names[i] = k.Name
	}
	problem := Problem{File: f.Name, Line: name.Line, Field: Join(field, printable(name.Value))}
	switch near := nearest.Word(name.Value, names); {
	case name.Kind == yaml.AliasNode || name.Tag == "!!merge":
		problem.Message = aliasMessage
	case name.Kind != yaml.ScalarNode:
		problem.Field, problem.Message = field, "a key must be a word; use one of "+strings.Join(names, ", ")
	case near != "":
		problem.Message = fmt.Sprintf("unknown key; did you mean %s?", near)
	default:
		problem.Message = "unknown key; use one of " + strings.Join(names, ", ")
	}
	f.Problems = append(f.Problems, problem)
}

// Sequence calls read for each item of a list.
func (f *File) Sequence(node *yaml.Node, field string, read func(i int, item *yaml.Node, field string)) {
	if !f.kind(node, field, yaml.SequenceNode, "a list (- item)") {
		return
	}
	for i, item := range node.Content {
		at := Element(field, i)
		f.lines[at] = item.Line
		read(i, item, at)
	}
}

// Scalar returns the text of a single value.
func (f *File) Scalar(node *yaml.Node, field string) (string, bool) {
	if !f.kind(node, field, yaml.ScalarNode, "a single value") {
		return "", false
	}
	return node.Value, true
}

// HasKey reports whether a mapping has a key.
func HasKey(node *yaml.Node, name string) bool {
	for i := 0; i+1 < len(node.Content); i += 2 {
		if node.Kind == yaml.MappingNode && node.Content[i].Value == name {
			return true
		}
	}
	return false
}

const aliasMessage = "anchors, aliases and merge keys are not supported; write the values out"

// kind reports a node of the wrong kind, or a missing one.
func (f *File) kind(node *yaml.Node, field string, want yaml.Kind, word string) bool {
	switch {
	case node.Kind == yaml.AliasNode:
		f.Fail(field, aliasMessage)
	case node.Kind == yaml.ScalarNode && node.Tag == "!!null":
		f.Fail(field, "has no value; give it one or remove the key")
	case node.Kind != want:
		f.Fail(field, "must be %s", word)
	default:
		return true
	}
	return false
}
