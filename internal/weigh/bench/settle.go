// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jeoul/jeoul/internal/weigh/bench/subject"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// settleTimeout is how long the sockets and tracked connections of a trial may take to disappear.
const settleTimeout = 5 * time.Second

// settleNote describes the time between trials in a results file.
const settleNote = "between trials the run waits, up to 5 s, until no client has a TCP socket left but those in TIME-WAIT, " +
	"has a proxy close its own, waits the same for all hosts, stops the subject, destroys what is in TIME-WAIT (SOCK_DESTROY: it would " +
	"hold ports and be looked through in the next trial), and waits until no host tracks a connection; a trial before which that took too long says so"

// settle stops the subject and waits until nothing of the previous trial is left on the hosts. If something is left, it
// returns notes for the next trial. The subject is stopped even if there is an error.
//
// Connections are closed before the subject is stopped. Otherwise their last packets would reach no host and would be
// retransmitted again and again.
func settle(ctx context.Context, l *lab.Lab, running subject.Running) (notes []string, err error) {
	notes, err = closeConnections(ctx, l, running)
	err = errors.Join(err, running.Stop(context.WithoutCancel(ctx)))
	if err != nil {
		// A subject that could not be stopped would affect all later trials.
		return notes, err
	}
	switch err := lab.Each(l.Hosts(), (*lab.Host).DestroySockets); {
	case errors.Is(err, lab.ErrNoSocketDestroy):
		return append(notes, "sockets in TIME-WAIT of the last trial stayed: this kernel cannot destroy them"), nil
	case err != nil:
		return notes, err
	}
	tracked, err := settleConntrack(ctx, l)
	return append(notes, tracked...), err
}

// closeConnections waits until the connections of a trial are closed.
func closeConnections(ctx context.Context, l *lab.Lab, running subject.Running) (notes []string, err error) {
	left, err := WaitForSockets(ctx, l.Clients)
	if err != nil {
		return nil, err
	}
	if left != "" {
		notes = append(notes, fmt.Sprintf("%v after the last trial its clients' sockets were still open: %s",
			settleTimeout, left))
	}
	if err := running.Quiesce(context.WithoutCancel(ctx)); err != nil {
		return notes, err
	}
	left, err = WaitForSockets(ctx, l.Hosts())
	if left != "" {
		notes = append(notes, fmt.Sprintf("%v later sockets were still open, and were destroyed: %s",
			settleTimeout, left))
	}
	return notes, err
}

// WaitForSockets waits until the hosts have no sockets but those in TIME-WAIT. It returns the sockets that are left
// after settleTimeout.
func WaitForSockets(ctx context.Context, hosts []*lab.Host) (left string, err error) {
	err = Poll(ctx, settleTimeout, func() (err error) {
		if left, err = OpenSockets(hosts); err != nil {
			return giveUp{err}
		}
		if left != "" {
			return errors.New("sockets are still open")
		}
		return nil
	})
	if ctx.Err() != nil || GivesUp(err) {
		return "", err
	}
	return left, nil
}

// OpenSockets describes which hosts have sockets that are neither listening nor in TIME-WAIT, and how many; empty if
// none has.
func OpenSockets(hosts []*lab.Host) (string, error) {
	var mu sync.Mutex
	var words []string
	err := lab.Each(hosts, func(host *lab.Host) error {
		count, err := host.Sockets()
		mu.Lock()
		defer mu.Unlock()
		if open := count.Open() - count.TimeWait; open > 0 {
			words = append(words, fmt.Sprintf("%s %d", host.Name, open))
		}
		return err
	})
	slices.Sort(words)
	return strings.Join(words, ", "), err
}

func settleConntrack(ctx context.Context, l *lab.Lab) (notes []string, err error) {
	tracked := 0
	err = Poll(ctx, settleTimeout, func() error {
		var mu sync.Mutex
		tracked = 0
		err := lab.Each(l.Hosts(), func(host *lab.Host) error {
			n, err := host.Conntrack()
			mu.Lock()
			defer mu.Unlock()
			tracked += n
			return err
		})
		if err != nil {
			return giveUp{err}
		}
		if tracked > 0 {
			return errors.New("connections are still tracked")
		}
		return nil
	})
	switch {
	case err == nil:
		return nil, nil
	case ctx.Err() != nil, GivesUp(err):
		return nil, err
	}
	return []string{fmt.Sprintf("%v after the last trial %d connections were still tracked (nf_conntrack)", settleTimeout,
		tracked)}, nil
}
