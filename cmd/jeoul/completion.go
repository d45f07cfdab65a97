// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
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
	kongcompletion.Register(parser, kongcompletion.WithPredictor("backend", complete.PredictFunc(liveBackends)))
}

// liveBackends names the backends of the running balancer, SERVICE/BACKEND each; none where no
// daemon answers.
func liveBackends(line complete.Args) (names []string) {
	ctx, cancel := context.WithTimeout(context.Background(), completionBound)
	defer cancel()
	client, err := daemonOf(line.All).client()
	if err != nil {
		return nil
	}
	status, err := client.Status(ctx)
	if err != nil {
		return nil
	}
	for _, service := range status.Services {
		for _, backend := range service.Backends {
			names = append(names, service.Name+"/"+backend.Name)
		}
	}
	return names
}

// daemonOf returns where the daemon is, as a command line and the environment name it.
func daemonOf(words []string) (at daemonFlags) {
	for _, flag := range []struct {
		name, variable string
		to             *string
	}{
		{"--socket", "", &at.Socket}, {"--server", "JEOUL_SERVER", &at.Server}, {"--token-file", "JEOUL_TOKEN_FILE", &at.TokenFile},
		{"--ca", "JEOUL_CA", &at.CA}, {"--certificate", "JEOUL_CERTIFICATE", &at.Certificate}, {"--key", "JEOUL_KEY", &at.Key},
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
