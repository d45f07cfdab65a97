// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/jeoul/jeoul/internal/host/openfiles"
	"github.com/jeoul/jeoul/internal/weigh/bench/subject"
	"github.com/jeoul/jeoul/internal/weigh/lab"
	"github.com/jeoul/jeoul/internal/weigh/remote"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// ErrInterrupted means that a run was cancelled before its last trial. The results file has its results until then.
var ErrInterrupted = errors.New("interrupted")

// Run runs a suite and returns its results. It saves them in the directory after every trial. If ctx ends, Run returns
// ErrInterrupted and the results so far. In every case it undoes all that it started or changed.
func Run(ctx context.Context, options Options) (*results.Run, error) {
	r, err := newRunner(ctx, options)
	if err != nil {
		return nil, err
	}
	return r.run(ctx)
}

// newRunner checks everything that can be checked before anything is built.
func newRunner(ctx context.Context, options Options) (*Runner, error) {
	form := options.Suite.Long
	if options.Quick {
		form = options.Suite.Quick
	}
	form, err := form.Only(options.Only, options.Loads)
	if err != nil {
		return nil, err
	}
	if options.Repeats > 0 {
		form = form.Repeated(options.Repeats)
	}
	if options.Inventory != nil {
		if form, err = form.onMachines(options.Inventory); err != nil {
			return nil, err
		}
	}
	r := &Runner{Options: options, Form: form, Grace: grace, progress: newProgress(options.Progress, options.Live,
		options.Columns)}
	r.progress.timeless = options.Counts()
	if err := r.prepare(ctx); err != nil {
		return nil, errors.Join(err, r.tearDown())
	}
	return r, nil
}

// prepare connects to the machines, if there are any, and describes the environment of the run.
func (r *Runner) prepare(ctx context.Context) (err error) {
	options, form := r.Options, r.Form
	var env results.Environment
	if options.Inventory == nil {
		env, r.Absent, err = environment(ctx, form, options)
	} else if err = r.reach(ctx); err == nil {
		env, r.Absent, err = remoteEnvironment(ctx, r.Lab, form, options)
	}
	if err != nil {
		return err
	}
	if err := errors.Join(openfiles.Raise(), os.MkdirAll(options.Dir, 0o755)); err != nil {
		return err
	}
	r.Results = &results.Run{
		Schema: results.Schema, Suite: options.Suite.Name, Title: options.Suite.Title, Command: options.Command,
		Quick: options.Quick, Started: time.Now(), Environment: env, Trials: []results.Trial{},
		Baseline: options.Suite.Baseline, Published: options.Suite.Published,
		SuiteDigest: options.Suite.Digest, Only: options.Only, Loads: options.Loads, Repeats: options.Repeats,
	}
	if options.Resume {
		return r.resume()
	}
	return nil
}

// reach connects to the inventory's machines, and makes a laboratory of them.
func (r *Runner) reach(ctx context.Context) (err error) {
	r.progress.say("reaching %v and a balancer", r.Form.Lab)
	r.Lab, err = remote.Open(ctx, r.Options.Inventory, remote.Options{
		Executable: r.Options.Executable, Build: r.Options.Version + " " + r.Options.Commit})
	return err
}

func (r *Runner) run(ctx context.Context) (*results.Run, error) {
	err := r.inLab(ctx)
	// Everything has been taken down now, which may have failed, too.
	r.Results.Ended = time.Now()
	if ctx.Err() != nil {
		r.Results.Interrupted = true
		err = errors.Join(r.interrupted(), withoutCanceled(err))
	}
	if len(r.Results.Trials) > 0 && !r.unsaved {
		err = errors.Join(err, r.save())
	}
	return r.Results, err
}

// interrupted returns the error of a cancelled run, with its number of trials.
func (r *Runner) interrupted() error {
	if len(r.Results.Trials) == 0 {
		return fmt.Errorf("%w before the first trial had ended; nothing is kept", ErrInterrupted)
	}
	return fmt.Errorf("%w after %d of %d trials, which are in %s",
		ErrInterrupted, r.progress.done, r.progress.total, filepath.Join(r.Options.Dir, ResultsFile))
}

