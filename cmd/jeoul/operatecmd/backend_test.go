// SPDX-License-Identifier: Apache-2.0

package operatecmd

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alecthomas/kong"
	"github.com/google/go-cmp/cmp"

	"github.com/jeoul/jeoul/cmd/jeoul/cmdtest"
	"github.com/jeoul/jeoul/internal/balancer/ops"
)

func TestWriteOperations(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.Local)
	var got bytes.Buffer
	writeOperations(&got, cmdtest.Changed(at), at.Add(time.Minute))
	cmdtest.WantGolden(t, "backend-list", got.Bytes())
	got.Reset()
	writeOperations(&got, &ops.Operations{}, at)
	if got, want := got.String(), "everything is as the configuration has it\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestWriteOperation(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.Local)
	weight, web01 := uint16(20), []ops.Target{cmdtest.BackendOf("web", "web01", 1)}
	var many []ops.Target
	for _, name := range strings.Fields("a b c d e f g") {
		many = append(many, cmdtest.BackendOf(name, "x", 1))
	}
	for _, test := range []struct {
		done ops.Operation
		want string
	}{
		{ops.Operation{Verb: ops.Drain, Targets: web01}, "web/web01: no new flows\n"},
		{ops.Operation{Verb: ops.Drain, Targets: web01, Deadline: at},
			"web/web01: no new flows; out at 2026-01-02 03:04:05, with what is left then\n"},
		{ops.Operation{Verb: ops.Disable, Targets: web01}, "web/web01: out of service\n"},
		{ops.Operation{Verb: ops.Undo, Targets: web01, Undone: &ops.Operation{Verb: ops.Enable, Targets: web01,
			Forced: true}},
			"web/web01: taken back: enable web/web01 --force\n"},
		{ops.Operation{Verb: ops.Enable, Targets: many}, "a/x, b/x, c/x, d/x, e/x and 2 more: takes new flows\n"},
		{ops.Operation{Verb: ops.Weight, Targets: web01, Weight: &weight}, "web/web01: weight 20\n"},
		{ops.Operation{Verb: ops.Undo, Targets: web01, Undone: &ops.Operation{Verb: ops.Weight, Targets: web01,
			Weight: &weight}},
			"web/web01: taken back: weight web/web01 20\n"},
	} {
		var got bytes.Buffer
		writeOperation(&got, &test.done)
		if got.String() != test.want {
			t.Errorf("%q, want %q", got.String(), test.want)
		}
	}
}

// TestAwaitDrain: each script has the flows left second by second; its last line stays.
func TestAwaitDrain(t *testing.T) {
	tracked := func(active uint32, packets uint64) ops.Left {
		return ops.Left{Tracked: true, Active: active, Flows: uint64(active) + 2, Packets: packets}
	}
	tests := map[string]struct {
		left     []ops.Left
		deadline time.Duration
		// late is how long the removal of the backend takes.
		late time.Duration
		// set is the difference of the daemon's wall clock.
		set time.Duration
		// atDeadline is the daemon's count at the deadline.
		atDeadline *ops.Left
		person     bool
		want       string
		err        string
		status     int
		after      time.Duration
	}{
		"tracked": {left: []ops.Left{tracked(3, 100), tracked(3, 600), tracked(1, 700), tracked(0, 700)},
			want:  "web/web01: 3 active, 5 remembered, 0 packets/s\nweb/web01: nothing is left after 5s\n",
			after: 5 * time.Second},
		"for a person": {left: []ops.Left{tracked(3, 100), tracked(3, 600), tracked(0, 600)}, person: true,
			deadline: time.Hour,
			want: "\r\x1b[Kweb/web01: 3 active, 5 remembered, 0 packets/s; 1h0m0s to the deadline" +
				"\r\x1b[Kweb/web01: 3 active, 5 remembered, 500 packets/s; 59m59s to the deadline" +
				"\r\x1b[Kweb/web01: 0 active, 2 remembered, 0 packets/s; 59m58s to the deadline" +
				"\r\x1b[Kweb/web01: 0 active, 2 remembered, 0 packets/s; 59m57s to the deadline" +
				"\nweb/web01: nothing is left after 4s\n", after: 4 * time.Second},
		"not tracked": {left: []ops.Left{{Packets: 5}, {Packets: 7}, {Flows: 2, Packets: 7},
			{Packets: 7, Until: time.Date(2000, 1, 1, 0, 15, 0, 0, time.Local)}},
			want: "web/web01: 0 remembered, 0 packets/s\nweb/web01: 0 remembered, 0 packets/s\nweb/web01: nothing is left after 16s that has sent anything; " +
				"connections that are silent are not known, and still find it if they speak before 2000-01-01 00:15:00\n", after: 16 * time.Second},
		"deadline": {left: []ops.Left{tracked(3, 100)}, deadline: 12 * time.Second,
			atDeadline: &ops.Left{Tracked: true, Active: 3, Flows: 4},
			want:       "web/web01: 3 active, 5 remembered, 0 packets/s; 12s to the deadline\nweb/web01: 3 active, 5 remembered, 0 packets/s; 2s to the deadline\n",
			err:        "web/web01: out at its deadline, and with it the flows left: 3 active, 4 remembered",
			status:     ExitLeft,
			after:      12 * time.Second},
		"taken out late": {left: []ops.Left{tracked(3, 100), tracked(3, 100), tracked(3, 100), tracked(3, 100),
			tracked(3, 100), tracked(0, 100)}, deadline: 5 * time.Second, late: 2 * time.Second,
			atDeadline: &ops.Left{Tracked: true, Active: 3, Flows: 4},
			want:       "web/web01: 3 active, 5 remembered, 0 packets/s; 5s to the deadline\n",
			err:        "web/web01: out at its deadline, and with it the flows left: 3 active, 4 remembered",
			status:     ExitLeft,
			after:      7 * time.Second},
		"wall clock set forward": {left: []ops.Left{tracked(3, 100), tracked(0, 100)}, deadline: time.Hour,
			set:  -2 * time.Hour,
			want: "web/web01: 3 active, 5 remembered, 0 packets/s; 1h0m0s to the deadline\nweb/web01: nothing is left after 3s\n", after: 3 * time.Second},
		"wall clock set back": {left: []ops.Left{tracked(3, 100), tracked(3, 100), tracked(3, 100), tracked(3, 100),
			tracked(3, 100), tracked(0, 100)}, deadline: 5 * time.Second, late: 2 * time.Second, set: 2 * time.Hour,
			atDeadline: &ops.Left{Tracked: true, Active: 3, Flows: 4},
			want:       "web/web01: 3 active, 5 remembered, 0 packets/s; 5s to the deadline\n",
			err:        "web/web01: out at its deadline, and with it the flows left: 3 active, 4 remembered",
			status:     ExitLeft,
			after:      7 * time.Second},
		"nothing left at the deadline": {left: []ops.Left{tracked(3, 100)}, deadline: time.Second,
			atDeadline: &ops.Left{Tracked: true, Flows: 4},
			want:       "web/web01: 3 active, 5 remembered, 0 packets/s; 1s to the deadline\nweb/web01: nothing was left at its deadline\n", after: time.Second},
		"not counted at the deadline": {left: []ops.Left{tracked(3, 100)}, deadline: time.Second,
			want: "web/web01: 3 active, 5 remembered, 0 packets/s; 1s to the deadline\n",
			err:  "web/web01: out at its deadline; the flows left could not be counted", status: ExitLeft,
			after: time.Second},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began, target := time.Now(), cmdtest.BackendOf("web", "web01", 1)
				drain := &ops.Operation{Verb: ops.Drain, Targets: []ops.Target{target}, At: began.Add(test.set)}
				if test.deadline > 0 {
					drain.Deadline = drain.At.Add(test.deadline)
				}
				ask := func(context.Context) (*ops.Operations, error) {
					second := int(time.Since(began) / time.Second)
					drained := &ops.Drained{On: true, At: drain.At, Deadline: drain.Deadline}
					if test.deadline > 0 && time.Since(began) >= test.deadline+test.late {
						drained.Out, drained.AtDeadline = true, test.atDeadline
					}
					return &ops.Operations{InForce: []ops.Overlay{{Target: target, Drain: drained,
						Left: test.left[min(second, len(test.left)-1)]}}}, nil
				}
				var got bytes.Buffer
				err := awaitDrain(t.Context(), &got, ask, drain, began, test.person)
				if diff := cmp.Diff(test.want, got.String()); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
				if waited := time.Since(began); waited != test.after {
					t.Errorf("it took %v, want %v", waited, test.after)
				}
				checkLeft(t, err, test.err, test.status)
			})
		})
	}
}

