// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/jeoul/jeoul/internal/weigh/results"
)

// ErrResume means that a run cannot be resumed; the error lists the reasons.
var ErrResume = errors.New("cannot go on with this run")

// resume takes over the results of an earlier run of the same suite from the directory. It refuses if figures would be
// combined that do not belong together: of another suite, form, selection of subjects, machine or program.
func (r *Runner) resume() error {
	path := filepath.Join(r.Options.Dir, ResultsFile)
	before, err := results.Load(path)
	if err != nil {
		return fmt.Errorf("--resume: %w", err)
	}
	if different := differences(before, r.Results); len(different) > 0 {
		return fmt.Errorf("%w, %s: it would mix what does not belong together:\n  %s\nstart a new one instead",
			ErrResume, path, strings.Join(different, "\n  "))
	}
	now := r.Results
	r.Results = before
	r.Results.Environment.Notes = nil // the laboratory adds them again
	r.Results.Interrupted, r.Results.Ended = false, time.Time{}
	r.Results.Resumed = append(r.Results.Resumed, now.Started)
	r.limitsBefore = maps.Clone(before.Environment.Limits)
	return nil
}

// differences lists the differences because of which two runs cannot be one. Limits are compared once the laboratory
// exists (see sameLimits).
func differences(before, now *results.Run) []string {
	var all []string
	say := func(what string, before, now any) {
		if !reflect.DeepEqual(before, now) {
			all = append(all, fmt.Sprintf("%s: then %v, now %v", what, before, now))
		}
	}
	say("suite", before.Suite, now.Suite)
	if before.Suite == now.Suite && before.SuiteDigest != now.SuiteDigest {
		all = append(all, "suite: the file's content has changed since")
	}
	say("form", formWord(before.Quick), formWord(now.Quick))
	say("--only", onlyWord(before.Only, "subjects"), onlyWord(now.Only, "subjects"))
	say("--loads", onlyWord(before.Loads, "loads"), onlyWord(now.Loads, "loads"))
	say("--repeats", before.Repeats, now.Repeats)
	then, here := before.Environment, now.Environment
	say("kernel", then.Kernel, here.Kernel)
	say("CPU", then.CPU, here.CPU)
	say("memory (bytes)", then.MemoryBytes, here.MemoryBytes)
	say("commit of jeoul", then.Commit, here.Commit)
	names := maps.Clone(then.Versions)
	if names == nil {
		names = map[string]string{}
	}
	maps.Copy(names, here.Versions)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if name != "kernel" { // listed above
			say("version of "+name, orNone(then.Versions[name]), orNone(here.Versions[name]))
		}
	}
	return all
}

func formWord(quick bool) string {
	if quick {
		return "the short one (--quick)"
	}
	return "the long one"
}

func onlyWord(only []string, what string) string {
	if len(only) == 0 {
		return "all " + what
	}
	return strings.Join(only, ",")
}

func orNone(version string) string {
	if version == "" {
		return "none"
	}
	return version
}

// sameLimits returns an error if the machine's limits differ from those at the beginning of the run.
func (r *Runner) sameLimits() error {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(r.limitsBefore)) {
		if now := r.Results.Environment.Limits[name]; now != r.limitsBefore[name] {
			all = append(all, fmt.Sprintf("limit %s: then %s, now %s", name, r.limitsBefore[name], orNone(now)))
		}
	}
	if len(all) > 0 {
		return fmt.Errorf("%w: it would mix what does not belong together:\n  %s\nstart a new one instead", ErrResume,
			strings.Join(all, "\n  "))
	}
	return nil
}

// remaining drops the trials that the run already has.
func (r *Runner) remaining(trials []Trial) []Trial {
	for _, e := range implementing[stepping](registered) {
		e.DropPartial(r, trials)
	}
	return slices.DeleteFunc(slices.Clone(trials), func(t Trial) bool {
		return slices.ContainsFunc(r.Results.Trials, t.Has)
	})
}

// Has reports whether a result belongs to the trial.
func (t Trial) Has(done results.Trial) bool {
	return done.Subject == t.Subject.Name() && done.Load == t.Load && done.Repeat == t.Repeat &&
		contains(done.Params, jsonParams(t.params()))
}

// contains reports whether a result has all of params. A trial of an experiment may have several results, each with
// further parameters.
func contains(of, params map[string]any) bool {
	of = jsonParams(of)
	for name, value := range params {
		if got, there := of[name]; !there || !reflect.DeepEqual(got, value) {
			return false
		}
	}
	return true
}

// jsonParams returns params as they are read from a file, with numbers as float64.
func jsonParams(params map[string]any) map[string]any {
	var read map[string]any
	text, err := json.Marshal(params)
	if err == nil {
		err = json.Unmarshal(text, &read)
	}
	if err != nil {
		return params // cannot happen: params are numbers and words
	}
	return read
}
