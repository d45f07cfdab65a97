// SPDX-License-Identifier: Apache-2.0

package yamlfile

import (
	"bytes"
	"fmt"

	"go.yaml.in/yaml/v3"
)

// indent is the number of spaces by which a block collection is indented within its parent.
const indent = 2

// partNodes is how many nodes an encoder of the library writes, unless a single element of a list has more.
const partNodes = 1024

// Encode returns the text of a value as the YAML library writes it. An encoder keeps an event of several hundred bytes
// for each node until its end. Therefore each encoder writes only a part of a long list, and the memory is free for the
// next one.
func Encode(node *yaml.Node) ([]byte, error) { return encodeParts(node, partNodes) }

func encodeParts(node *yaml.Node, size int) ([]byte, error) {
	if node.Kind != yaml.MappingNode || node.Style != 0 || len(node.Content) == 0 {
		return encodeWhole(node)
	}
	var text []byte
	for i := 0; i+1 < len(node.Content); i += 2 {
		var err error
		if text, err = appendEntry(text, node.Content[i], node.Content[i+1], size); err != nil {
			return nil, err
		}
	}
	return text, nil
}

// appendEntry appends the text of an entry of the outermost mapping, in parts of some size nodes if its value is a
// list.
func appendEntry(text []byte, key, value *yaml.Node, size int) ([]byte, error) {
	head := []byte(nil)
	for _, part := range partsOf(value, size) {
		written, err := encodeWhole(&yaml.Node{Kind: yaml.MappingNode, Content: []*yaml.Node{key, part}})
		if err != nil {
			return nil, err
		}
		// Each part repeats the line of the key.
		if head == nil {
			head = written[:bytes.IndexByte(written, '\n')+1]
			text = append(text, head...)
		}
		items, ok := bytes.CutPrefix(written, head)
		if !ok {
			return nil, fmt.Errorf("write a part of the list %s: it begins with %q, not with %q", key.Value,
				written[:min(len(written), len(head))], head)
		}
		text = append(text, items...)
	}
	return text, nil
}

// partsOf splits a list with one element to a line into lists of some size nodes; any other value is one part.
func partsOf(value *yaml.Node, size int) []*yaml.Node {
	if value.Kind != yaml.SequenceNode || value.Style != 0 {
		return []*yaml.Node{value}
	}
	var parts []*yaml.Node
	begin, nodes := 0, 0
	for i, item := range value.Content {
		if nodes += countNodes(item); nodes >= size || i == len(value.Content)-1 {
			part := *value
			part.Content = value.Content[begin : i+1]
			parts = append(parts, &part)
			begin, nodes = i+1, 0
		}
	}
	if len(parts) == 0 {
		return []*yaml.Node{value} // an empty list
	}
	return parts
}

func countNodes(node *yaml.Node) int {
	n := 1
	for _, child := range node.Content {
		n += countNodes(child)
	}
	return n
}

// encodeWhole writes a value by one encoder.
func encodeWhole(node *yaml.Node) ([]byte, error) {
	var text bytes.Buffer
	encoder := yaml.NewEncoder(&text)
	encoder.SetIndent(indent)
	err := encoder.Encode(node)
	return text.Bytes(), err
}
