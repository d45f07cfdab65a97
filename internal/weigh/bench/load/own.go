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

// Shared parts of the generators that run the jeoul binary itself (paced, transact). A client prints a report as JSON,
// which is read where the trial runs.

// JeoulClient is embedded in each [Kind] whose generator is the jeoul binary itself.
type JeoulClient struct{ Requesting }

// VersionFlag returns the argument that makes jeoul print its version.
func (JeoulClient) VersionFlag() string { return "version" }

// SkipReason counts open files and ports.
func (JeoulClient) SkipReason(share Share, limits probe.Limits) string {
	return SkipReason("the client", share, limits)
}

// clients has the functions that run a generator with its options, by the generator's name. Options and reports are
// JSON.
var clients = map[string]func(ctx context.Context, options []byte) (report any, err error){}

// RegisterClient registers a generator for `jeoul bench client`, which reads the options, runs them, and prints the
// report. A package's init calls it. It panics if the name is taken.
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

// ClientCommand returns the command line that runs a registered client with the jeoul of a share.
func ClientCommand(share Share, name string, options any) ([]string, error) {
	text, err := json.Marshal(options)
	return []string{share.Executable, "bench", "client", name, string(text)}, err
}

// RunClient runs a registered client, and writes its report to to.
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
	// Why has the reasons of some of them: at most maxWhy different ones.
	Why []string `json:"why,omitempty"`
}

// maxWhy is the maximum number of kept reasons.
const maxWhy = 5

// Fail counts a failed request, and keeps its reason.
func (f *Failures) Fail(err error) {
	f.Failed++
	f.Why = withReason(f.Why, err.Error())
}

// withReason adds a reason, unless it is already there or there are maxWhy reasons.
func withReason(reasons []string, reason string) []string {
	if len(reasons) < maxWhy && !slices.Contains(reasons, reason) {
		return append(reasons, reason)
	}
	return reasons
}

// ReadReport reads a client's report. latency and ended return the report's latencies and how many of them there must
// be. Its error wraps ErrOutput.
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
