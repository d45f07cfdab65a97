// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"io"

	"github.com/jeoul/jeoul/internal/weigh/bench/load"
	"github.com/jeoul/jeoul/internal/weigh/lab"
	"github.com/jeoul/jeoul/internal/weigh/remote"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// Internals that tests use. These tests run suites, so they need the kinds of loads, which import this package.
var (
	NewRunner = newRunner
	NameOf    = name
	Blank     = blank
	AsRead    = jsonParams
	OrNone    = orNone
	TuneMode  = tuneMode
)

func (r *Runner) Run(ctx context.Context) (*results.Run, error) { return r.run(ctx) }
func (r *Runner) Build(ctx context.Context) error               { return r.build(ctx) }
func (r *Runner) TearDown() error                               { return r.tearDown() }
func (r *Runner) Serving() error                                { return r.serving() }
func (r *Runner) Resume() error                                 { return r.resume() }
func (r *Runner) Save() error                                   { return r.save() }
func (r *Runner) SameLimits() error                             { return r.sameLimits() }
func (r *Runner) Remaining(trials []Trial) []Trial              { return r.remaining(trials) }
func (r *Runner) ProgressTo(to io.Writer)                       { r.progress.to = to }
func (r *Runner) Tune(ctx context.Context, t Trial) error       { return r.tune(ctx, t) }
func (r *Runner) MarkTuned(all []results.Trial)                 { r.tuned.mark(all) }
func (r *Runner) CheckHosts(ctx context.Context) []string       { return r.checkHosts(ctx) }
func (p Point) CPUs(i int) *load.CPUs                           { return p.cpus(i) }
func (p Point) AllParams() map[string]any                       { return p.params() }
func (f Form) Spec() lab.Spec                                   { return f.spec() }
func (f Form) Notes() []string                                  { return f.notes() }
func (f Form) NotesOnMachines() []string                        { return f.notesOnMachines() }
func (f Form) OnMachines(of *remote.Inventory) (Form, error)    { return f.onMachines(of) }
func (f Form) RemoteAbsent() map[string]string                  { return f.remoteAbsent() }
