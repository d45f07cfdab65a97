// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/alecthomas/kong"
	kongcompletion "github.com/jotaen/kong-completion"
	"github.com/posener/complete"
)

// completionCmd prints what a shell needs to complete command lines of jeoul.
type completionCmd struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"The shell: bash, zsh or fish."`
}

// Help says how to use it.
func (completionCmd) Help() string {
	return `For this shell alone:

    source <(jeoul completion bash)
    source <(jeoul completion zsh)
    jeoul completion fish | source

For good, put that line into ~/.bashrc, ~/.zshrc or ~/.config/fish/config.fish.`
}

// Run prints it.
func (c completionCmd) Run(k *kong.Context) error {
	return (&kongcompletion.Completion{Shell: c.Shell, Code: true}).Run(k)
}

// completionBound is how long a running balancer may take to name its backends: a person waits
// with a finger on the key.
const completionBound = 500 * time.Millisecond

// completeLine answers a shell that asks, by the environment, how a command line may go on; it
// does nothing otherwise.
func completeLine(parser *kong.Kong) {
	command, err := kongcompletion.Command(parser,
		kongcompletion.WithPredictor("backend", liveNames(backendKind)),
		kongcompletion.WithPredictor("service", liveNames(serviceKind)),
		kongcompletion.WithPredictor("source", liveNames(sourceKind)),
		// A service, or one of its backends.
		kongcompletion.WithPredictor("part", complete.PredictOr(liveNames(serviceKind), liveNames(backendKind))))
	if err != nil {
		panic(fmt.Sprintf("a command names a predictor that there is not: %v", err)) // a fault of the program
	}
	widen(command, parser.Model.Node)
	line := complete.New(parser.Model.Name, command)
	if line.Out = parser.Stdout; line.Complete() {
		parser.Exit(0)
	}
}

// mostArguments is up to which of its arguments one that may be repeated is completed.
const mostArguments = 32

// widen adds what is not made of the model of the command line: other names of commands, and arguments that may be
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
		for len(args.Predictors) < mostArguments {
			args.Predictors = append(args.Predictors, args.Predictors[last])
		}
	}
}

// liveNames lists the things of a kind that the running balancer has; none where no daemon answers.
func liveNames[T any](k kind[T]) complete.PredictFunc {
	return func(line complete.Args) (names []string) {
		ctx, cancel := context.WithTimeout(context.Background(), completionBound)
		defer cancel()
		client, err := daemonOf(line.All).client()
		if err != nil {
			return nil
		}
		found, err := k.list(client, ctx)
		if err != nil {
			return nil
		}
		for _, one := range found {
			names = append(names, k.name(one))
		}
		return names
	}
}

// daemonOf returns where the daemon is, as a command line and the environment name it.
func daemonOf(words []string) (at daemonFlags) {
	for _, flag := range []struct {
		name, variable string
		to             *string
	}{
		{"--socket", "", &at.Socket}, {"--server", "JEOUL_SERVER", &at.Server},
		{"--token-file", "JEOUL_TOKEN_FILE", &at.TokenFile},
		{"--ca", "JEOUL_CA", &at.CA}, {"--certificate", "JEOUL_CERTIFICATE", &at.Certificate},
		{"--key", "JEOUL_KEY", &at.Key},
	} {
		*flag.to = os.Getenv(flag.variable)
		for i, word := range words {
			if value, is := strings.CutPrefix(word, flag.name+"="); is {
				*flag.to = value
			} else if word == flag.name && i+1 < len(words) {
				*flag.to = words[i+1]
			}
		}
	}
	return at
}
