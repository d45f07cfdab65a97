// SPDX-License-Identifier: Apache-2.0

// Package loglines writes lines of a log: it bounds how many of one kind are logged at once, because a change may
// concern 10,000 backends, and names their subjects in them.
package loglines

import (
	"fmt"

	"github.com/jeoul/jeoul/internal/balancer/events"
)

// MaxLines is the number of lines of one kind that are logged individually.
const MaxLines = 100

// Lines logs lines of one kind, up to MaxLines, and counts the others.
type Lines struct {
	log                func(string, ...any)
	logged, suppressed int
}

// New returns Lines that are logged by log, such as a method of slog.Logger.
func New(log func(string, ...any)) *Lines { return &Lines{log: log} }

// Logf logs a line, or only counts it beyond MaxLines; either way it becomes an event.
func (l *Lines) Logf(about events.About, format string, args ...any) {
	if l.logged == MaxLines {
		l.suppressed++
		about.Unlogged = true
	} else {
		l.logged++
	}
	l.log(fmt.Sprintf(format, args...), about.Attr())
}

// Flush logs the number of suppressed lines, if there are any; format names their subject.
func (l *Lines) Flush(format string) {
	if l.suppressed > 0 {
		l.log(fmt.Sprintf(format, l.suppressed))
	}
}
