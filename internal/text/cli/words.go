// SPDX-License-Identifier: Apache-2.0

// Package cli makes a kong command line familiar to users of kubectl and ip: it groups help by task, names the allowed
// words in errors, and accepts old spellings for one release.
package cli

import (
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// Name returns the name of a command without the program, such as "backend drain".
func Name(node *kong.Node) string {
	if node.Parent == nil || node.Parent.Type == kong.ApplicationNode {
		if node.Type == kong.ApplicationNode {
			return ""
		}
		return node.Name
	}
	return Name(node.Parent) + " " + node.Name
}

// Called returns the command line of a command, such as "jeoul backend drain". The default command of a group has the
// group's name.
func Called(app *kong.Application, node *kong.Node) string {
	if node.Parent != nil && node.Parent.DefaultCmd == node {
		node = node.Parent
	}
	return strings.TrimSpace(app.Name + " " + Name(node))
}

// walk follows words from a node as far as they name commands, then selects the default command of a group. It returns
// the remaining words.
func walk(node *kong.Node, words []string) (*kong.Node, []string) {
	node, words = named(node, words)
	if node.DefaultCmd != nil {
		node = node.DefaultCmd
	}
	return node, words
}

// named follows words from a node as far as they name commands, and returns the remaining words.
func named(node *kong.Node, words []string) (*kong.Node, []string) {
	for len(words) > 0 {
		i := slices.IndexFunc(node.Children, func(child *kong.Node) bool {
			return child.Name == words[0] || slices.Contains(child.Aliases, words[0])
		})
		if i < 0 {
			break
		}
		node, words = node.Children[i], words[1:]
	}
	return node, words
}

// Visible returns the commands of a node that help lists.
func Visible(node *kong.Node) (children []*kong.Node) {
	for _, child := range node.Children {
		if !child.Hidden {
			children = append(children, child)
		}
	}
	return children
}

// Help replaces `help` in a command line by kong's --help. `help` may precede a command, as in kubectl, or follow one
// that has subcommands, as in ip.
func Help(app *kong.Application, args []string) []string {
	if len(args) > 0 && args[0] == "help" {
		return append(slices.Clone(args[1:]), "--help")
	}
	node, rest := named(app.Node, args)
	if len(rest) == 1 && rest[0] == "help" && len(node.Children) > 0 {
		return append(slices.Clone(args[:len(args)-1]), "--help")
	}
	return args
}

// flagNames returns the long names of a command's flags as they are typed. own omits the connection flags, which each
// command has that connects to a balancer.
func flagNames(node *kong.Node) (own, all []string) {
	for _, group := range node.AllFlags(true) {
		for _, flag := range group {
			all = append(all, "--"+flag.Name)
			if flag.Group == nil || flag.Group.Key != Connection {
				own = append(own, "--"+flag.Name)
			}
		}
	}
	return own, all
}
