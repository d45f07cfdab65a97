// SPDX-License-Identifier: Apache-2.0

package trace

import "strings"

// Change is a field that was rewritten.
type Change struct {
	// Layer is the header's name.
	Layer string `json:"layer"`
	Field string `json:"field"`
	// Before is empty where the header is new, and After where it is gone.
	Before string `json:"before,omitempty"`
	After  string `json:"after,omitempty"`
}

// Compare lists the differences between a frame as it came and as it leaves. New headers (of a tunnel, or of an answer
// about the packet) stand before the packet's own.
func Compare(came, leaves []Layer) []Change {
	var changes []Change
	if len(came) > 0 && len(leaves) > 0 {
		changes = compareFields(came[0], leaves[0])
		came, leaves = came[1:], leaves[1:]
	}
	if tagged(came) && !tagged(leaves) {
		changes = append(changes, fieldsOf(came[0], true)...)
		came = came[1:]
	}
	for len(leaves) > len(came) {
		changes = append(changes, fieldsOf(leaves[0], false)...)
		leaves = leaves[1:]
	}
	for i, layer := range leaves {
		if shortName(layer) != shortName(came[i]) {
			changes = append(append(changes, fieldsOf(came[i], true)...), fieldsOf(layer, false)...)
			continue
		}
		changes = append(changes, compareFields(came[i], layer)...)
	}
	return changes
}

func tagged(l []Layer) bool { return len(l) > 0 && l[0].Name == "vlan" }

// shortName is a header's name without its prefix.
func shortName(l Layer) string { return strings.TrimPrefix(l.Name, "quoted ") }

func compareFields(came, leaves Layer) []Change {
	var changes []Change
	for _, field := range leaves.Fields {
		if before := came.Get(field.Name); before != field.Value {
			changes = append(changes, Change{leaves.Name, field.Name, before, field.Value})
		}
	}
	return changes
}

// fieldsOf lists all of a header that has come or gone.
func fieldsOf(l Layer, gone bool) []Change {
	var changes []Change
	for _, field := range l.Fields {
		change := Change{Layer: l.Name, Field: field.Name, After: field.Value}
		if gone {
			change.Before, change.After = field.Value, ""
		}
		changes = append(changes, change)
	}
	return changes
}
