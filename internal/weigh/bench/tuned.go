// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/jeoul/jeoul/internal/tools/tune"
	"github.com/jeoul/jeoul/internal/weigh/lab"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// Words in a suite's list `tune`, besides the items of `jeoul tune`.
const (
	tunedNone     = "none"     // the kernel's own values
	tunedAll      = "all"      // the whole profile
	tunedDocument = "document" // the values of the first document
	tunedEach     = "each"     // every item that a laboratory's hosts can have
)

// tunedNote describes, in a results file, how hosts are tuned.
const tunedNote = "hosts have the kernel's own settings, but for what `jeoul tune` changes on all of them before a trial and takes back after it; " +
	"web servers are started anew after each change, for a listening socket keeps the backlog that it began with"

// completeTuning replaces `each` by the items.
func (f *Form) completeTuning() {
	i := slices.Index(f.Tune, tunedEach)
	profile, err := tune.Load("")
	if i < 0 || err != nil {
		return // checkTuning reports the mistake
	}
	var items []string
	for _, id := range profile.Namespaced() {
		if !slices.Contains(f.Tune, id) {
			items = append(items, id)
		}
	}
	f.Tune = slices.Replace(slices.Clone(f.Tune), i, i+1, items...)
}

// checkTuning reports mistakes in the list.
func (f Form) checkTuning(at Path, fail FailFunc) {
	if len(f.Tune) == 0 {
		return
	}
	profile, err := tune.Load("")
	if err != nil {
		fail(at.To("tune"), "%v", err)
		return
	}
	known := append([]string{tunedNone, tunedAll, tunedDocument}, profile.Namespaced()...)
	for i, name := range f.Tune {
		switch {
		case !slices.Contains(known, name):
			fail(at.To("tune", i), "%q is nothing that hosts of a laboratory can be tuned by; use %s, %s", name,
				strings.Join(known, ", "), tunedEach)
		case slices.Contains(f.Tune[:i], name):
			fail(at.To("tune", i), "%s stands in the list twice", name)
		}
	}
	if !slices.Contains(f.Tune, tunedNone) {
		fail(at.To("tune"), "none is missing; the others are held against it")
	}
}

// tunings returns the profiles for the form's points. Most suites have none.
func (f Form) tunings() []string {
	if len(f.Tune) == 0 {
		return []string{""}
	}
	return f.Tune
}

// tuneMode returns the mode of `jeoul tune` for a subject's balancer.
func tuneMode(subject string) string {
	if rest, ok := strings.CutPrefix(subject, "jeoul-"); ok {
		mode, _, _ := strings.Cut(rest, "-")
		return mode
	}
	for _, kernel := range []string{"direct", "routed", "bare", "iptables", "nftables", "ipvs", "keepalived"} {
		if strings.HasPrefix(subject, kernel) {
			return "nat"
		}
	}
	return tune.ModeProxy
}

// hostTuning is the role and the profile that a host is tuned for.
type hostTuning struct {
	Role tune.Role
	Mode string
	By   string
}

// profile returns the items that a host is tuned by.
func (t hostTuning) profile() (*tune.Profile, error) {
	all, err := tune.Load("")
	switch {
	case err != nil:
		return nil, err
	case t.By == tunedAll:
		return all.Only(all.Namespaced())
	case t.By == tunedDocument:
		return all.Document(t.Role), nil
	}
	return all.Only([]string{t.By})
}

// hostTuned describes the settings that were changed, and those that could not be changed.
type hostTuned struct{ Changed, Failed []string }

// tuneTask undoes the previous profile of a host, and applies the next one.
var tuneTask = lab.NewTask("tune", func(_ context.Context, h *lab.Host, to hostTuning) (hostTuned, error) {
	var done hostTuned
	err := h.Do(func() error {
		state := filepath.Join(h.Dir, "tune")
		if _, err := tune.Revert(tune.RevertOptions{State: state}); err != nil && !errors.Is(err, tune.ErrNothing) {
			return err
		}
		if to.By == tunedNone {
			return nil
		}
		profile, err := to.profile()
		if err != nil {
			return err
		}
		tuner, err := tune.New(tune.Options{Role: to.Role, Mode: to.Mode, Interfaces: []string{h.Interface},
			Profile: profile})
		if err != nil {
			return err
		}
		defer tuner.Close()
		r, err := tuner.Apply(tune.ApplyOptions{State: state})
		if r == nil {
			return err
		}
		for _, f := range r.With(tune.Changed) {
			done.Changed = append(done.Changed, fmt.Sprintf("%s from %s to %s", f.Item, f.Now, f.Wanted))
		}
		for _, f := range r.With(tune.Failed) {
			done.Failed = append(done.Failed, fmt.Sprintf("%s: %s", f.Item, f.Note))
		}
		return nil
	})
	return done, err
})