func checkLeft(t *testing.T, err error, says string, status int) {
	t.Helper()
	if (err == nil) != (says == "") || err != nil && err.Error() != says {
		t.Errorf("error = %v, want %q", err, says)
	}
	var coder kong.ExitCoder
	if errors.As(err, &coder) != (status != 0) || status != 0 && coder.ExitCode() != status {
		t.Errorf("the exit status of %v is not %d", err, status)
	}
}

func TestAwaitDrainEndsEarly(t *testing.T) {
	target := cmdtest.BackendOf("web", "web01", 1)
	drain := &ops.Operation{Verb: ops.Drain, Targets: []ops.Target{target}}
	stays := &ops.Operations{InForce: []ops.Overlay{{Target: target, Drain: &ops.Drained{On: true},
		Left: ops.Left{Flows: 1}}}}
	synctest.Test(t, func(t *testing.T) {
		err := awaitDrain(t.Context(), &bytes.Buffer{}, func(context.Context) (*ops.Operations, error) {
			return &ops.Operations{}, nil
		}, drain, time.Now(), false)
		cmdtest.WantError(t, err, "web/web01 is not drained any more")
		for want, now := range map[string]ops.Overlay{
			"web/web01, at 192.0.2.1:80, is not found any more: the flows left there cannot be counted; it stays drained": {Target: target, Absent: time.Now()},
			"web/web01 is at 192.0.2.2:80 now and stays drained; flows that were left at 192.0.2.1:80 are not among":      {Target: cmdtest.BackendOf("web", "web01", 2)},
		} {
			now.Drain = &ops.Drained{On: true}
			err = awaitDrain(t.Context(), &bytes.Buffer{}, func(context.Context) (*ops.Operations, error) {
				return &ops.Operations{InForce: []ops.Overlay{now}}, nil
			}, drain, time.Now(), false)
			cmdtest.WantError(t, err, want)
		}
		gone := errors.New("gone")
		err = awaitDrain(t.Context(), &bytes.Buffer{}, func(context.Context) (*ops.Operations, error) {
			return nil, gone
		}, drain, time.Now(), false)
		if !errors.Is(err, gone) {
			t.Errorf("error = %v, want that of who is asked", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
		defer cancel()
		err = awaitDrain(ctx, &bytes.Buffer{}, func(context.Context) (*ops.Operations, error) {
			return stays, nil
		}, drain, time.Now(), false)
		cmdtest.WantError(t, err, "interrupted; web/web01 stays drained")
	})
}
