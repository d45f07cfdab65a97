// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"errors"
	"io"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// yamlPosition matches the library's text for a position.
var yamlPosition = regexp.MustCompile(`^yaml: line (\d+): `)

// readYAML reads Ansible's YAML form: groups by name, each with hosts, vars and
// children.
func (p *parser) readYAML(data []byte) {
	decoder := yaml.NewDecoder(strings.NewReader(string(data)))
	var root yaml.Node
	if err := decoder.Decode(&root); err != nil && !errors.Is(err, io.EOF) {
		line := 0
		if at := yamlPosition.FindStringSubmatch(err.Error()); at != nil {
			line, _ = strconv.Atoi(at[1]) // digits; 0 if there are too many
		}
		p.fail(line, "", "%s", yamlPosition.ReplaceAllString(err.Error(), ""))
		return
	}
	if err := decoder.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		p.fail(0, "", "a second YAML document follows; keep one in a file")
		return
	}
	if len(root.Content) == 0 {
		p.fail(0, "", "empty; an inventory has groups")
		return
	}
	p.each(root.Content[0], "", func(name string, key, node *yaml.Node) { p.readGroup(name, key.Line, node) })
}

// each calls do for the keys of a mapping; an empty mapping may be left out.
func (p *parser) each(node *yaml.Node, field string, do func(name string, key, value *yaml.Node)) {
	if node.Kind == yaml.AliasNode {
		p.fail(node.Line, field, "aliases are not supported here; write it out")
		return
	}
	if node.Kind == yaml.ScalarNode && node.Tag == "!!null" {
		return
	}
	if node.Kind != yaml.MappingNode {
		p.fail(node.Line, field, "not a mapping (key: value)")
		return
	}
	for i := 0; i+1 < len(node.Content); i += 2 {
		do(node.Content[i].Value, node.Content[i], node.Content[i+1])
	}
}

func (p *parser) readGroup(name string, line int, node *yaml.Node) {
	g := p.group(name, line)
	p.each(node, name, func(part string, key, node *yaml.Node) {
		switch part {
		case "hosts":
			p.each(node, name+".hosts", func(pattern string, key, node *yaml.Node) {
				vars := map[string]value{}
				p.each(node, pattern, func(name string, key, node *yaml.Node) { p.scalar(vars, pattern, name, node) })
				p.addHosts(g, pattern, key.Line, vars)
			})
		case "vars":
			p.each(node, name+".vars", func(of string, _, node *yaml.Node) { p.scalar(g.vars, name, of, node) })
		case "children":
			p.each(node, name+".children", func(child string, key, node *yaml.Node) {
				g.children = append(g.children, mention{child, key.Line})
				p.readGroup(child, key.Line, node)
			})
		default:
			p.fail(key.Line, name, "a group has hosts, vars and children, not %s", part)
		}
	})
}

// scalar records a variable. Lists and mappings belong to other roles.
func (p *parser) scalar(vars map[string]value, of, name string, node *yaml.Node) {
	if node.Kind == yaml.ScalarNode {
		vars[name] = value{node.Value, node.Line}
		return
	}
	if strings.HasPrefix(name, "jeoul_") && name != "jeoul_packages" || strings.HasPrefix(name, "ansible_") {
		p.fail(node.Line, of+"."+name, "must be a single value")
	}
}
