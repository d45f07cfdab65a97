// SPDX-License-Identifier: Apache-2.0

package keytable

import (
	"encoding/json"
	"maps"
	"strings"
)

// Schema returns the JSON schema (draft 2020-12) of the mapping, indented. Editors use it to complete and check keys.
// It does not include checks across keys.
func Schema[T any](t Table[T], title string) ([]byte, error) {
	schema := object(untyped(t).entries())
	schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	schema["title"] = title
	text, err := json.MarshalIndent(schema, "", "  ")
	return append(text, '\n'), err
}

// object returns the schema of a mapping with these keys and no others.
func object(keys []entry) map[string]any {
	properties := map[string]any{}
	var required, choices []any
	for _, k := range keys {
		properties[k.name] = k.schema()
		switch {
		case k.required && k.unless != "":
			of := "oneOf"
			if k.beside {
				of = "anyOf"
			}
			choices = append(choices, map[string]any{of: []any{needs(k.name), needs(k.unless)}})
		case k.required:
			required = append(required, k.name)
		}
	}
	schema := map[string]any{"type": "object", "properties": properties, "additionalProperties": false}
	if required != nil {
		schema["required"] = required
	}
	if choices != nil {
		schema["allOf"] = choices
	}
	return schema
}

func needs(name string) map[string]any { return map[string]any{"required": []any{name}} }

// schema returns the JSON schema of a key's value, with its explanation.
func (e entry) schema() map[string]any {
	schema := maps.Clone(e.value.schema)
	switch {
	case e.value.list:
		schema["items"] = orWord(object(e.value.keys), e.value.word)
	case e.value.keys != nil:
		schema = orWord(object(e.value.keys), e.value.word)
	}
	text := e.explanation()
	if e.value.fallback != "" {
		text += " Default: " + e.value.fallback + "."
	}
	schema["description"] = strings.ReplaceAll(text, "`", "")
	return schema
}

// orWord returns the schema of a mapping that a single value may replace, unless word is nil.
func orWord(mapping, word map[string]any) map[string]any {
	if word == nil {
		return mapping
	}
	return map[string]any{"anyOf": []any{word, mapping}}
}
