// SPDX-License-Identifier: Apache-2.0

package tune

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// leave is the value of an item that is mentioned but never changed.
const leave = "leave"

// Value is the wanted value of a setting: a text, a number computed from the host's facts, several of both separated by
// spaces, or a part of the core plan.
type Value struct {
	parts []part
	// plan is a part of the core plan: queues, irq, rps, xps, threaded, isolated, isolcpus.
	plan string
}

// part is a text, or a number computed from a fact.
type part struct {
	text string
	// computed, if set, is the fact Of divided by Divide, within Min and Max, and rounded up to a power of two if Round
	// says so.
	computed *computed
}

type computed struct {
	Of     string `yaml:"of" json:"of"`
	Divide uint64 `yaml:"divide,omitempty" json:"divide,omitempty"`
	Min    uint64 `yaml:"min,omitempty" json:"min,omitempty"`
	Max    uint64 `yaml:"max,omitempty" json:"max,omitempty"`
	Round  string `yaml:"round,omitempty" json:"round,omitempty"`
}

// The facts that a value can be computed from.
const (
	ofMemory  = "memory_bytes"
	ofPages   = "memory_pages"
	ofCores   = "cores"
	ofRingRX  = "ring_rx_max"
	ofRingTX  = "ring_tx_max"
	roundPow2 = "power-of-two"
)

var (
	knownFacts = []string{ofMemory, ofPages, ofCores, ofRingRX, ofRingTX}
	planParts  = []string{"queues", "irq", "rps", "xps", "threaded", "isolated", "isolcpus"}
)

// IsZero reports whether there is no value.
func (v Value) IsZero() bool { return len(v.parts) == 0 && v.plan == "" }

// leaves reports whether the setting is left unchanged.
func (v Value) leaves() bool { return len(v.parts) == 1 && v.parts[0].text == leave }

// UnmarshalYAML reads a scalar, a list, or a mapping.
func (v *Value) UnmarshalYAML(node *yaml.Node) error {
	*v = Value{}
	switch node.Kind {
	case yaml.SequenceNode:
		for _, item := range node.Content {
			p, err := readPart(item)
			if err != nil {
				return err
			}
			v.parts = append(v.parts, p)
		}
		return nil
	case yaml.MappingNode:
		if len(node.Content) == 2 && node.Content[0].Value == "plan" {
			v.plan = node.Content[1].Value
			if !slices.Contains(planParts, v.plan) {
				return at(node, "the core plan has no %q: use %s", v.plan, strings.Join(planParts, ", "))
			}
			return nil
		}
	}
	p, err := readPart(node)
	v.parts = []part{p}
	return err
}

func readPart(node *yaml.Node) (part, error) {
	switch node.Kind {
	case yaml.ScalarNode:
		if node.Tag == "!!null" || strings.ContainsAny(node.Value, "\n\x00") {
			return part{}, at(node, "a value is a word or a number")
		}
		return part{text: node.Value}, nil
	case yaml.MappingNode:
	default:
		return part{}, at(node, "a value is a word, a number, a list of them, or computed (of: …)")
	}
	for i := 0; i < len(node.Content); i += 2 {
		if name := node.Content[i].Value; !slices.Contains([]string{"of", "divide", "min", "max", "round"}, name) {
			return part{}, at(node.Content[i], "unknown key %q: use of, divide, min, max, round, or plan alone", name)
		}
	}
	c := &computed{}
	if err := node.Decode(c); err != nil {
		return part{}, err
	}
	switch {
	case !slices.Contains(knownFacts, c.Of):
		return part{}, at(node, "of: %q is no fact: use %s", c.Of, strings.Join(knownFacts, ", "))
	case c.Round != "" && c.Round != roundPow2:
		return part{}, at(node, "round: %q: use %s", c.Round, roundPow2)
	case c.Max != 0 && c.Min > c.Max:
		return part{}, at(node, "min is larger than max")
	}
	return part{computed: c}, nil
}

// at returns an error with a line, in the format of the YAML library.
func at(node *yaml.Node, format string, args ...any) error {
	return fmt.Errorf("line %d: %s", node.Line, fmt.Sprintf(format, args...))
}

// MarshalJSON writes the value as String returns it.
func (v Value) MarshalJSON() ([]byte, error) { return json.Marshal(v.String()) }

// String returns the value, or its formula.
func (v Value) String() string {
	if v.plan != "" {
		return "by the core plan (" + v.plan + ")"
	}
	var texts []string
	for _, p := range v.parts {
		texts = append(texts, p.String())
	}
	return strings.Join(texts, " ")
}

func (p part) String() string {
	if p.computed == nil {
		return p.text
	}
	c := p.computed
	text := c.Of
	if c.Divide > 1 {
		text += "/" + strconv.FormatUint(c.Divide, 10)
	}
	if c.Min > 0 {
		text = fmt.Sprintf("max(%s, %d)", text, c.Min)
	}
	if c.Max > 0 {
		text = fmt.Sprintf("min(%s, %d)", text, c.Max)
	}
	return text
}

// errNoFact means that the host lacks the facts for a computed value.
var errNoFact = errors.New("there is nothing to compute it from")

// resolve computes the value. facts returns a fact, and false if it is missing.
func (v Value) resolve(facts func(name string) (uint64, bool)) (string, error) {
	var texts []string
	for _, p := range v.parts {
		if p.computed == nil {
			texts = append(texts, p.text)
			continue
		}
		fact, ok := facts(p.computed.Of)
		if !ok {
			return "", fmt.Errorf("%s: %w", p.computed.Of, errNoFact)
		}
		texts = append(texts, strconv.FormatUint(p.computed.of(fact), 10))
	}
	return strings.Join(texts, " "), nil
}

func (c computed) of(fact uint64) uint64 {
	n := fact / max(c.Divide, 1)
	n = max(n, c.Min)
	if c.Max > 0 {
		n = min(n, c.Max)
	}
	if c.Round == roundPow2 && n > 1 && n <= 1<<62 {
		n = 1 << bits.Len64(n-1)
	}
	return n
}
