// SPDX-License-Identifier: Apache-2.0

package yamlfile

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"go.yaml.in/yaml/v3"
)

// byLibrary is Encode by the library only.
func byLibrary(t *testing.T, node *yaml.Node) string {
	t.Helper()
	var text bytes.Buffer
	encoder := yaml.NewEncoder(&text)
	encoder.SetIndent(indent)
	if err := encoder.Encode(node); err != nil {
		t.Fatal(err)
	}
	return text.String()
}

// texts are values that are easily mistaken for other types.
var texts = []string{"web", "web-01", "default:web:http", "10.0.0.1", "10.0.0.0/8", "2001:db8::1", "::1", "1s", "1m30s",
	"12:30", "1:2", "a:", ":a", "-", "-1", "+1", ".5", "1.5", "1.", "1e5", "1_000", "0x1f", "0o17", "0b1", "017", "0", "00",
	"2024-01-02", "2024-01-02T03:04:05Z", "0000-01-02", "2024-x", "true", "True", "yes", "no", "on", "y", "null", "~", "",
	"<<", "nan", ".nan", "inf", "/healthz", "/a b", "a b", " a", "a ", "a#b", "a #b", "#a", "a,b", "[a]", "{a}", "'a'",
	"\"a\"", "a\nb", "a\tb", "é", "*a", "&a", "!a", "%a", "@a", "a=b", "a@b", "GET /", "0.1.2", "1.2.3.4:80", "1ns", "9e9",
	"1e", "12ab", "123456789012345678901234567890", "0xZ", "1_2.3_4", "1-2", "200-299", "3node", "a.b.c", "x/y:z", "---"}

func randomScalar(r *rand.Rand) *yaml.Node {
	node := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: texts[r.IntN(len(texts))]}
	switch r.IntN(6) {
	case 0:
		node.Tag, node.Value = "!!int", []string{"0", "7", "65535", "010", "-3", "18446744073709551615"}[r.IntN(6)]
	case 1:
		node.Tag, node.Value = "!!bool", []string{"true", "false"}[r.IntN(2)]
	}
	return node
}

// randomNode returns a random value. Its collections are nested up to depth.
func randomNode(r *rand.Rand, depth int, inFlow bool) *yaml.Node {
	kind := r.IntN(4)
	if depth == 0 || kind > 1 {
		return randomScalar(r)
	}
	node := &yaml.Node{Kind: yaml.MappingNode}
	if kind == 1 {
		node.Kind = yaml.SequenceNode
	}
	if inFlow || r.IntN(3) == 0 {
		node.Style = yaml.FlowStyle
	}
	for range r.IntN(4) {
		if node.Kind == yaml.MappingNode {
			keys := []string{"name", "vip", "on_empty", "max", "on", "y", "key2"}
			node.Content = append(node.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: keys[r.IntN(len(keys))]})
		}
		node.Content = append(node.Content, randomNode(r, depth-1, node.Style != 0))
	}
	return node
}

// TestEncode: the text equals the library's, for random values and for each text that is easily mistaken for another
// type.
func TestEncode(t *testing.T) {
	check := func(node *yaml.Node) bool {
		t.Helper()
		got, err := Encode(node)
		want := byLibrary(t, node)
		if err != nil || string(got) != want {
			t.Errorf("%v\n%q\nwant\n%q", err, got, want)
		}
		return !t.Failed()
	}
	entry := func(value *yaml.Node, style yaml.Style) *yaml.Node {
		return &yaml.Node{Kind: yaml.MappingNode, Style: style, Content: []*yaml.Node{
			{Kind: yaml.ScalarNode, Value: "key"}, value}}
	}
	for _, text := range texts {
		for _, style := range []yaml.Style{0, yaml.FlowStyle} {
			check(entry(entry(&yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: text}, style), 0))
		}
	}
	r := rand.New(rand.NewPCG(46, 1))
	for range 5_000 {
		if !check(entry(randomNode(r, 4, false), 0)) {
			return
		}
	}
}

// TestEncodeUsual: values that a configuration source contains need no library.
func TestEncodeUsual(t *testing.T) {
	const text = "services:\n  - name: default:web:http\n    vip: 2001:db8::1\n    port: 80\n    check:\n" +
		"      - type: http\n        path: /healthz\n        every: 1m30s\n    backends:\n" +
		"      - {name: node-1, address: 10.0.0.1, weight: 3}\n      - {name: '10.0.0.2:80', address: 10.0.0.2, drain: true}\n" +
		"    clients: [10.0.0.0/8, 192.0.2.0/24]\n    limits: {}\nremove: []\n"
	var root yaml.Node
	if err := yaml.Unmarshal([]byte(text), &root); err != nil {
		t.Fatal(err)
	}
	node := root.Content[0]
	resetStyles(node)
	w := writer{}
	if !w.block(node, 0) || string(w.text) != text {
		t.Errorf("%s\nwant\n%s", w.text, text)
	}
}

// resetStyles makes nodes that were read like the ones that keytable makes.
func resetStyles(node *yaml.Node) {
	if node.Style &= yaml.FlowStyle; node.Kind != yaml.ScalarNode {
		node.Tag = ""
	}
	for i, child := range node.Content {
		resetStyles(child)
		if node.Kind == yaml.MappingNode && i%2 == 0 {
			child.Tag = ""
		}
	}
}
