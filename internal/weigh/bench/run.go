// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/jeoul/jeoul/internal/host/openfiles"
	"github.com/jeoul/jeoul/internal/weigh/bench/load"
	"github.com/jeoul/jeoul/internal/weigh/bench/load/live"
	"github.com/jeoul/jeoul/internal/weigh/bench/probe"
	"github.com/jeoul/jeoul/internal/weigh/bench/subject"
	"github.com/jeoul/jeoul/internal/weigh/lab"
	"github.com/jeoul/jeoul/internal/weigh/remote"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// ErrInterrupted says that a run was ended before its last trial; what it had
// measured until then is in its results file.
var ErrInterrupted = errors.New("interrupted")

// ResultsFile is the name of a run's results in its directory.
const ResultsFile = "results.json"

// Options say how a suite is to be run.
type Options struct {
	Suite *Suite
	// Quick takes the suite's short form.
	Quick bool
	// Only leaves out all subjects but these, Loads all loads but these; none means
	// all.
	Only, Loads []string
	// Repeats is how often every point is measured; 0 means as the suite says.
	Repeats int
	// Enough, if it is not nil, is asked after every whole repeat; the run ends early, and well, for a reason that it
	// returns.
	Enough func(*results.Run) string
	// Dir is where the results go; it is made if it is missing.
	Dir string
	// Inventory, if it is not nil, are the machines that take the namespaces' place.
	Inventory *remote.Inventory
	// Resume goes on with the run that Dir has the results of.
	Resume bool
	// Command is the command line, for the results.
	Command string
	// Version and Commit are those of jeoul, Executable the path of its binary.
	Version, Commit, Executable string
	// Other is the path of another build of jeoul, for what is upgraded to it; it may be empty.
	Other string
	// Virtual is the virtual machine that this process is in; nil if it is in none.
	Virtual *results.Virtual
	// Progress is told how far the run is; Live says that it is a terminal, of so
	// many columns.
	Progress io.Writer
	Live     bool
	Columns  func() int
}

// Run runs a suite and returns its results, which after every trial are saved
// in the directory. Ended by ctx, it returns ErrInterrupted and the results so
// far. Whatever it returns, nothing that it started or changed is left.
func Run(ctx context.Context, options Options) (*results.Run, error) {
	r, err := newRunner(ctx, options)
	if err != nil {
		return nil, err
	}
	return r.run(ctx)
}

// newRunner checks everything that can be checked before something is built.
func newRunner(ctx context.Context, options Options) (*runner, error) {
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
	r := &runner{options: options, form: form, grace: grace, progress: newProgress(options.Progress, options.Live,
		options.Columns)}
	r.progress.timeless = options.counts()
	if err := r.prepare(ctx); err != nil {
		return nil, errors.Join(err, r.tearDown())
	}
	return r, nil
}

