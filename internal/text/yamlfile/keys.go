// SPDX-License-Identifier: Apache-2.0

package yamlfile

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Rest has the keys of a mapping that the struct it was decoded into leaves to others. It is the type of a field with
// the tag ",inline". File.DecodeRest reads them.
type Rest map[string]yaml.Node

// Keys returns the keys of a struct with yaml tags, or of a pointer to one.
func Keys(of any) []string {
	return slices.Sorted(maps.Keys(fields(reflect.TypeOf(of))))
}

// DecodeRest reads the remaining keys strictly into a struct with yaml tags. It returns false if it has reported
// problems.
func (f *File) DecodeRest(rest Rest, into any) bool {
	node := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
	for _, name := range slices.Sorted(maps.Keys(rest)) {
		value := rest[name]
		node.Content = append(node.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: name,
			Line: value.Line}, &value)
	}
	before := len(f.Problems)
	f.reportUnknownKeys(node, reflect.TypeOf(into))
	if err := node.Decode(into); err != nil {
		f.decodeError(err)
	}
	return len(f.Problems) == before
}

// reportUnknownKeys reports the keys of a node that a type has no field for. The library can check that for whole files
// only.
func (f *File) reportUnknownKeys(node *yaml.Node, of reflect.Type) {
	if node.Alias != nil {
		node = node.Alias
	}
	for of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	switch {
	case node.Kind == yaml.SequenceNode && of.Kind() == reflect.Slice:
		for _, item := range node.Content {
			f.reportUnknownKeys(item, of.Elem())
		}
	case node.Kind == yaml.MappingNode && of.Kind() == reflect.Struct:
		known := fields(of)
		for i := 0; i+1 < len(node.Content); i += 2 {
			key := node.Content[i]
			if below, ok := known[key.Value]; ok {
				f.reportUnknownKeys(node.Content[i+1], below)
				continue
			}
			f.Problems = append(f.Problems, Problem{File: f.Name, Line: key.Line, Field: f.fieldOn(key.Line),
				Message: "unknown key " + key.Value})
		}
	}
}

// fields returns the types of a struct's fields by their keys.
func fields(of reflect.Type) map[string]reflect.Type {
	for of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	all := map[string]reflect.Type{}
	for field := range of.Fields() {
		if name, _, _ := strings.Cut(field.Tag.Get("yaml"), ","); name != "" && name != "-" {
			all[name] = field.Type
		}
	}
	return all
}
