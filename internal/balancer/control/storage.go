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

// rewriteInterval is how often writing is retried for files that could not be written.
const rewriteInterval = 2 * time.Second

// storage logs which files cannot be written, and retries them.
type storage struct {
	*core
	// unwritten are the files that cannot be written, by path, and unpinned is why the data plane does not outlive the
	// process, both as logged last.
	unwritten map[string]durable.Fault
	unpinned  string
	repinTask *loop.Task
}

// logFaults logs which files cannot be written, and which can be again, and schedules a retry.
func (s *storage) logFaults() {
	faults := s.opt.Files.Faults()
	about := events.About{Kind: events.KindStorage}.Attr()
	now := make(map[string]durable.Fault, len(faults))
	for _, f := range faults {
		now[f.Path] = f
		if before, known := s.unwritten[f.Path]; !known || before.InFallback != f.InFallback ||
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
		s.repinTask.ScheduleWithin(rewriteInterval)
	}
}

// fillStatus writes the files that cannot be written into a status.
func (s *storage) fillStatus(status *ops.Status) {
	for _, f := range s.opt.Files.Faults() {
		status.Unwritten = append(status.Unwritten,
			ops.Unwritten{What: f.Name, Path: f.Path, Since: f.Since, Error: loglines.OneLine(f.Err),
				Kept: f.InFallback})
		status.Problems = append(status.Problems, f.String())
	}
	status.WriteFailures = s.opt.Files.Failures()
}

// logUnsaved logs an error of saving, unless Files reports it, and returns it for the caller's answer.
func (s *storage) logUnsaved(doing string, err error) error {
	if err != nil && !errors.Is(err, durable.ErrNotWritten) {
		s.opt.Log.Warn(fmt.Sprintf("%s (it ends with this process): %s", doing, loglines.OneLine(err)))
	}
	return err
}

// repinner is a DataPlane whose pins let it outlive the process; another program may remove them.
type repinner interface {
	// Repin creates missing pins again, as far as it can. note is a line about the result for the log, "" if nothing
	// was missing; err is why the data plane would not outlive the process.
	Repin() (note string, err error)
}

// repinInterval is how often pins are checked: until the next check, the data plane would end with the process.
const repinInterval = 10 * time.Second

// repin creates missing pins again, logs changes of the result, and schedules the next run.
func (s *storage) repin() {
	s.opt.Files.Retry()
	defer func() {
		s.repinTask.Schedule(repinInterval)
		s.logFaults()
	}()
	plane, ok := s.opt.DataPlane.(repinner)
	if !ok {
		return
	}
	note, err := plane.Repin()
	if note != "" {
		s.opt.Log.Warn(note)
	}
	problem := ""
	if err != nil {
		problem = err.Error()
	}
	if problem != "" && problem != s.unpinned {
		s.opt.Log.Warn("the data plane ends with this process: " + problem)
	}
	s.unpinned = problem
}
