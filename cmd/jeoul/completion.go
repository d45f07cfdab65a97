// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/alecthomas/kong"
	kongcompletion "github.com/jotaen/kong-completion"
	"github.com/posener/complete"

	"github.com/jeoul/jeoul/cmd/jeoul/watchcmd"
)

// completionCmd prints the completion script of a shell.
type completionCmd struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"The shell: bash, zsh or fish."`
}

// Help explains how to load the completion script.
func (completionCmd) Help() string {
	return `For this shell alone:

    source <(jeoul completion bash)
    source <(jeoul completion zsh)
    jeoul completion fish | source

For good, put that line into ~/.bashrc, ~/.zshrc or ~/.config/fish/config.fish.`
}

// Run prints the script.
func (c completionCmd) Run(k *kong.Context) error {
	return (&kongcompletion.Completion{Shell: c.Shell, Code: true}).Run(k)
}

// completeLine answers a shell's request for completion, which comes in the environment; without one it does nothing.
func completeLine(parser *kong.Kong) {
	command, err := kongcompletion.Command(parser,
		kongcompletion.WithPredictor("backend", watchcmd.PredictBackends),
		kongcompletion.WithPredictor("service", watchcmd.PredictServices),
		kongcompletion.WithPredictor("source", watchcmd.PredictSources),
		// A service, or one of its backends.
		kongcompletion.WithPredictor("part", complete.PredictOr(watchcmd.PredictServices, watchcmd.PredictBackends)))
	if err != nil {
		panic(fmt.Sprintf("a command names a predictor that there is not: %v", err)) // a fault of the program
	}
	widen(command, parser.Model.Node)
	line := complete.New(parser.Model.Name, command)
	if line.Out = parser.Stdout; line.Complete() {
		parser.Exit(0)
	}
}

// maxRepeated is the number of repetitions up to which an argument that may be repeated is completed.
const maxRepeated = 32

// widen adds the candidates that the model of the command line lacks: aliases of commands, and arguments that may be
// repeated.
func widen(command complete.Command, node *kong.Node) {
	for _, child := range node.Children {
		sub, shown := command.Sub[child.Name]
		if !shown {
			continue
		}
		widen(sub, child)
		for _, alias := range child.Aliases {
			command.Sub[alias] = sub
		}
	}
	last := len(node.Positional) - 1
	if args, ok := command.Args.(*kongcompletion.PositionalPredictor); ok && last >= 0 &&
		node.Positional[last].IsCumulative() {
		for len(args.Predictors) < maxRepeated {
			args.Predictors = append(args.Predictors, args.Predictors[last])
		}
	}
}
