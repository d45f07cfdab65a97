// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"

	"github.com/alecthomas/kong"
)

// Connection is the group of flags that select the balancer. Many commands have them, so help explains them once, with
// the program.
const Connection = "connection"

// Groups returns the groups of commands and flags with their titles. tasks are the groups of commands.
func Groups(tasks []kong.Group) kong.Option {
	return kong.ExplicitGroups(append(tasks, kong.Group{Key: Connection,
		Title: "Which balancer is asked (flags of every command that asks one):"}))
}

// PrintHelp prints the help of the program, or of a command without the connection flags.
func PrintHelp(options kong.HelpOptions, ctx *kong.Context) error {
	options.NoExpandSubcommands = true
	connection := connectionFlags(ctx.Model.Node)
	if ctx.Selected() == nil {
		options.FlagsLast = true
		own := ctx.Model.Flags
		ctx.Model.Flags = append(own[:len(own):len(own)], connection...)
		defer func() { ctx.Model.Flags = own }()
		return kong.DefaultHelpPrinter(options, ctx)
	}
	for _, child := range ctx.Selected().Children {
		child.Group = &kong.Group{Key: "commands", Title: "Commands:"} // of the same task, all of them
	}
	asks := false
	for _, group := range ctx.Selected().AllFlags(true) {
		for _, flag := range group {
			if flag.Group == nil || flag.Group.Key != Connection {
				continue
			}
			flag.Hidden, asks = true, true
			defer func() { flag.Hidden = false }()
		}
	}
	if err := kong.DefaultHelpPrinter(options, ctx); err != nil {
		return err
	}
	if asks {
		fmt.Fprintf(ctx.Stdout,
			"\nIt asks the balancer of this host; to ask another one (--server, …), see `%s --help`.\n",
			ctx.Model.Name)
	}
	return nil
}

// connectionFlags returns the connection flags of the first command that has all of them.
func connectionFlags(node *kong.Node) (flags []*kong.Flag) {
	for _, flag := range node.Flags {
		if flag.Group != nil && flag.Group.Key == Connection {
			flags = append(flags, flag)
		}
	}
	for _, child := range node.Children {
		if len(flags) > 0 {
			break
		}
		flags = connectionFlags(child)
	}
	return flags
}
