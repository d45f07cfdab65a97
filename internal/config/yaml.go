// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/agnivade/levenshtein"
	"go.yaml.in/yaml/v3"
)

// document returns the root node of the one YAML document in data; the error is
// a Problem without a file name.
func document(data []byte) (*yaml.Node, error) {
	if len(data) > MaxBytes {
		return nil, Problem{Message: fmt.Sprintf("larger than %d MiB; this is hardly a configuration", MaxBytes>>20)}
	}
	empty := Problem{Message: "the file is empty; it needs at least interface and services"}
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var doc yaml.Node
	switch err := decoder.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return nil, empty
	case err != nil:
		return nil, syntaxProblem(err)
	}
	var second yaml.Node
	switch err := decoder.Decode(&second); {
	case errors.Is(err, io.EOF) && doc.Content[0].Tag == "!!null":
		return nil, empty
	case errors.Is(err, io.EOF):
		return doc.Content[0], nil
	case err != nil:
		return nil, syntaxProblem(err)
	}
	return nil, Problem{Line: second.Line, Message: "a second YAML document starts here; keep one in a file"}
}

var yamlError = regexp.MustCompile(`(?s)^yaml: (?:line (\d+): )?(.*)$`)

// syntaxProblem takes the line out of the YAML library's message.
func syntaxProblem(err error) Problem {
	match := yamlError.FindStringSubmatch(err.Error())
	if match == nil {
		return Problem{Message: "not YAML: " + err.Error()}
	}
	line, _ := strconv.Atoi(match[1]) // no line in the message: 0, which means just that
	return Problem{Line: line, Message: "not YAML: " + match[2]}
}

// parser walks the nodes, fills cfg and collects what is wrong.
type parser struct {
	cfg      *Config
	problems Problems
	// bad are the fields that a problem was reported for; checks across fields
	// leave them out, for one mistake deserves one message.
	bad map[string]bool
}

// fail reports a problem at a field.
func (p *parser) fail(field, format string, args ...any) {
	if p.bad == nil {
		p.bad = map[string]bool{}
	}
	p.bad[field] = true
	p.problems = append(p.problems, p.cfg.At(field, format, args...))
}

// isBad says whether a problem was reported for a field of a backend.
func (p *parser) isBad(i, j int, name string) bool {
	return len(p.bad) > 0 && p.bad[BackendField(i, j, name)]
}

// key is a key that a mapping may have, and what takes its value.
type key struct {
	name     string
	required bool
	read     func(node *yaml.Node, field string)
}

// mapping reads the keys of a mapping; field is the mapping's own path.
func (p *parser) mapping(node *yaml.Node, field string, keys []key) {
	p.cfg.lines[field] = node.Line
	if !p.kind(node, field, yaml.MappingNode, "a mapping (key: value)") {
		return
	}
	lines := make([]int, len(keys)) // 0: not written
	for i := 0; i+1 < len(node.Content); i += 2 {
		name, value := node.Content[i], node.Content[i+1]
		index := slices.IndexFunc(keys, func(k key) bool { return k.name == name.Value })
		if name.Kind != yaml.ScalarNode || index < 0 {
			p.unknown(name, field, keys)
			continue
		}
		at := join(field, keys[index].name)
		if first := lines[index]; first > 0 {
			p.problems = append(p.problems, Problem{File: p.cfg.File, Line: name.Line, Field: at,
				Message: fmt.Sprintf("written twice, first at line %d; keep one", first)})
			continue
		}
		lines[index] = name.Line
		p.cfg.lines[at] = name.Line
		keys[index].read(value, at)
	}
	for i, k := range keys {
		if k.required && lines[i] == 0 {
			p.fail(join(field, k.name), "missing; add it")
		}
	}
}

// unknown reports a key that the mapping cannot have, with the nearest that it
// can.
func (p *parser) unknown(name *yaml.Node, field string, keys []key) {
	names := make([]string, len(keys))
	best, distance := "", 3 // further than two edits is another word
	for i, k := range keys {
		names[i] = k.name
		if d := levenshtein.ComputeDistance(strings.ToLower(name.Value), k.name); d < distance {
			best, distance = k.name, d
		}
	}
	problem := Problem{File: p.cfg.File, Line: name.Line, Field: join(field, printable(name.Value))}
	switch {
	case name.Kind == yaml.AliasNode || name.Tag == "!!merge":
		problem.Message = aliasMessage
	case name.Kind != yaml.ScalarNode:
		problem.Field, problem.Message = field, "a key must be a word; use one of "+strings.Join(names, ", ")
	case best != "":
		problem.Message = fmt.Sprintf("unknown key; did you mean %s?", best)
	default:
		problem.Message = "unknown key; use one of " + strings.Join(names, ", ")
	}
	p.problems = append(p.problems, problem)
}

// sequence calls read for each item of a list.
func (p *parser) sequence(node *yaml.Node, field string, read func(i int, item *yaml.Node, field string)) {
	if !p.kind(node, field, yaml.SequenceNode, "a list (- item)") {
		return
	}
	for i, item := range node.Content {
		at := element(field, i)
		p.cfg.lines[at] = item.Line
		read(i, item, at)
	}
}

// scalar returns the text of a single value.
func (p *parser) scalar(node *yaml.Node, field string) (string, bool) {
	if !p.kind(node, field, yaml.ScalarNode, "a single value") {
		return "", false
	}
	return node.Value, true
}

const aliasMessage = "anchors, aliases and merge keys are not supported; write the values out"

// kind reports a node of another kind than wanted, or none at all.
func (p *parser) kind(node *yaml.Node, field string, want yaml.Kind, word string) bool {
	switch {
	case node.Kind == yaml.AliasNode:
		p.fail(field, aliasMessage)
	case node.Kind == yaml.ScalarNode && node.Tag == "!!null":
		p.fail(field, "has no value; give it one or remove the key")
	case node.Kind != want:
		p.fail(field, "must be %s", word)
	default:
		return true
	}
	return false
}

// maxShown bounds what a message repeats of the file, in bytes.
const maxShown = 80

// quote shows a value from the file in a message, safe for a terminal.
func quote(s string) string {
	if len(s) > maxShown {
		return strconv.Quote(s[:maxShown]) + "…"
	}
	return strconv.Quote(s)
}

// printable is quote without the quotes where they are not needed.
func printable(s string) string {
	if quoted := quote(s); quoted != `"`+s+`"` || s == "" {
		return quoted
	}
	return s
}
