// SPDX-License-Identifier: Apache-2.0

package sources

import (
	"bytes"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/jeoul/jeoul/internal/balancer/config"
)

// block is the text of a service, among those of its source.
type block struct {
	name string
	text []byte
}

// join returns the texts of services one after the other.
func join(blocks []block) []byte {
	size := 0
	for _, b := range blocks {
		size += len(b.text)
	}
	text := make([]byte, 0, size)
	for _, b := range blocks {
		text = append(text, b.text...)
	}
	return text
}

// textOf returns the text of a source with services.
func textOf(blocks []block) []byte {
	if len(blocks) == 0 {
		return nil
	}
	return append([]byte(config.FragmentHead), join(blocks)...)
}

// blocksOf splits a source's text.
func blocksOf(text []byte) ([]block, error) {
	if blocks, ok := splitBlocks(text); ok {
		return blocks, nil
	}
	_, services, err := servicesOf(text)
	if err != nil {
		return nil, err
	}
	blocks := make([]block, 0, len(services.Content))
	for _, item := range services.Content {
		name := get(item, "name")
		if name == nil {
			return nil, fmt.Errorf("%w: line %d: a service has no name", ErrMalformed, item.Line)
		}
		var one bytes.Buffer
		encoder := yaml.NewEncoder(&one)
		encoder.SetIndent(2)
		list := &yaml.Node{Kind: yaml.SequenceNode, Content: []*yaml.Node{item}}
		if err := encoder.Encode(&yaml.Node{Kind: yaml.MappingNode, Content: []*yaml.Node{stringNode("services"),
			list}}); err != nil {
			return nil, err
		}
		blocks = append(blocks, block{name.Value, bytes.TrimPrefix(one.Bytes(), []byte(config.FragmentHead))})
	}
	return blocks, nil
}

// splitBlocks splits a text in exactly the form of config.WriteFragment, without parsing YAML.
func splitBlocks(text []byte) (blocks []block, ok bool) {
	text, ok = bytes.CutPrefix(text, []byte(config.FragmentHead))
	if !ok {
		return nil, len(text) == 0
	}
	begin, at := 0, 0
	for line := range bytes.Lines(text) {
		switch {
		case bytes.HasPrefix(line, []byte(firstLine)):
			name := strings.TrimRight(string(line[len(firstLine):]), "\n")
			if strings.ContainsAny(name, "'\"|>#") || name == "" {
				return nil, false
			}
			if at > 0 {
				blocks[len(blocks)-1].text = text[begin:at:at]
			}
			blocks, begin = append(blocks, block{name: name}), at
		case len(blocks) == 0, !bytes.HasPrefix(line, []byte(furtherLine)):
			return nil, false
		}
		at += len(line)
	}
	if len(blocks) > 0 {
		blocks[len(blocks)-1].text = text[begin:at:at]
	}
	return blocks, true
}

// amended is a source that was changed by a difference.
type amended struct {
	next *revision
	// made lacks its text: see whole.
	made Fragment
	// put are the texts of the changed services, was their previous texts, and removed the names of removed ones.
	put     []block
	was     []byte
	removed []string
	// given are the names of the difference's services, in its order; put lacks those that it leaves as they are.
	given []string
}

// whole is the source with its text.
func (a *amended) whole() Fragment { return a.next.fragment(a.made.Name) }

// size is the length of the source's text.
func (a *amended) size() (n int64) {
	for _, b := range a.next.blocks[a.made.Name] {
		n += int64(len(b.text))
	}
	return n
}

// firstLine begins each service in a text as config.WriteFragment writes it, and furtherLine all lines that follow.
const (
	firstLine   = "  - name: "
	furtherLine = "    "
)
