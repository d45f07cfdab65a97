// SPDX-License-Identifier: Apache-2.0

package load

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"github.com/jeoul/jeoul/internal/weigh/bench/probe"
)

// Parts that generators share that are the jeoul binary itself (paced, transact): a client prints a report as JSON,
// which is read where the trial is run.

// Own is the part that a [Kind] of a generator embeds that is the jeoul binary itself.
type Own struct{ Requesting }

// VersionFlag returns the argument by which jeoul tells its version.
func (Own) VersionFlag() string { return "version" }

// Obstacle counts open files and ports.
func (Own) Obstacle(share Share, limits probe.Limits) string {
	return Obstacle("the client", share, limits)
}

// clients run a generator by its options, both as JSON, by its name.
var clients = map[string]func(ctx context.Context, options []byte) (report any, err error){}

// RegisterClient lets `jeoul bench client` run a generator: it reads the options, runs them, and prints the report. A
// package's init calls it; it panics if the name is taken.
func RegisterClient[Options interface {
	Run(context.Context) (Report, error)
}, Report any](name string) {
	if clients[name] != nil {
		panic("two clients are called " + name)
	}
	clients[name] = func(ctx context.Context, text []byte) (any, error) {
		var options Options
		if err := json.Unmarshal(text, &options); err != nil {
			return nil, fmt.Errorf("reading what to do: %w", err)
		}
		return options.Run(ctx)
	}
}

// ClientCommand is the command line by which a share's jeoul runs a registered client.
func ClientCommand(share Share, name string, options any) ([]string, error) {
	text, err := json.Marshal(options)
	return []string{share.Executable, "bench", "client", name, string(text)}, err
}

// RunClient runs a registered client, and writes its report.
func RunClient(ctx context.Context, name string, options []byte, to io.Writer) error {
	run, ok := clients[name]
	if !ok {
		return fmt.Errorf("there is no client %s", name)
	}
	report, err := run(ctx, options)
	if err != nil {
		return err
	}
	return json.NewEncoder(to).Encode(report)
}

// Failures is the part of a client's report about failed requests.
type Failures struct {
	// Failed counts the failed requests.
	Failed uint64 `json:"failed"`
	// Why says for some of them why: different reasons, maxWhy at most.
	Why []string `json:"why,omitempty"`
}

// maxWhy is how many reasons are kept.
const maxWhy = 5

// Fail counts a request that failed for a reason.
func (f *Failures) Fail(err error) {
	f.Failed++
	f.Why = withReason(f.Why, err.Error())
}

// withReason adds a reason to those that are kept, unless it is among them or they are enough.
func withReason(reasons []string, reason string) []string {
	if len(reasons) < maxWhy && !slices.Contains(reasons, reason) {
		return append(reasons, reason)
	}
	return reasons
}

// ReadReport reads a client's report, in which the functions find the latencies, and how many of
// them there must be. Its error wraps ErrOutput.
func ReadReport[R any](text []byte, latency func(*R) *Latency, ended func(*R) uint64) (*R, error) {
	var r R
	if err := json.Unmarshal(text, &r); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrOutput, err)
	}
	l := latency(&r)
	if l == nil {
		return nil, fmt.Errorf("%w: it has no latencies", ErrOutput)
	}
	if want := ended(&r); uint64(l.Count()) != want {
		return nil, fmt.Errorf("%w: it has %d latencies of %d that ended", ErrOutput, l.Count(), want)
	}
	return &r, nil
}
