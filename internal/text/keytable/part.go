// SPDX-License-Identifier: Apache-2.0

package keytable

import (
	"go.yaml.in/yaml/v3"

	"github.com/jeoul/jeoul/internal/text/yamlfile"
)

// part is a mapping in a part of T that is made when it is read.
type part[T, V any] struct {
	at    func(*T) **V
	table Table[V]
}

// Part is Mapping for a part of T that only few have: it is nil where none is written.
func Part[T, V any](at func(*T) **V, table Table[V]) Value[T] { return part[T, V]{at, table} }

func (v part[T, V]) reset(to *T) { *v.at(to) = nil }

func (v part[T, V]) read(f *yamlfile.File, node *yaml.Node, at string, to *T) {
	made := new(V)
	*v.at(to) = made
	v.table.Reset(made)
	v.table.Read(f, node, at, made)
}

func (v part[T, V]) write(from *T) *yaml.Node {
	if *v.at(from) == nil {
		return nil
	}
	return mapping[T, V]{func(from *T) *V { return *v.at(from) }, v.table}.write(from)
}

func (v part[T, V]) describe() description { return mapping[T, V]{table: v.table}.describe() }
