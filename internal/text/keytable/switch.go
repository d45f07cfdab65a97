// SPDX-License-Identifier: Apache-2.0

package keytable

import (
	"go.yaml.in/yaml/v3"

	"github.com/jeoul/jeoul/internal/text/yamlfile"
)

// switched is a mapping that a single `true` or `false` may replace.
type switched struct {
	mapping
	on func(of any) *bool
}

// Switch is a mapping with its own keys, read into a field of T, that is off unless it is written. Any key switches it
// on. `true` alone switches it on with the keys' defaults, and `false` switches it off. No key may be required.
func Switch[T, V any](at func(*T) *V, on func(*V) *bool, table Table[V]) Value[T] {
	return Value[T]{switched{newMapping(at, table), func(of any) *bool { return on(of.(*V)) }}}
}

func (v switched) read(f *yamlfile.File, node *yaml.Node, at string, to any) {
	on := v.on(v.at(to))
	if node.Kind == yaml.ScalarNode && node.Tag != "!!null" {
		*on, _ = Bool.read(f, node, at)
		return
	}
	*on = true
	v.mapping.read(f, node, at, to)
}

func (v switched) write(from any) *yaml.Node {
	if !*v.on(v.at(from)) {
		return nil
	}
	if node := v.mapping.write(from); node != nil {
		node.Style = yaml.FlowStyle
		return node
	}
	return Bool.node(true)
}

func (v switched) describe() description {
	return description{kind: "`true`, `false`, or a mapping", fallback: "`false`", keys: v.table.entries(),
		word: Bool.Schema}
}
