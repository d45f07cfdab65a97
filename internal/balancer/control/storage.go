// SPDX-License-Identifier: Apache-2.0

package control

import (
	"errors"
	"fmt"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/events"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/host/durable"
)

// writeAgainEvery is how often files are written again that could not be.
const writeAgainEvery = 2 * time.Second

// tellStorage logs which files cannot be written, and which can again, and has them written again soon.
func (c *Controller) tellStorage() {
	faults := c.opt.Files.Faults()
	about := events.About{Kind: events.KindStorage}.Attr()
	now := make(map[string]durable.Fault, len(faults))
	for _, f := range faults {
		now[f.Path] = f
		if before, told := c.unwritten[f.Path]; !told || before.Kept != f.Kept || before.Err.Error() != f.Err.Error() {
			c.opt.Log.Warn(oneLine(errors.New(f.String())), about)
		}
	}
	for path, f := range c.unwritten {
		if _, still := now[path]; !still {
			c.opt.Log.Info(fmt.Sprintf("writing %s to %s succeeds again", f.What, path), about)
		}
	}
	c.unwritten = now
	if len(now) > 0 {
		c.tasks.keep.Within(writeAgainEvery)
	}
}

// showStorage fills in the files that cannot be written.
func (c *Controller) showStorage(status *ops.Status) {
	for _, f := range c.opt.Files.Faults() {
		status.Unwritten = append(status.Unwritten,
			ops.Unwritten{What: f.What, Path: f.Path, Since: f.Since, Error: oneLine(f.Err), Kept: f.Kept})
		status.Problems = append(status.Problems, f.String())
	}
	status.WriteFailures = c.opt.Files.Failures()
}

// noteUnsaved logs why something could not be saved, unless files tell of it, and returns what a person who asked
// for it should know.
func (c *Controller) noteUnsaved(saving string, err error) error {
	if err != nil && !errors.Is(err, durable.ErrNotWritten) {
		c.opt.Log.Warn(fmt.Sprintf("%s (it ends with this process): %s", saving, oneLine(err)))
	}
	return err
}
