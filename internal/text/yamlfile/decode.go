// SPDX-License-Identifier: Apache-2.0

package yamlfile

import (
	"bytes"
	"cmp"
	"errors"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Decode reads the single document in data strictly into a struct with yaml tags. It returns false if it has reported
// problems. Afterwards the lines of all fields are known.
func (f *File) Decode(data []byte, kind Kind, into any) bool {
	root := f.Document(data, kind)
	if root == nil {
		return false
	}
	if root.Kind != yaml.MappingNode {
		f.Fail("", "not %s; it needs %s", kind.Noun, kind.Needs)
		return false
	}
	f.index(root, "")
	return f.DecodeAgain(data, into)
}

// DecodeAgain is Decode for data that was decoded before, for example over values that serve as defaults of keys that
// the file omits.
func (f *File) DecodeAgain(data []byte, into any) bool {
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	decoder.KnownFields(true)
	err := decoder.Decode(into)
	if err != nil {
		f.decodeError(err)
	}
	return err == nil
}

// index records the line of every field below a node.
func (f *File) index(node *yaml.Node, at string) {
	switch node.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(node.Content); i += 2 {
			below := Join(at, node.Content[i].Value)
			f.lines[below] = node.Content[i].Line
			f.index(node.Content[i+1], below)
		}
	case yaml.SequenceNode:
		for i, item := range node.Content {
			below := Element(at, i)
			f.lines[below] = item.Line
			f.index(item, below)
		}
	}
}

var (
	yamlUnknown   = regexp.MustCompile(`^field (.*) not found in type .*$`)
	yamlUnmarshal = regexp.MustCompile(`(?s)^cannot unmarshal (?:!!\w+ )?(.*) into (.*)$`)
)

// kinds maps tags in the library's messages to words for nodes that are not a single value.
var kinds = map[string]string{"!!seq": "a list", "!!map": "a mapping"}

// decodeError converts the YAML library's messages to problems with a field.
func (f *File) decodeError(err error) {
	messages := []string{err.Error()}
	var mismatch *yaml.TypeError
	if errors.As(err, &mismatch) {
		messages = mismatch.Errors
	}
	for _, message := range messages {
		line, text := splitError(message)
		problem := Problem{File: f.Name, Line: line, Field: f.fieldOn(line), Message: text}
		if match := yamlUnknown.FindStringSubmatch(text); match != nil {
			problem.Message = "unknown key " + match[1]
		} else if match := yamlUnmarshal.FindStringSubmatch(text); match != nil {
			problem.Message = cmp.Or(kinds[match[1]], match[1]) + " is not " + wanted(match[2])
		}
		f.Problems = append(f.Problems, problem)
	}
}

// wanted describes the values that a Go type accepts.
func wanted(kind string) string {
	switch {
	case kind == "int":
		return "a whole number"
	case kind == "float64":
		return "a number"
	case kind == "bool":
		return "true or false"
	case kind == "time.Duration":
		return "a duration such as 10s"
	case kind == "string":
		return "a text"
	case strings.HasPrefix(kind, "[]"):
		return "a list"
	}
	return "a mapping (key: value)"
}

// fieldOn returns the first, outermost field on a line, because the library's messages have only lines.
func (f *File) fieldOn(line int) string {
	best := ""
	for field, at := range f.lines {
		if at == line && (best == "" || len(field) < len(best) || len(field) == len(best) && field < best) {
			best = field
		}
	}
	return best
}
