// SPDX-License-Identifier: Apache-2.0

package keytable

import (
	"cmp"
	"encoding"
	"fmt"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/jeoul/jeoul/internal/text/yamlfile"
)

// Scalar describes the text of a single value.
type Scalar[V comparable] struct {
	// Parse returns the value of a text, or the problem and the remedy.
	Parse func(text string) (value V, wrong string)
	// Show returns the text of a value. It is the inverse of Parse.
	Show func(V) string
	// Kind describes the text in words: "a whole number from 1 to 65535".
	Kind string
	// Schema is the JSON schema of the value.
	Schema map[string]any
	// Tag is YAML's type of the scalar; empty for text.
	Tag string
}

// node returns a value as a YAML node.
func (s Scalar[V]) node(value V) *yaml.Node { return scalarNode(s.Tag, s.Show(value)) }

// scalarNode returns a scalar node with a YAML tag. The default is text.
func scalarNode(tag, text string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: cmp.Or(tag, "!!str"), Value: text}
}

// read returns the value of a node, and false if it has reported a problem.
func (s Scalar[V]) read(f *yamlfile.File, node *yaml.Node, field string) (V, bool) {
	text, ok := f.Scalar(node, field)
	if !ok {
		return *new(V), false
	}
	value, wrong := s.Parse(text)
	if wrong != "" {
		f.Fail(field, "%s", wrong)
	}
	return value, wrong == ""
}

// Number is an integer from low to high, inclusive.
func Number[N uint8 | uint16 | uint32](low, high uint64) Scalar[N] {
	return Scalar[N]{
		Parse: func(text string) (N, string) {
			n, ok := Decimal(text, high)
			if !ok || n < low {
				return 0, fmt.Sprintf("%s is not a whole number from %d to %d", yamlfile.Quote(text), low, high)
			}
			return N(n), ""
		},
		Show:   func(n N) string { return strconv.FormatUint(uint64(n), 10) },
		Kind:   fmt.Sprintf("a whole number from %d to %d", low, high),
		Schema: map[string]any{"type": "integer", "minimum": low, "maximum": high},
		Tag:    "!!int",
	}
}

// Bound is a number from 1 to high. It rejects 0, which would let nothing pass, with a separate message.
func Bound[N uint8 | uint16 | uint32](high uint64) Scalar[N] {
	bound := Number[N](1, high)
	number := bound.Parse
	bound.Parse = func(text string) (N, string) {
		if text == "0" {
			return 0, fmt.Sprintf(
				"0 would let nothing pass; write a number from 1 to %d, or remove the line to have no bound", high)
		}
		return number(text)
	}
	return bound
}

// Decimal parses plain decimal digits up to limit. It rejects YAML's other spellings of numbers: 010 is 8 there, and
// 1e3 a fraction.
func Decimal(text string, limit uint64) (uint64, bool) {
	n, err := strconv.ParseUint(text, 10, 64)
	return n, err == nil && n <= limit && strconv.FormatUint(n, 10) == text
}

// Bool is true or false. It rejects YAML's other spellings (yes, on), which differ between its versions.
var Bool = Scalar[bool]{
	Parse: func(text string) (bool, string) {
		if text != "true" && text != "false" {
			return false, yamlfile.Quote(text) + " is neither true nor false"
		}
		return text == "true", ""
	},
	Show:   strconv.FormatBool,
	Kind:   "`true` or `false`",
	Schema: map[string]any{"type": "boolean"},
	Tag:    "!!bool",
}

// Word is one of the words of a type that parses them itself.
func Word[V comparable, P interface {
	*V
	encoding.TextUnmarshaler
}](words ...V) Scalar[V] {
	spelt, quoted := make([]string, len(words)), make([]string, len(words))
	for i, word := range words {
		spelt[i] = fmt.Sprint(word)
		quoted[i] = "`" + spelt[i] + "`"
	}
	return Scalar[V]{
		Parse: func(text string) (V, string) {
			var value V
			if err := P(&value).UnmarshalText([]byte(text)); err != nil {
				return value, err.Error()
			}
			return value, ""
		},
		Show:   func(v V) string { return fmt.Sprint(v) },
		Kind:   strings.Join(quoted, ", "),
		Schema: map[string]any{"enum": spelt},
	}
}

// durationPattern matches the texts that time.ParseDuration accepts, except signs and fractions without digits before
// the point.
const durationPattern = `^([0-9]+(\.[0-9]*)?(ns|us|µs|ms|s|m|h))+$`

// Duration is a duration from shortest to longest, inclusive.
func Duration(shortest, longest time.Duration) Scalar[time.Duration] {
	parse := func(text string) (time.Duration, string) {
		d, err := time.ParseDuration(text)
		switch _, bare := strconv.ParseFloat(text, 64); {
		case bare == nil && text != "0":
			return 0, fmt.Sprintf("%s has no unit; write seconds as %s, minutes as 5m, hours as 2h",
				yamlfile.Quote(text), yamlfile.Quote(text+"s"))
		case err != nil:
			return 0, fmt.Sprintf("%s is not a length of time; write one such as 30s, 5m or 1h30m",
				yamlfile.Quote(text))
		case d < shortest || d > longest:
			return 0, fmt.Sprintf("%s is not from %s to %s", yamlfile.Quote(text), ShowDuration(shortest),
				ShowDuration(longest))
		}
		return d, ""
	}
	return Scalar[time.Duration]{
		Parse:  parse,
		Show:   ShowDuration,
		Kind:   fmt.Sprintf("a length of time from %s to %s", ShowDuration(shortest), ShowDuration(longest)),
		Schema: map[string]any{"type": "string", "pattern": durationPattern},
	}
}

// OrNever is a scalar that may also be `never`, which is the zero value.
func OrNever[V comparable](s Scalar[V]) Scalar[V] {
	const never = "never"
	var none V
	parse, show := s.Parse, s.Show
	s.Parse = func(text string) (V, string) {
		if text == never {
			return none, ""
		}
		return parse(text)
	}
	s.Show = func(value V) string {
		if value == none {
			return never
		}
		return show(value)
	}
	s.Kind += ", or `" + never + "`"
	s.Schema = map[string]any{"anyOf": []any{map[string]any{"const": never}, s.Schema}}
	return s
}

// ShowDuration formats a duration as users write it: 2h4m, not 2h4m0s.
func ShowDuration(d time.Duration) string {
	text := d.String()
	if short, cut := strings.CutSuffix(text, "m0s"); cut {
		text = short + "m"
	}
	if short, cut := strings.CutSuffix(text, "h0m"); cut {
		text = short + "h"
	}
	return text
}
