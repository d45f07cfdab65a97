// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// ServerTimeout is how long a server may take until it answers.
const ServerTimeout = 30 * time.Second

// GiveUp makes Poll return err instead of trying again.
func GiveUp(err error) error { return giveUp{err} }

type giveUp struct{ error }

func (e giveUp) Unwrap() error { return e.error }

// GivesUp reports whether err is, or wraps, an error of GiveUp.
func GivesUp(err error) bool {
	var e giveUp
	return errors.As(err, &e)
}

// Poll calls try every few milliseconds until try returns nil or an error of GiveUp, ctx ends, or bound is over. It
// returns the last error of try.
func Poll(ctx context.Context, bound time.Duration, try func() error) error {
	limit := time.NewTimer(bound)
	defer limit.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		err := try()
		if err == nil || GivesUp(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-limit.C:
			return fmt.Errorf("not within %v: %w", bound, err)
		case <-tick.C:
		}
	}
}

// PollAlive is Poll for the process of a server, with ServerTimeout. It gives up when the process ends.
func PollAlive(ctx context.Context, process *lab.Process, try func() error) error {
	return Poll(ctx, ServerTimeout, func() error {
		select {
		case <-process.Done():
			return giveUp{cmp.Or(process.Wait(), errors.New("it ended by itself"))}
		default:
			return try()
		}
	})
}

// LogTail returns the end of a host's log, after a semicolon; empty if there is none.
func LogTail(host *lab.Host, path string) string {
	const most = 500
	text, err := host.ReadEnd(path, most)
	if err != nil || len(text) == 0 {
		return ""
	}
	return fmt.Sprintf("; the end of its log: %q", bytes.TrimSpace(text))
}
