// SPDX-License-Identifier: Apache-2.0

package sources

import (
	"bytes"
	"encoding/json"
	"fmt"

	"go.yaml.in/yaml/v3"

	"github.com/jeoul/jeoul/internal/text/yamlfile"
)

// bodyKind is the kind of a text that another program sends.
var bodyKind = yamlfile.Kind{Noun: "a part of a configuration", Needs: "a value", MaxBytes: 32 << 20}

// ReadYAML returns the value of a YAML text. Errors: ErrMalformed.
func ReadYAML(text []byte) (*yaml.Node, error) {
	file := yamlfile.NewFile("the body")
	root := file.Document(text, bodyKind)
	if root == nil {
		return nil, fmt.Errorf("%w: %w", ErrMalformed, file.Problems.Err())
	}
	if err := rejectAnchors(root); err != nil {
		return nil, err
	}
	return root, nil
}

// ReadJSON returns the value of a JSON text. Errors: ErrMalformed.
func ReadJSON(text []byte) (*yaml.Node, error) {
	text, err := JSONText(text)
	if err != nil {
		return nil, err
	}
	return ReadYAML(text)
}

// JSONText returns a JSON text as YAML. Errors: ErrMalformed.
func JSONText(text []byte) ([]byte, error) {
	var value json.RawMessage
	if err := json.Unmarshal(text, &value); err != nil {
		return nil, fmt.Errorf("%w: not JSON: %w", ErrMalformed, err)
	}
	// JSON is YAML, but for tabs, which are nothing but space here.
	return bytes.ReplaceAll(text, []byte("\t"), []byte(" ")), nil
}

// rejectAnchors refuses anchors and aliases, which would mean another value in a copy.
func rejectAnchors(node *yaml.Node) error {
	if node.Kind == yaml.AliasNode || node.Anchor != "" {
		return fmt.Errorf("%w: line %d: anchors and aliases are not supported; write the values out",
			ErrMalformed, node.Line)
	}
	for _, child := range node.Content {
		if err := rejectAnchors(child); err != nil {
			return err
		}
	}
	return nil
}

// WriteJSON returns the JSON of a value; the keys are sorted.
func WriteJSON(node *yaml.Node) ([]byte, error) {
	var value any
	if err := node.Decode(&value); err != nil {
		return nil, err
	}
	return json.Marshal(value)
}

// servicesOf returns the list of services of a source's text, which may be empty, in a document of
// its own.
func servicesOf(text []byte) (document, services *yaml.Node, err error) {
	services = &yaml.Node{Kind: yaml.SequenceNode}
	document = &yaml.Node{Kind: yaml.MappingNode, Content: []*yaml.Node{stringNode("services"), services}}
	if len(text) == 0 {
		return document, services, nil
	}
	root, err := ReadYAML(text)
	if err != nil {
		// A source without services may have nothing but spaces and comments.
		var none yaml.Node
		if yaml.Unmarshal(text, &none) == nil && none.IsZero() {
			return document, services, nil
		}
		return nil, nil, err
	}
	if found := get(root, "services"); found != nil && found.Kind == yaml.SequenceNode {
		return root, found, nil
	}
	return document, services, nil
}

// encode returns the text of a document with services; none at all where there is no service.
func encode(document, services *yaml.Node) ([]byte, error) {
	if len(services.Content) == 0 {
		return nil, nil
	}
	return yaml.Marshal(document)
}

func stringNode(text string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: text}
}

// get returns the value of a key of a mapping; nil if it has none.
func get(mapping *yaml.Node, key string) *yaml.Node {
	if i := indexOf(mapping, key); i >= 0 {
		return mapping.Content[i+1]
	}
	return nil
}

// indexOf returns where a key of a mapping stands in its content; -1 if it has none.
func indexOf(mapping *yaml.Node, key string) int {
	if mapping.Kind == yaml.MappingNode {
		for i := 0; i+1 < len(mapping.Content); i += 2 {
			if mapping.Content[i].Value == key {
				return i
			}
		}
	}
	return -1
}

// indexOfName returns where the mapping of a name stands in a list; -1 if there is none.
func indexOfName(list *yaml.Node, name string) int {
	for i, item := range list.Content {
		if value := get(item, "name"); value != nil && value.Value == name {
			return i
		}
	}
	return -1
}

// merge returns a value with a JSON merge patch (RFC 7396) applied to it; target may be nil.
func merge(target, patch *yaml.Node) *yaml.Node {
	if patch.Kind != yaml.MappingNode {
		return patch
	}
	merged := &yaml.Node{Kind: yaml.MappingNode}
	if target != nil && target.Kind == yaml.MappingNode {
		merged.Content = append(merged.Content, target.Content...)
	}
	for i := 0; i+1 < len(patch.Content); i += 2 {
		key, value := patch.Content[i].Value, patch.Content[i+1]
		at := indexOf(merged, key)
		switch {
		case value.Kind == yaml.ScalarNode && value.ShortTag() == "!!null":
			if at >= 0 {
				merged.Content = append(merged.Content[:at:at], merged.Content[at+2:]...)
			}
		case at >= 0:
			merged.Content[at+1] = merge(merged.Content[at+1], value)
		default:
			merged.Content = append(merged.Content, patch.Content[i], merge(nil, value))
		}
	}
	return merged
}
