// SPDX-License-Identifier: Apache-2.0

package draft

import (
	"bytes"
	"fmt"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/jeoul/jeoul/internal/move/remark"
)

// heading returns the comment at the top of the file.
func (d *Draft) heading() string {
	text := fmt.Sprintf("Made of %s by `jeoul import %s`.", remark.Printable(d.Input), d.Dialect)
	if len(d.Interfaces)+len(d.interfaces) == 0 {
		text += " It names no interface: write the one that packets arrive on in place of " + UnknownInterface + "."
	}
	if left := d.Count(remark.Left); left > 0 {
		text += fmt.Sprintf(" Left out, as the command says of each: %d.", left)
	}
	return text
}

// comments returns the comments on the services.
func (d *Draft) comments() []string {
	texts := make([]string, len(d.Services))
	for i, s := range d.Services {
		texts[i] = fmt.Sprintf("%s, %s: %s", remark.Printable(s.At.String()), d.Dialect, d.Text(s.At))
	}
	return texts
}

// Count returns the number of remarks of a kind.
func (d *Draft) Count(kind remark.Kind) int {
	n := 0
	for _, r := range d.Remarks {
		if r.Kind == kind {
			n++
		}
	}
	return n
}

// comment adds comments to a written configuration and to its services.
func comment(text []byte, heading string, services []string) ([]byte, error) {
	var document yaml.Node
	if err := yaml.Unmarshal(text, &document); err != nil {
		return nil, fmt.Errorf("comment the configuration: %w", err)
	}
	root := document.Content[0]
	root.HeadComment = "# " + heading
	at := slices.IndexFunc(root.Content, func(n *yaml.Node) bool { return n.Value == "services" })
	for i, node := range root.Content[at+1].Content {
		node.HeadComment = "# " + services[i]
	}
	var commented bytes.Buffer
	encoder := yaml.NewEncoder(&commented)
	encoder.SetIndent(2)
	if err := encoder.Encode(&document); err != nil {
		return nil, fmt.Errorf("comment the configuration: %w", err)
	}
	return commented.Bytes(), nil
}
