// SPDX-License-Identifier: Apache-2.0

package control

import (
	"errors"
	"fmt"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/control/loglines"
	"github.com/jeoul/jeoul/internal/balancer/control/loop"
	"github.com/jeoul/jeoul/internal/balancer/events"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/host/durable"
)

// writeAgainEvery is how often files are written again that could not be.
const writeAgainEvery = 2 * time.Second

// storage knows which files cannot be written, and has them written again.
type storage struct {
	*core
	// unwritten are the files that cannot be written, by path, and notKept why the data plane does not outlive the
	// process, as they were logged last.
	unwritten map[string]durable.Fault
	notKept   string
	keepTask  *loop.Task
}

// logFaults logs which files cannot be written, and which can again, and has them written again soon.
func (s *storage) logFaults() {
	faults := s.opt.Files.Faults()
	about := events.About{Kind: events.KindStorage}.Attr()
	now := make(map[string]durable.Fault, len(faults))
	for _, f := range faults {
		now[f.Path] = f
		if before, told := s.unwritten[f.Path]; !told || before.InFallback != f.InFallback ||
			before.Err.Error() != f.Err.Error() {
			s.opt.Log.Warn(loglines.OneLine(errors.New(f.String())), about)
		}
	}
	for path, f := range s.unwritten {
		if _, still := now[path]; !still {
			s.opt.Log.Info(fmt.Sprintf("writing %s to %s succeeds again", f.Name, path), about)
		}
	}
	s.unwritten = now
	if len(now) > 0 {
		s.keepTask.Within(writeAgainEvery)
	}
}

// showStorage fills in the files that cannot be written.
func (s *storage) showStorage(status *ops.Status) {
	for _, f := range s.opt.Files.Faults() {
		status.Unwritten = append(status.Unwritten,
			ops.Unwritten{What: f.Name, Path: f.Path, Since: f.Since, Error: loglines.OneLine(f.Err),
				Kept: f.InFallback})
		status.Problems = append(status.Problems, f.String())
	}
	status.WriteFailures = s.opt.Files.Failures()
}

// noteUnsaved logs why something could not be saved, unless files report it, and returns the error, for the person who
// asked for it.
func (s *storage) noteUnsaved(saving string, err error) error {
	if err != nil && !errors.Is(err, durable.ErrNotWritten) {
		s.opt.Log.Warn(fmt.Sprintf("%s (it ends with this process): %s", saving, loglines.OneLine(err)))
	}
	return err
}

// keeping is a DataPlane that outlives its process by pins, which others may remove meanwhile.
type keeping interface {
	// Repin looks for missing pins, makes those anew that it can, and returns a line about the result.
	Repin() (note string, err error)
}

// keepEvery is how often that is looked at: for so long the process may die and its data plane with it.
const keepEvery = 10 * time.Second

// keepAgain logs changes of that line, and looks again later.
func (s *storage) keepAgain() {
	s.opt.Files.Retry()
	defer func() {
		s.keepTask.In(keepEvery)
		s.logFaults()
	}()
	k, is := s.opt.DataPlane.(keeping)
	if !is {
		return
	}
	note, err := k.Repin()
	if note != "" {
		s.opt.Log.Warn(note)
	}
	problem := ""
	if err != nil {
		problem = err.Error()
	}
	if problem != "" && problem != s.notKept {
		s.opt.Log.Warn("the data plane ends with this process: " + problem)
	}
	s.notKept = problem
}
