// SPDX-License-Identifier: Apache-2.0

package jeoul

import (
	"errors"
	"fmt"
	"strings"
	"sync"
)

// reloads reads the result of a reload from the daemon's output.
type reloads struct {
	mu     sync.Mutex
	ended  bool
	failed string
}

// The daemon's messages on a reload, at the end or in the middle of a line.
const (
	saysReloaded    = "reloaded "
	saysNotReloaded = "not reloaded"
)

var errReloading = errors.New("it is still reading its configuration")

// line reads a line of the daemon's output.
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

// done returns nil once a reload has ended, successfully or not.
func (r *reloads) done() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.ended {
		return errReloading
	}
	return nil
}

// refusal returns why the last reload changed nothing; nil if the reload succeeded.
func (r *reloads) refusal() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failed != "" {
		return fmt.Errorf("jeoul refused its configuration: %s", r.failed)
	}
	return nil
}
