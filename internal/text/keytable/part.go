// SPDX-License-Identifier: Apache-2.0

package keytable

import (
	"go.yaml.in/yaml/v3"

	"github.com/jeoul/jeoul/internal/text/yamlfile"
)

// part is a mapping in a part of T that is created when it is read.
type part struct {
	// get returns the address of the part, or nil. set replaces the part, or removes it if part is nil.
	get   func(of any) any
	set   func(to, part any)
	table table
}

// Part is Mapping for a part of T that is nil unless it is written.
func Part[T, V any](at func(*T) **V, table Table[V]) Value[T] {
	return Value[T]{part{
		get: func(of any) any {
			if p := *at(of.(*T)); p != nil {
				return p
			}
			return nil
		},
		set:   func(to, part any) { *at(to.(*T)), _ = part.(*V) },
		table: untyped(table),
	}}
}

func (v part) reset(to any) { v.set(to, nil) }

func (v part) read(f *yamlfile.File, node *yaml.Node, at string, to any) {
	made := v.table.create()
	v.set(to, made)
	v.table.reset(made)
	v.table.read(f, node, at, made)
}

func (v part) write(from any) *yaml.Node {
	is := v.get(from)
	if is == nil {
		return nil
	}
	return v.table.writeSome(is)
}

func (v part) describe() description { return mapping{table: v.table}.describe() }