// tune tunes all hosts for a trial, and runs the hooks for their servers.
func (r *Runner) tune(ctx context.Context, t Trial) error {
	mode := tuneMode(t.Subject.Name())
	if t.Tune == "" || t.Tune == r.tuned.by && mode == r.tuned.mode {
		return nil
	}
	if r.Lab.Remote() {
		return fmt.Errorf("tuning hosts: %w: `jeoul tune apply` does it there", lab.ErrRemote)
	}
	now := tuning{by: t.Tune, mode: mode}
	for _, h := range r.tunedHosts() {
		done, err := tuneTask.On(ctx, h.host, hostTuning{h.role, mode, t.Tune})
		if err != nil {
			return fmt.Errorf("tuning %s by %s: %w", h.host.Name, t.Tune, err)
		}
		now.changed += len(done.Changed)
		now.add(h.role, "set", done.Changed)
		now.add(h.role, "could not be set", done.Failed)
	}
	if now.changed == 0 && t.Tune != tunedNone {
		now.notes = append(now.notes, fmt.Sprintf("tuned by %s: nothing to change, the kernel's own value is as good",
			t.Tune))
	}
	r.tuned = now
	for _, again := range r.Retuned {
		if err := again(ctx); err != nil {
			return err
		}
	}
	return nil
}

// add adds a note on the changes to the hosts of a role, once.
func (t *tuning) add(role tune.Role, what string, list []string) {
	if len(list) == 0 {
		return
	}
	note := fmt.Sprintf("tuned by %s, every %s: %s: %s", t.by, role, what, strings.Join(list, "; "))
	if !slices.Contains(t.notes, note) {
		t.notes = append(t.notes, note)
	}
}

// mark adds the profile of the hosts to results.
func (t tuning) mark(all []results.Trial) {
	if t.by == "" {
		return
	}
	for i := range all {
		all[i].Notes = append(all[i].Notes, t.notes...)
		if all[i].Metrics != nil {
			all[i].Metrics[results.SettingsChanged] = float64(t.changed)
		}
	}
}

// roleHost is a host and its role in `jeoul tune`.
type roleHost struct {
	host *lab.Host
	role tune.Role
}

// tunedHosts returns the laboratory's hosts, without the switch and an attacker.
func (r *Runner) tunedHosts() []roleHost {
	all := []roleHost{{r.Lab.Balancer, tune.RoleBalancer}}
	for _, h := range r.Lab.Clients {
		all = append(all, roleHost{h, tune.RoleClient})
	}
	for _, h := range r.Lab.Servers {
		all = append(all, roleHost{h, tune.RoleWeb})
	}
	return slices.DeleteFunc(all, func(h roleHost) bool { return h.host == nil })
}

// tuneCheckTask lists the important settings of a host that differ from those that `jeoul tune` recommends.
var tuneCheckTask = lab.NewTask("tune-check", func(_ context.Context, h *lab.Host, as hostTuning) ([]string, error) {
	var found []string
	err := h.Do(func() error {
		tuner, err := tune.New(tune.Options{Role: as.Role, Mode: as.Mode, Interfaces: []string{h.Interface}})
		if err != nil {
			return err
		}
		defer tuner.Close()
		for _, f := range tuner.Check().Deviations() {
			found = append(found, fmt.Sprintf("%s %s (wanted: %s)", f.Item, f.Now, f.Wanted))
		}
		return nil
	})
	return found, err
})

// checkHosts compares every host with the profile of its role. It returns notes for readers of the figures: a line for
// all hosts with the same differences.
//
// Settings for direct server return are left out: subjects that need them set and restore them.
func (r *Runner) checkHosts(ctx context.Context) []string {
	mode := "nat"
	if slices.ContainsFunc(r.Form.Subjects, func(s Subject) bool { return tuneMode(s.Name) == tune.ModeProxy }) {
		mode = tune.ModeProxy
	}
	var lines []string
	hosts := map[string][]string{}
	for _, h := range r.tunedHosts() {
		found, err := tuneCheckTask.On(ctx, h.host, hostTuning{Role: h.role, Mode: mode})
		line := strings.Join(found, ", ")
		if err != nil {
			line = fmt.Sprintf("it could not be looked at: %v", err)
		}
		if line == "" {
			continue
		}
		if hosts[line] == nil {
			lines = append(lines, line)
		}
		hosts[line] = append(hosts[line], h.host.Name)
	}
	if len(lines) == 0 {
		return []string{"`jeoul tune check` found nothing on any host that matters"}
	}
	var notes []string
	for _, line := range lines {
		notes = append(notes, fmt.Sprintf("`jeoul tune check` on %s: %s", fromTo(hosts[line]), line))
	}
	return notes
}

// fromTo describes consecutive hosts by the first and the last one.
func fromTo(names []string) string {
	if len(names) < 3 {
		return strings.Join(names, " and ")
	}
	return fmt.Sprintf("%s to %s (%d)", names[0], names[len(names)-1], len(names))
}
