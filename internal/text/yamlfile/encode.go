// SPDX-License-Identifier: Apache-2.0

package yamlfile

import (
	"bytes"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// indent is the indentation of a collection within another one.
const indent = 2

// Encode returns the text of a value as the YAML library writes it. The library keeps an event of several hundred bytes
// for each value until the end. Therefore Encode itself writes values of the usual kind (mappings and lists of numbers,
// and of words that need no escapes). For any other value, the library writes the whole text.
func Encode(node *yaml.Node) ([]byte, error) {
	w := writer{}
	if w.block(node, 0) {
		return w.text, nil
	}
	var text bytes.Buffer
	encoder := yaml.NewEncoder(&text)
	encoder.SetIndent(indent)
	err := encoder.Encode(node)
	return text.Bytes(), err
}

// writer writes the text of usual values. Its methods return false if a value is not usual.
type writer struct{ text []byte }

func (w *writer) put(text string) { w.text = append(w.text, text...) }

// block writes a collection with the indentation in, each of its elements on separate lines. The first line is already
// indented.
func (w *writer) block(node *yaml.Node, in int) bool {
	if !isBare(node) || node.Style != 0 || len(node.Content) == 0 {
		return false
	}
	switch node.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(node.Content); i += 2 {
			if i > 0 {
				w.indent(in)
			}
			if !w.key(node.Content[i]) || !w.value(node.Content[i+1], in) {
				return false
			}
		}
		return true
	case yaml.SequenceNode:
		for i, item := range node.Content {
			if i > 0 {
				w.indent(in)
			}
			w.put("-")
			if item.Kind == yaml.MappingNode && item.Style == 0 { // begins on the line of its dash
				w.put(" ")
				if !w.block(item, in+indent) {
					return false
				}
				continue
			}
			if item.Kind == yaml.SequenceNode && item.Style == 0 || !w.value(item, in) {
				return false
			}
		}
		return true
	}
	return false
}

func (w *writer) indent(in int) {
	for range in {
		w.text = append(w.text, ' ')
	}
}

// value writes the value of a key or an element with the indentation in, and ends the line.
func (w *writer) value(node *yaml.Node, in int) bool {
	if node.Kind != yaml.ScalarNode && node.Style == 0 {
		w.put("\n")
		w.indent(in + indent)
		return w.block(node, in+indent)
	}
	w.put(" ")
	if node.Kind == yaml.ScalarNode && !w.scalar(node, false) || node.Kind != yaml.ScalarNode && !w.flow(node) {
		return false
	}
	w.put("\n")
	return true
}

// flow writes a collection on one line.
func (w *writer) flow(node *yaml.Node) bool {
	if !isBare(node) || node.Style&^yaml.FlowStyle != 0 {
		return false
	}
	begin, end := "{", "}"
	switch node.Kind {
	case yaml.SequenceNode:
		begin, end = "[", "]"
	case yaml.MappingNode:
	default:
		return false
	}
	w.put(begin)
	for i, item := range node.Content {
		isValue := node.Kind == yaml.MappingNode && i%2 == 1
		switch {
		case isValue:
			w.put(" ")
		case i > 0:
			w.put(", ")
		}
		ok := false
		switch {
		case node.Kind == yaml.MappingNode && !isValue:
			ok = w.key(item)
		case item.Kind == yaml.ScalarNode:
			ok = w.scalar(item, true)
		default:
			ok = w.flow(item)
		}
		if !ok {
			return false
		}
	}
	w.put(end)
	return true
}

// key writes a key and its colon.
func (w *writer) key(node *yaml.Node) bool {
	const longest = 64 // for a longer key, the library begins the line with a question mark
	if node.Kind != yaml.ScalarNode || !isBare(node) || node.Style != 0 || node.Tag != "" || len(node.Value) > longest ||
		!isWord(node.Value) || strings.Contains(node.Value, ":") {
		return false
	}
	w.put(node.Value)
	w.put(":")
	return true
}

// scalar writes a single value. inFlow: within a line.
func (w *writer) scalar(node *yaml.Node, inFlow bool) bool {
	if !isBare(node) || node.Style != 0 {
		return false
	}
	switch text := node.Value; node.Tag {
	case "!!int":
		if !isDecimal(text) {
			return false
		}
	case "!!bool":
		if text != "true" && text != "false" {
			return false
		}
	case "!!str":
		if !isWord(text) {
			return false
		}
		if inFlow && strings.Contains(text, ":") {
			w.put("'" + text + "'")
			return true
		}
	default:
		return false
	}
	w.put(node.Value)
	return true
}

// isBare reports whether a node has only its value, without comments, anchors or tags.
func isBare(node *yaml.Node) bool {
	return node.Anchor == "" && node.Alias == nil && node.HeadComment == "" && node.LineComment == "" &&
		node.FootComment == "" && (node.Kind == yaml.ScalarNode || node.Tag == "")
}

// isDecimal reports whether a text is a decimal number for YAML and no octal one.
func isDecimal(text string) bool {
	const longest = 18 // digits that fit into 64 bits
	if len(text) == 0 || len(text) > longest || text[0] == '0' && len(text) > 1 {
		return false
	}
	for i := range len(text) {
		if !isDigit(text[i]) {
			return false
		}
	}
	return true
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func isLetter(c byte) bool { return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' }

// noWords are words that YAML does not read as text.
var noWords = []string{"true", "True", "TRUE", "false", "False", "FALSE", "null", "Null", "NULL"}

// isWord reports whether YAML certainly reads a text as text without quotes. Such a text begins with a letter, a slash
// or a digit, and has no character with a meaning in YAML, except colons in the middle.
func isWord(text string) bool {
	if text == "" || text[len(text)-1] == ':' {
		return false
	}
	for i := range len(text) {
		if c := text[i]; !isLetter(c) && !isDigit(c) && strings.IndexByte("_-./:", c) < 0 {
			return false
		}
	}
	switch first := text[0]; {
	case isLetter(first):
		return !slices.Contains(noWords, text)
	case isDigit(first):
		return !mayBeNumber(text) && !mayBeDate(text)
	default:
		return first == '/'
	}
}

// mayBeNumber reports whether YAML may read a text that begins with a digit as a number. Numbers have no colon, no
// slash, at most one dot, and only the letters of hexadecimal, octal and binary digits.
func mayBeNumber(text string) bool {
	dots := 0
	for i := range len(text) {
		switch c := text[i]; {
		case c == '.':
			dots++
		case c == ':' || c == '/', isLetter(c) && strings.IndexByte("abcdefABCDEFoOxX", c) < 0:
			return false
		}
	}
	return dots < 2
}

// mayBeDate reports whether YAML may read a text as a date. Dates begin with four digits and a dash.
func mayBeDate(text string) bool {
	return len(text) > 4 && text[4] == '-' && isDecimal(strings.TrimLeft(text[:4], "0")+"0")
}
