// SPDX-License-Identifier: Apache-2.0

package jeoul

import (
	"errors"
	"fmt"
	"strings"
	"sync"
)

// reloads looks in what the daemon says for how a reload ended.
type reloads struct {
	mu     sync.Mutex
	ended  bool
	failed string
}

// The daemon's words on a reload, at the end or in the middle of a line.
const (
	saysReloaded    = "reloaded "
	saysNotReloaded = "not reloaded"
)

var errReloading = errors.New("it is still reading its configuration")

// line reads a line of the daemon's.
func (r *reloads) line(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case strings.Contains(text, saysNotReloaded):
		r.ended = true
	case strings.Contains(text, saysReloaded):
		r.ended, r.failed = true, ""
	case strings.Contains(text, " ERR "):
		r.failed = text
	}
}

func (r *reloads) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended, r.failed = false, ""
}

// done returns nil once a reload has ended, well or not.
func (r *reloads) done() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.ended {
		return errReloading
	}
	return nil
}

// refusal returns why the last reload changed nothing; nil if it was done.
func (r *reloads) refusal() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failed != "" {
		return fmt.Errorf("jeoul refused its configuration: %s", r.failed)
	}
	return nil
}