// prepare reaches the machines, if there are any, and describes what the run will be
// on.
func (r *runner) prepare(ctx context.Context) (err error) {
	options, form := r.options, r.form
	var env results.Environment
	if options.Inventory == nil {
		env, r.absent, err = environment(ctx, form, options)
	} else if err = r.reach(ctx); err == nil {
		env, r.absent, err = farEnvironment(ctx, r.lab, form, options)
	}
	if err != nil {
		return err
	}
	if err := errors.Join(openfiles.Raise(), os.MkdirAll(options.Dir, 0o755)); err != nil {
		return err
	}
	r.results = &results.Run{
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

// reach makes a laboratory of the inventory's machines.
func (r *runner) reach(ctx context.Context) (err error) {
	r.progress.say("reaching %v and a balancer", r.form.Lab)
	r.lab, err = remote.Open(ctx, r.options.Inventory, remote.Options{
		Executable: r.options.Executable, Build: r.options.Version + " " + r.options.Commit})
	return err
}

// runner is a run on its way.
type runner struct {
	options Options
	form    Form
	absent  Absent
	// grace is what a generator may take beyond the time of its load.
	grace time.Duration
	// faultTail, unless it is 0, ends a fault so long after the subject has noticed it, and not when the suite says: a
	// test waits for that event, and not for the longest time that it may take.
	faultTail time.Duration
	progress  *progress
	results   *results.Run
	limits    probe.Limits
	lab       *lab.Lab
	web       *web
	// tuned is how the hosts are tuned now.
	tuned tuning
	// kept are what experiments keep of this laboratory, alive are asked after each trial whether what serves all
	// subjects still runs, and atEnd take back before the laboratory goes what does not go with it.
	kept  map[string]any
	alive []func() error
	atEnd []func() error
	// live are the servers of change experiments; nil where there is none.
	live *live.Servers
	// unsaved says that saving has failed, and so would again.
	unsaved bool
	// certificate is what TLS servers show; nil where no load is over TLS.
	certificate *certificate
	// transactServers says that the servers of transactions run.
	transactServers bool
	// netservers says that netperf's do.
	netservers bool
	// ceilings are the most that a packet-level load reached without a balancer, by the
	// load's name.
	ceilings map[string]float64
	// settled are notes on what the last trial left, for the next.
	settled []string
	// limitsBefore are those of the run that is gone on with.
	limitsBefore map[string]string
	// history are events of the run that a reader of its figures must know of.
	history []string
}

func (r *runner) run(ctx context.Context) (*results.Run, error) {
	err := r.inLab(ctx)
	// Only now is everything taken down, which may have failed too.
	r.results.Ended = time.Now()
	if ctx.Err() != nil {
		r.results.Interrupted = true
		err = errors.Join(r.interrupted(), withoutCanceled(err))
	}
	if len(r.results.Trials) > 0 && !r.unsaved {
		err = errors.Join(err, r.save())
	}
	return r.results, err
}

// interrupted says what there is of a run that was ended early.
func (r *runner) interrupted() error {
	if len(r.results.Trials) == 0 {
		return fmt.Errorf("%w before the first trial had ended; nothing is kept", ErrInterrupted)
	}
	return fmt.Errorf("%w after %d of %d trials, which are in %s",
		ErrInterrupted, r.progress.done, r.progress.total, filepath.Join(r.options.Dir, ResultsFile))
}

// withoutCanceled drops an error that says no more than that ctx was ended.
func withoutCanceled(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// inLab builds the laboratory, runs the trials in it and takes it down.
func (r *runner) inLab(ctx context.Context) (err error) {
	if r.options.Inventory == nil {
		r.progress.say("building a laboratory of %v", r.form.Lab)
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
	all := Plan(r.form, r.limits, r.absent)
	trials := all
	if r.options.Resume {
		trials = r.remaining(all)
		r.progress.say("%d of %d trials are there already", len(all)-len(trials), len(all))
		r.remember(fmt.Sprintf("the run was gone on with at %s, after %d of its %d trials",
			time.Now().Format(time.RFC3339), len(all)-len(trials), len(all)))
	}
	return r.trials(ctx, trials, len(all))
}

// remember adds what has happened to the run to what a reader must know.
func (r *runner) remember(event string) {
	r.history = append(r.history, event)
	r.results.Environment.Notes = append(r.results.Environment.Notes, event)
}

// build makes the laboratory and starts what serves in it.
func (r *runner) build(ctx context.Context) (err error) {
	switch {
	case r.options.Inventory == nil:
		r.lab, err = lab.New(ctx, r.spec())
	case r.lab == nil:
		err = r.reach(ctx)
	}
	if err != nil {
		return err
	}
	// The subjects that send by XDP ask for it; the others would pay for it.
	if err := r.lab.AcceptXDP(false); err != nil {
		return err
	}
	if r.limits, err = limitsOf(ctx, r.lab); err != nil {
		return err
	}
	addLimits(&r.results.Environment, r.limits)
	if r.lab.Far() {
		err = addMachines(ctx, &r.results.Environment, r.lab, r.form)
	} else {
		addLab(&r.results.Environment, r.lab, r.form)
		addVirtual(&r.results.Environment, r.options)
	}
	if err != nil {
		return err
	}
	r.results.Environment.Notes = append(r.results.Environment.Notes, r.checkHosts(ctx)...)
	r.results.Environment.Notes = append(r.results.Environment.Notes, r.history...)
	r.progress.watch(r.lab)
	return r.startServers(ctx)
}

// tearDown takes the laboratory down, if there is one.
func (r *runner) tearDown() error {
	r.progress.watch(nil)
	if r.lab == nil {
		return nil
	}
	var errs []error
	for _, end := range r.atEnd {
		errs = append(errs, end())
	}
	return errors.Join(append(errs, r.lab.Close())...)
}

// spec is the form's laboratory. Where instructions are counted nothing measures along,
// for that would be counted too.
func (r *runner) spec() lab.Spec {
	spec := r.form.spec()
	spec.Unmetered = r.options.counts()
	return spec
}

// startServers starts what the form's loads ask.
func (r *runner) startServers(ctx context.Context) (err error) {
	if r.form.encrypted() {
		if r.certificate, err = newCertificate(r.lab); err != nil {
			return err
		}
	}
	if r.form.has(false) {
		if r.web, err = startWeb(ctx, r.lab, r.form.Web.FileBytes, r.limits, r.certificate); err != nil {
			return err
		}
	}
	if r.form.has(true) && r.absent.Kinds[load.IPerf3{}.Name()] == "" {
		if err := startBulk(ctx, r.lab); err != nil {
			return err
		}
	}
	for _, e := range r.form.experiments() {
		if r.absent.Kinds[e.Name()] != "" {
			continue
		}
		if err := e.prepare(ctx, r); err != nil {
			return err
		}
	}
	return nil
}

// mostRebuilt is how often in a row a laboratory may have to be built anew before
// the run is given up.
const mostRebuilt = 3

// trials runs them; of all of the run's, so many are there when they are done. A
// trial after which the laboratory cannot be used any more ends with that, not the
// run: the next one gets a laboratory that is built anew.
func (r *runner) trials(ctx context.Context, trials []Trial, all int) error {
	r.progress.begin(all, all-len(trials))
	var broken error
	rebuilt := 0
	for i, t := range trials {
		if err := ctx.Err(); err != nil {
			return err
		}
		if i > 0 && t.Repeat > trials[i-1].Repeat && r.options.Enough != nil {
			if reason := r.options.Enough(r.results); reason != "" {
				r.progress.say("ending %s", reason)
				r.remember("the run ended " + reason)
				return nil
			}
		}
		if broken != nil {
			if rebuilt++; rebuilt > mostRebuilt {
				return fmt.Errorf("%w; the laboratory was built anew %d times in a row, and broke each time", broken,
					mostRebuilt)
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
				r.results.Trials = append(r.results.Trials, e.whole(got)...)
			}
			return fmt.Errorf("%s: %w", name(t), errors.Join(err, broken))
		}
		if broken == nil {
			broken = r.serving()
		}
		if broken != nil {
			broken = fmt.Errorf("%s: %w", name(t), broken)
			got = spoilt(t, got, broken)
		} else {
			rebuilt = 0
		}
		r.results.Trials = append(r.results.Trials, got...)
		if err := r.save(); err != nil {
			return err
		}
		r.progress.ended(t, got...)
	}
	return nil
}

// spoilt marks the results of a trial after which the laboratory was broken.
func spoilt(t Trial, got []results.Trial, broken error) []results.Trial {
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

// rebuild takes the laboratory down and builds another. What cannot be taken down
// is left to the next run, which tries again.
func (r *runner) rebuild(ctx context.Context) error {
	r.remember(fmt.Sprintf("the laboratory was built anew after trial %d of %d, whose notes say why", r.progress.done,
		r.progress.total))
	if err := r.tearDown(); err != nil {
		r.progress.say("the broken laboratory could not be taken down: %v", err)
	}
	r.lab, r.web, r.kept, r.alive, r.atEnd, r.settled = nil, nil, nil, nil, nil, nil
	r.transactServers, r.netservers = false, false
	return r.build(ctx)
}

// serving returns nil if the web servers, which serve all subjects, still run.
func (r *runner) serving() error {
	for _, alive := range r.alive {
		if err := alive(); err != nil {
			return err
		}
	}
	if r.web == nil {
		return nil
	}
	return r.web.running()
}

func (r *runner) save() error {
	err := r.results.Save(filepath.Join(r.options.Dir, ResultsFile))
	r.unsaved = err != nil
	return err
}

// trial measures a point once, with a subject of its own, so that no trial
// meets what an earlier one left in it. What goes wrong with the point makes the
// result invalid; an error means that the laboratory cannot be used any more. An
// experiment may have several results.
func (r *runner) trial(ctx context.Context, t Trial) ([]results.Trial, error) {
	got := blank(t)
	if t.Obstacle != "" {
		got.Notes = append(got.Notes, t.Obstacle)
		return []results.Trial{got}, nil
	}
	if err := errors.Join(r.lab.Offload(t.Offloads), r.tune(ctx, t)); err != nil {
		return nil, err
	}
	running, err := t.Subject.Start(ctx, r.setup(t), t.Params)
	if err != nil {
		got.Notes = append(got.Notes, fmt.Sprintf("the subject could not be started: %v", err))
		return []results.Trial{got}, ctx.Err()
	}
	all := r.measure(ctx, t, running, got)
	r.tuned.mark(all)
	if r.settled, err = settle(ctx, r.lab, running); err != nil {
		return all, fmt.Errorf("ending the trial: %w", errors.Join(ctx.Err(), err))
	}
	if r.web != nil {
		err = r.web.emptyLogs()
	}
	return all, errors.Join(ctx.Err(), err)
}

// blank is the result of a trial of which nothing is known yet.
func blank(t Trial) results.Trial {
	return results.Trial{
		Subject: t.Subject.Name(), Load: t.Load, Params: t.params(), Repeat: t.Repeat,
		Saturated: results.SaturatedUnknown, Notes: []string{}, Metrics: map[string]float64{},
	}
}

// setup is where a trial's subject is started.
func (r *runner) setup(t Trial) subject.Setup {
	setup := subject.Setup{Lab: r.lab, Services: webServices(r.lab), Executable: r.options.Executable,
		Other: r.options.Other, Local: t.local(), Members: t.Form.Lab.Members,
		Router: t.Form.Lab.Router, BFD: t.Form.Lab.BFD}
	switch {
	case t.Experiment != nil:
		setup.Services = t.Experiment.services(r.lab, t.Point)
		if e, ok := t.Experiment.(remembering); ok {
			setup.Flows = e.flows(t.Form)
		}
	case t.Kind.Bulk():
		setup.Services = bulkServices(r.lab)
	case t.TLS:
		setup.Services, setup.Certificate = tlsServices(r.lab), r.certificate.path(r.lab.Balancer)
	}
	return setup
}

// measure puts the load on a subject that is up, and adds to every result what
// the last trial left.
func (r *runner) measure(ctx context.Context, t Trial, running subject.Running, got results.Trial) []results.Trial {
	var all []results.Trial
	var err error
	if t.Experiment != nil {
		all, err = t.Experiment.conduct(ctx, r, t, running, got)
	} else {
		m := &measurement{runner: r, trial: t, running: running, got: &got}
		err = m.measure(ctx)
	}
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

// keptOf returns what is kept of the laboratory under a name, made at first.
func keptOf[T any](r *runner, name string) *T {
	if r.kept == nil {
		r.kept = map[string]any{}
	}
	if r.kept[name] == nil {
		r.kept[name] = new(T)
	}
	return r.kept[name].(*T)
}
