// SPDX-License-Identifier: Apache-2.0

package watchcmd

import (
	"context"
	"os"
	"strings"
	"time"

	"github.com/posener/complete"

	"github.com/jeoul/jeoul/cmd/jeoul/cmdkit"
)

// completionTimeout bounds the time that a running balancer may take to name its backends: a person is waiting for the
// completion.
const completionTimeout = 500 * time.Millisecond

// Predictors that complete the names of backends, services and sources of the running balancer.
var (
	PredictBackends = liveNames(backendKind)
	PredictServices = liveNames(serviceKind)
	PredictSources  = liveNames(sourceKind)
)

// liveNames lists the objects of a kind that the running balancer has; none if no daemon answers.
func liveNames[T any](k kind[T]) complete.PredictFunc {
	return func(line complete.Args) (names []string) {
		ctx, cancel := context.WithTimeout(context.Background(), completionTimeout)
		defer cancel()
		client, err := daemonOf(line.All).NewClient()
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

// daemonOf returns the flags that select the daemon, from a command line and the environment.
func daemonOf(words []string) (at cmdkit.DaemonFlags) {
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
