// SPDX-License-Identifier: Apache-2.0

package tune

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/jeoul/jeoul/internal/tools/tune/setting"
)

// RevertOptions select the changes to undo.
type RevertOptions struct {
	// State is the journal's directory; empty means StateDir. Root is as in Options.
	State, Root string
	// Force also restores settings that were changed since by other means.
	Force bool
	// Forget leaves settings that were changed since by other means, permanently.
	Forget bool
	// DryRun changes nothing: the events list the changes that would be made.
	DryRun bool
}

// Event is a change that was undone, or deliberately not.
type Event struct {
	What string `json:"what"`
	// From and To are the values before and after. To equals From if nothing was done.
	From string `json:"from"`
	To   string `json:"to"`
	// Left means that the change stays in the journal.
	Left bool   `json:"left,omitempty"`
	Note string `json:"note,omitempty"`
	// Command is the shell command that does the same.
	Command string `json:"command,omitempty"`
}

// Revert undoes the changes of Apply, the last change first. It leaves a setting that another program has changed
// since, which stays in the journal; the error is then ErrLeft. Other errors: ErrNothing, and those of the journal.
func Revert(opt RevertOptions) (events []Event, err error) { return revert(opt, nil) }

func revert(opt RevertOptions, step func()) ([]Event, error) {
	a, err := setting.Open(opt.Root)
	if err != nil {
		return nil, err
	}
	defer a.Cards.Close()
	facts, err := readFacts(a.Tree)
	if err != nil {
		return nil, err
	}
	state := cmp.Or(opt.State, StateDir)
	if !a.Exists(state) {
		return nil, fmt.Errorf("%w: there is no %s", ErrNothing, a.Path(state))
	}
	j, err := openJournal(a.Tree, state, "", facts)
	if err != nil {
		return nil, err
	}
	defer j.close()
	u := &undoer{opt: opt, access: a, foreign: map[string]bool{}, step: step}
	for _, note := range j.Notes {
		u.events = append(u.events, Event{What: j.path, Note: note})
	}
	records := activeRecords(j.records)
	if len(records) == 0 {
		if len(u.events) > 0 {
			return u.events, nil
		}
		return nil, fmt.Errorf("%w: %s lists nothing", ErrNothing, j.path)
	}
	return u.all(j, records)
}

// undoer undoes records.
type undoer struct {
	opt    RevertOptions
	access *setting.Access
	events []Event
	// foreign are settings that were changed since by other means.
	foreign map[string]bool
	step    func()
}

// all undoes records. Records that could not be undone stay in the journal.
func (u *undoer) all(j *changeLog, records []record) ([]Event, error) {
	var rest []record
	var errs []error
	for _, r := range slices.Backward(records) {
		left, err := u.undoRecord(r)
		if err != nil {
			errs = append(errs, err)
		}
		if left {
			rest = append(rest, r)
		}
		if u.step != nil {
			u.step()
		}
	}
	if u.opt.DryRun {
		return u.events, nil
	}
	slices.Reverse(rest)
	errs = append(errs, j.rewrite(rest))
	if len(rest) > 0 {
		errs = append(errs,
			fmt.Errorf("%w: %d changes stay in %s: `--force` puts back what was before them, `--forget` keeps what is there now", ErrLeft, len(rest), j.path))
	}
	return u.events, errors.Join(errs...)
}

func (u *undoer) say(e Event) { u.events = append(u.events, e) }

// undoRecord undoes a record, and returns whether the record must stay.
func (u *undoer) undoRecord(r record) (left bool, err error) {
	if r.Op == opFile {
		return u.file(r)
	}
	name := r.Key.String()
	if u.foreign[name] {
		return !u.opt.Forget, nil
	}
	now, err := u.access.Read(*r.Key)
	switch {
	case errors.Is(err, setting.ErrAbsent):
		u.say(Event{What: name, Note: "it is gone, and took its value along"})
		return false, nil
	case err != nil:
		return true, fmt.Errorf("read %s: %w", name, err)
	case r.Key.Same(now, r.Old):
		return false, nil
	case r.Op == opSet && !r.Key.Same(now, r.New) && !u.opt.Force:
		u.foreign[name] = true
		u.say(Event{What: name, From: now, To: now, Left: !u.opt.Forget,
			Note: fmt.Sprintf("changed since jeoul set it from %s to %s", r.Old, r.New)})
		return !u.opt.Forget, nil
	}
	u.say(Event{What: name, From: now, To: r.Old, Command: r.Key.Command(r.Old)})
	if u.opt.DryRun {
		return true, nil
	}
	if err := u.access.Write(*r.Key, now, r.Old); err != nil {
		return true, fmt.Errorf("put %s back to %s: %w", name, r.Old, err)
	}
	return false, nil
}

// file undoes the writing of a file.
func (u *undoer) file(r record) (left bool, err error) {
	at := u.access.Path(r.Path)
	now, exists, err := readEntry(at)
	switch {
	case err != nil:
		return true, fmt.Errorf("read %s: %w", r.Path, err)
	case exists == r.Existed && now == r.Old:
		u.removeMade(r)
		return false, nil
	case !exists:
		u.say(Event{What: r.Path, Note: "it was removed already"})
		u.removeMade(r)
		return false, nil
	case now != r.New && !u.opt.Force:
		u.say(Event{What: r.Path, Left: !u.opt.Forget, Note: "edited by hand since it was written"})
		return !u.opt.Forget, nil
	}
	e := Event{What: r.Path, From: "ours", To: "removed", Command: "rm " + r.Path}
	if r.Existed {
		e.To, e.Command = "as it was", "# put "+r.Path+" back as it was"
	}
	u.say(e)
	if u.opt.DryRun {
		return true, nil
	}
	if r.Existed {
		err = writeEntry(at, r.Path, r.Old)
	} else {
		err = os.Remove(at)
	}
	if err != nil {
		return true, fmt.Errorf("take %s back: %w", r.Path, err)
	}
	u.removeMade(r)
	return false, nil
}

// removeMade removes the directories that were made for a file, if they are empty.
func (u *undoer) removeMade(r record) {
	if u.opt.DryRun {
		return
	}
	for _, dir := range r.Made {
		if os.Remove(u.access.Path(dir)) != nil {
			return // another program uses it by now
		}
	}
}