// withoutCanceled drops an error that only says that ctx ended.
func withoutCanceled(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// inLab builds the laboratory, runs the trials in it and takes it down.
func (r *Runner) inLab(ctx context.Context) (err error) {
	if r.Options.Inventory == nil {
		r.progress.say("building a laboratory of %v", r.Form.Lab)
	}
	stop := r.progress.follow(ctx)
	defer func() {
		stop()
		err = errors.Join(err, r.tearDown())
	}()
	if err := r.build(ctx); err != nil {
		return err
	}
	if err := r.sameLimits(); err != nil {
		return err
	}
	all := Plan(r.Form, r.Limits, r.Absent)
	trials := all
	if r.Options.Resume {
		trials = r.remaining(all)
		r.progress.say("%d of %d trials are there already", len(all)-len(trials), len(all))
		r.note(fmt.Sprintf("the run was gone on with at %s, after %d of its %d trials",
			time.Now().Format(time.RFC3339), len(all)-len(trials), len(all)))
	}
	return r.trials(ctx, trials, len(all))
}

// note adds an event of the run to the notes for readers.
func (r *Runner) note(event string) {
	r.history = append(r.history, event)
	r.Results.Environment.Notes = append(r.Results.Environment.Notes, event)
}

// build builds the laboratory and starts its servers.
func (r *Runner) build(ctx context.Context) (err error) {
	switch {
	case r.Options.Inventory == nil:
		r.Lab, err = lab.New(ctx, r.spec())
	case r.Lab == nil:
		err = r.reach(ctx)
	}
	if err != nil {
		return err
	}
	// Subjects that send by XDP request it; it would cost the others performance.
	if err := r.Lab.AcceptXDP(false); err != nil {
		return err
	}
	if r.Limits, err = limitsOf(ctx, r.Lab); err != nil {
		return err
	}
	addLimits(&r.Results.Environment, r.Limits)
	if r.Lab.Remote() {
		err = addMachines(ctx, &r.Results.Environment, r.Lab, r.Form)
	} else {
		addLab(&r.Results.Environment, r.Lab, r.Form)
		addVirtual(&r.Results.Environment, r.Options)
	}
	if err != nil {
		return err
	}
	r.Results.Environment.Notes = append(r.Results.Environment.Notes, r.checkHosts(ctx)...)
	r.Results.Environment.Notes = append(r.Results.Environment.Notes, r.history...)
	r.progress.watch(r.Lab)
	return r.startServers(ctx)
}

// tearDown takes the laboratory down, if there is one.
func (r *Runner) tearDown() error {
	r.progress.watch(nil)
	if r.Lab == nil {
		return nil
	}
	var errs []error
	for _, end := range r.AtEnd {
		errs = append(errs, end())
	}
	return errors.Join(append(errs, r.Lab.Close())...)
}

// spec returns the form's laboratory. If instructions are counted, nothing is measured in the background, because that
// would count, too.
func (r *Runner) spec() lab.Spec {
	spec := r.Form.spec()
	spec.Unmetered = r.Options.Counts()
	return spec
}

// startServers starts the servers for the form's loads.
func (r *Runner) startServers(ctx context.Context) error {
	for _, e := range r.Form.experiments() {
		if r.Absent.Kinds[e.Name()] != "" {
			continue
		}
		if err := e.Prepare(ctx, r); err != nil {
			return err
		}
	}
	return nil
}

// maxRebuilds is how often in a row a laboratory may be rebuilt before the run gives up.
const maxRebuilds = 3

// trials runs the given trials; all is the number of the run's trials, including those of an earlier run. If the
// laboratory cannot be used any more after a trial, that trial ends, but not the run: the next trial gets a new
// laboratory.
func (r *Runner) trials(ctx context.Context, trials []Trial, all int) error {
	r.progress.begin(all, all-len(trials))
	var broken error
	rebuilt := 0
	for i, t := range trials {
		if err := ctx.Err(); err != nil {
			return err
		}
		if i > 0 && t.Repeat > trials[i-1].Repeat && r.Options.Enough != nil {
			if reason := r.Options.Enough(r.Results); reason != "" {
				r.progress.say("ending %s", reason)
				r.note("the run ended " + reason)
				return nil
			}
		}
		if broken != nil {
			if rebuilt++; rebuilt > maxRebuilds {
				return fmt.Errorf("%w; the laboratory was built anew %d times in a row, and broke each time", broken,
					maxRebuilds)
			}
			if err := r.rebuild(ctx); err != nil {
				return fmt.Errorf("building the laboratory anew, for %w: %w", broken, err)
			}
		}
		r.progress.starting(t)
		var got []results.Trial
		got, broken = r.trial(ctx, t)
		if err := ctx.Err(); err != nil {
			if e, ok := t.Experiment.(stepping); ok {
				r.Results.Trials = append(r.Results.Trials, e.CompleteSteps(got)...)
			}
			return fmt.Errorf("%s: %w", name(t), errors.Join(err, broken))
		}
		if broken == nil {
			broken = r.serving()
		}
		if broken != nil {
			broken = fmt.Errorf("%s: %w", name(t), broken)
			got = invalidated(t, got, broken)
		} else {
			rebuilt = 0
		}
		r.Results.Trials = append(r.Results.Trials, got...)
		if err := r.save(); err != nil {
			return err
		}
		r.progress.ended(t, got...)
	}
	return nil
}

// invalidated marks the results of a trial that broke the laboratory as invalid.
func invalidated(t Trial, got []results.Trial, broken error) []results.Trial {
	if len(got) == 0 {
		got = []results.Trial{blank(t)}
	}
	for i := range got {
		got[i].Valid = false
		got[i].Notes = append([]string{fmt.Sprintf(
			"%v; the laboratory cannot be used any more, and the next trial has a new one", broken)}, got[i].Notes...)
	}
	return got
}

// rebuild takes the laboratory down and builds another. Parts that cannot be taken down are left for the next run,
// which tries again.
func (r *Runner) rebuild(ctx context.Context) error {
	r.note(fmt.Sprintf("the laboratory was built anew after trial %d of %d, whose notes say why", r.progress.done,
		r.progress.total))
	if err := r.tearDown(); err != nil {
		r.progress.say("the broken laboratory could not be taken down: %v", err)
	}
	r.Lab, r.labState, r.settled, r.tuned = nil, nil, nil, tuning{}
	r.Alive, r.AfterTrial, r.AtEnd, r.Retuned = nil, nil, nil, nil
	return r.build(ctx)
}

// serving returns nil while the servers of all subjects run.
func (r *Runner) serving() error {
	for _, alive := range r.Alive {
		if err := alive(); err != nil {
			return err
		}
	}
	return nil
}

func (r *Runner) save() error {
	err := r.Results.Save(filepath.Join(r.Options.Dir, ResultsFile))
	r.unsaved = err != nil
	return err
}

// trial measures a point once, with a new subject, so that no state of an earlier trial affects it. A fault of the
// point makes the result invalid; an error means that the laboratory cannot be used any more. An experiment may have
// several results.
func (r *Runner) trial(ctx context.Context, t Trial) ([]results.Trial, error) {
	got := blank(t)
	if t.SkipReason != "" {
		got.Notes = append(got.Notes, t.SkipReason)
		return []results.Trial{got}, nil
	}
	if err := errors.Join(r.Lab.Offload(t.Offloads), r.tune(ctx, t)); err != nil {
		return nil, err
	}
	running, err := t.Subject.Start(ctx, r.setup(t), t.Params)
	if err != nil {
		got.Notes = append(got.Notes, fmt.Sprintf("the subject could not be started: %v", err))
		return []results.Trial{got}, ctx.Err()
	}
	all := r.measure(ctx, t, running, got)
	r.tuned.mark(all)
	if r.settled, err = settle(ctx, r.Lab, running); err != nil {
		return all, fmt.Errorf("ending the trial: %w", errors.Join(ctx.Err(), err))
	}
	errs := []error{ctx.Err()}
	for _, tidy := range r.AfterTrial {
		errs = append(errs, tidy())
	}
	return all, errors.Join(errs...)
}

// blank returns the empty result of a trial.
func blank(t Trial) results.Trial {
	return results.Trial{
		Subject: t.Subject.Name(), Load: t.Load, Params: t.params(), Repeat: t.Repeat,
		Saturated: results.SaturatedUnknown, Notes: []string{}, Metrics: map[string]float64{},
	}
}

// setup returns the setup in which a trial's subject is started.
func (r *Runner) setup(t Trial) subject.Setup {
	setup := subject.Setup{Lab: r.Lab, Services: t.Experiment.Services(r.Lab, t.Point),
		Executable: r.Options.Executable, Other: r.Options.Other, Local: t.Local(), Members: t.Form.Lab.Members,
		Router: t.Form.Lab.Router, BFD: t.Form.Lab.BFD}
	if e, ok := t.Experiment.(setupChanger); ok {
		e.ChangeSetup(r, t.Point, &setup)
	}
	return setup
}

// measure runs the load on a running subject, and adds the notes on the remains of the previous trial to every result.
func (r *Runner) measure(ctx context.Context, t Trial, running subject.Running, got results.Trial) []results.Trial {
	all, err := t.Experiment.Conduct(ctx, r, t, running, got)
	if len(all) == 0 {
		all = []results.Trial{got}
	}
	for i := range all {
		all[i].Notes = append(all[i].Notes, r.settled...)
		if err != nil {
			all[i].Valid = false
			all[i].Notes = append([]string{err.Error()}, all[i].Notes...)
		}
	}
	return all
}
