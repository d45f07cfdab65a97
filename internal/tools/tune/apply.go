// SPDX-License-Identifier: Apache-2.0

package tune

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jeoul/jeoul/internal/tools/tune/nic"
	"github.com/jeoul/jeoul/internal/tools/tune/setting"
)

// ApplyOptions configure the application of a profile.
type ApplyOptions struct {
	// State is the journal's directory; empty means StateDir.
	State string
	// Persist writes files that make the changes again at every boot.
	Persist bool
	// EditGrub writes the kernel's parameters into a configuration file for GRUB.
	EditGrub bool
	// Executable is the path of the jeoul binary. Arguments are its command-line arguments besides role, mode,
	// interfaces and CPUs. Both are for Persist.
	Executable string
	Arguments  []string
}

// Apply sets the settings that differ from the profile, item by item. If one setting of an item cannot be set, the item
// is left unchanged. Errors: ErrLeft, where the report names the items that failed; those of the journal (ErrBusy,
// ErrJournal, ErrElsewhere) and ErrInterface, with which nothing was changed.
func (t *Tuner) Apply(opt ApplyOptions) (*Report, error) {
	if err := t.ready(opt); err != nil {
		return nil, err
	}
	j, err := openJournal(t.access.Tree, cmp.Or(opt.State, StateDir), t.opt.Role, t.facts)
	if err != nil {
		return nil, err
	}
	defer j.close()
	w := &writer{access: &t.access, journal: j, step: t.step}
	r := t.report()
	r.Notes = append(r.Notes, j.Notes...)
	for _, item := range t.opt.Profile.Items {
		f, ok := t.find(item)
		if !ok {
			continue
		}
		if f.State == Differs && !item.ReadOnly {
			t.change(w, item, &f)
		}
		r.Findings = append(r.Findings, f)
	}
	err = t.files(w, r, opt)
	if len(r.With(Failed)) > 0 {
		err = errors.Join(err, fmt.Errorf("%w: %d items", ErrLeft, len(r.With(Failed))))
	}
	return r, err
}

// ready returns an error if changes could only be made in part.
func (t *Tuner) ready(opt ApplyOptions) error {
	for _, card := range t.cards {
		if !card.Up {
			return fmt.Errorf("%s: %w: it is down: `ip link set %s up`, then apply", card.Name, ErrInterface, card.Name)
		}
		if card.foreign {
			return fmt.Errorf("%s: %w: /sys shows another network namespace: enter this one with `ip netns exec`",
				card.Name, ErrInterface)
		}
	}
	if t.facts.Namespace && (opt.Persist || opt.EditGrub) {
		return errors.New("--persist and --edit-grub are the machine's: a network namespace does not outlive a reboot")
	}
	return nil
}

// change sets all of an item's settings, or none of them.
func (t *Tuner) change(w *writer, item Item, f *Finding) {
	regroups := slices.ContainsFunc(f.Settings, func(s Setting) bool {
		return s.Key.Name == nic.Combined && s.State == Differs
	})
	if regroups {
		// Queues that are removed lose their settings.
		if err := t.keepQueues(w); err != nil {
			f.State, f.Note = Failed, err.Error()
			return
		}
	}
	done := []int{}
	for i := range f.Settings {
		s := &f.Settings[i]
		if s.State != Differs || s.Key.Kind == setting.KindLimit {
			continue
		}
		line, err := w.set(s.Key, s.Now, s.write)
		if err == nil {
			s.State, s.Wanted = Changed, s.write
			done = append(done, line)
			continue
		}
		s.State, s.Note = Failed, err.Error()
		if err := w.undo(done); err != nil {
			s.Note += "; " + err.Error()
		}
		break
	}
	f.summarize()
	if f.State == Failed {
		for i := range f.Settings {
			if s := &f.Settings[i]; s.State == Changed {
				s.State = Differs
			}
		}
	}
	if regroups {
		if err := t.readFacts(); err != nil {
			f.Note = strings.TrimPrefix(f.Note+"; "+err.Error(), "; ")
		}
	}
}

// keepQueues records the current values of the queues' own settings.
func (t *Tuner) keepQueues(w *writer) error {
	for _, item := range t.opt.Profile.Items {
		if !strings.ContainsAny(item.Setting, "{") || !slices.Contains([]string{"irq", "rps", "xps"}, item.Value.plan) {
			continue
		}
		for _, at := range t.expand(item) {
			now, err := t.access.Read(at.key)
			if err != nil {
				continue // a value that cannot be read was never set either
			}
			if _, err := w.journal.add(record{Op: opKeep, Key: &at.key, Old: now}); err != nil {
				return err
			}
		}
	}
	return nil
}

// writer makes changes, and writes each into the journal first.
type writer struct {
	access  *setting.Access
	journal *changeLog
	// step is called between writes, where a kill must do no harm; nil outside tests.
	step func()
}

func (w *writer) pause() {
	if w.step != nil {
		w.step()
	}
}

// set changes a setting. If the kernel rejects the value, the setting keeps its old one.
func (w *writer) set(k setting.Key, old, value string) (line int, err error) {
	w.pause()
	line, err = w.journal.add(record{Op: opSet, Key: &k, Old: old, New: value})
	if err != nil {
		return 0, err
	}
	w.pause()
	if err := w.access.Write(k, old, value); err != nil {
		_, undoErr := w.journal.add(record{Op: opUndone, Line: line})
		return 0, errors.Join(err, undoErr)
	}
	w.pause()
	return line, nil
}

// undo undoes the changes in lines of the journal, last one first.
func (w *writer) undo(lines []int) error {
	for _, line := range slices.Backward(lines) {
		r := w.journal.records[line-1]
		if err := w.access.Write(*r.Key, r.New, r.Old); err != nil {
			return fmt.Errorf("put %s back to %s: %w", r.Key, r.Old, err)
		}
		if _, err := w.journal.add(record{Op: opUndone, Line: line}); err != nil {
			return err
		}
	}
	return nil
}

// Commands returns the shell commands that do by hand what Apply does, each after a comment with the reason.
func (t *Tuner) Commands(opt ApplyOptions) []string {
	var lines []string
	for _, f := range t.Check().Findings {
		if f.State != Differs && f.State != Advised {
			continue
		}
		item, _ := t.opt.Profile.Find(f.Item)
		if item.ReadOnly {
			continue
		}
		lines = append(lines, fmt.Sprintf("# %s: %s", f.Item, f.Why))
		for _, s := range f.Settings {
			if s.State == Differs || s.State == Advised {
				lines = append(lines, s.Key.Command(s.write))
			}
		}
	}
	if opt.Persist && len(lines) > 0 {
		lines = append(lines,
			fmt.Sprintf("# --persist: what is set by sysctl goes to %s too, the rest is set at each boot by %s",
				sysctlFile, unitFile))
	}
	return lines
}
