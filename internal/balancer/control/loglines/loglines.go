// SPDX-License-Identifier: Apache-2.0

// Package loglines writes lines of a log: it bounds how many of one kind are logged at once, for a change may concern
// 10,000 backends, and names their subjects in them.
package loglines

import (
	"fmt"

	"github.com/jeoul/jeoul/internal/balancer/events"
)

// Most is how many lines of one kind are logged one by one.
const Most = 100

// Lines logs things of one kind line by line, up to Most, and counts the others.
type Lines struct {
	log          func(string, ...any)
	logged, more int
}

// To returns lines of one kind that log logs, as a method of slog.Logger.
func To(log func(string, ...any)) *Lines { return &Lines{log: log} }

// Say logs a line, or counts it; it is an event all the same.
func (l *Lines) Say(about events.About, format string, args ...any) {
	if l.logged == Most {
		l.more++
		about.Unlogged = true
	} else {
		l.logged++
	}
	l.log(fmt.Sprintf(format, args...), about.Attr())
}

// End logs how many more lines there were; the format names their subject.
func (l *Lines) End(format string) {
	if l.more > 0 {
		l.log(fmt.Sprintf(format, l.more))
	}
}
