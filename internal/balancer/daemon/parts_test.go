// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/jeoul/jeoul/internal/balancer/config"
	"github.com/jeoul/jeoul/internal/balancer/ops"
)

// steps are the steps of a reload, in order.
type steps []string

func (s *steps) add(step string) { *s = append(*s, step) }

// recordingPart is a part that notes when it is prepared and committed.
type recordingPart struct {
	name    string
	refuses error
	done    *steps
}

func (r recordingPart) Prepare(*config.Config) (func(), error) {
	r.done.add("prepare " + r.name)
	return func() { r.done.add("commit " + r.name) }, r.refuses
}

func (r recordingPart) FillStatus(to *ops.Status) {
	to.Problems = append(to.Problems, "problem of "+r.name)
}

// TestReloadAll: parts are prepared in their order before the configuration is applied, and committed in that order
// after; if the file cannot be read, or a part or the controller refuses, nothing after that happens and no part is
// committed.
func TestReloadAll(t *testing.T) {
	t.Parallel()
	refusal := errors.New("refused")
	for name, c := range map[string]struct {
		load, first, second, apply error
		want                       steps
	}{
		"all accept": {want: steps{"load", "prepare first", "prepare second", "apply", "commit first",
			"commit second"}},
		"the file":   {load: refusal, want: steps{"load"}},
		"first":      {first: refusal, want: steps{"load", "prepare first"}},
		"second":     {second: refusal, want: steps{"load", "prepare first", "prepare second"}},
		"controller": {apply: refusal, want: steps{"load", "prepare first", "prepare second", "apply"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var done steps
			asked := &config.Config{File: "a file"}
			apply := func(_ context.Context, load func() (*config.Config, error)) error {
				cfg, err := load()
				if err != nil {
					return err
				}
				if done.add("apply"); cfg != asked {
					t.Error("another configuration is applied than was read")
				}
				return c.apply
			}
			reload := reloadAll(apply, []part{recordingPart{"first", c.first, &done}, recordingPart{"second", c.second, &done}})
			err := reload(t.Context(), func() (*config.Config, error) {
				done.add("load")
				return asked, c.load
			})
			if refuses := c.load != nil || c.first != nil || c.second != nil ||
				c.apply != nil; refuses != errors.Is(err, refusal) {
				t.Errorf("the reload returns %v", err)
			}
			if !slices.Equal(done, c.want) {
				t.Errorf("done: %q, want %q", done, c.want)
			}
		})
	}
}

// TestShowAll: a status has the state that each part adds, in the order of parts, and the list that others read stays
// as it is.
func TestShowAll(t *testing.T) {
	t.Parallel()
	shared := append(make([]string, 0, 8), "problem of the controller")
	failed := errors.New("no status")
	var fails error
	status := showAll(func() (ops.Status, error) { return ops.Status{Problems: shared}, fails },
		[]part{recordingPart{name: "first"}, recordingPart{name: "second"}})
	s, err := status()
	if want := []string{"problem of the controller", "problem of first", "problem of second"}; err != nil ||
		!slices.Equal(s.Problems, want) {
		t.Errorf("the problems are %q (%v), want %q", s.Problems, err, want)
	}
	if spare := shared[:2][1]; spare != "" {
		t.Errorf("a part wrote %q into a list that others read", spare)
	}
	fails = failed
	if s, err := status(); !errors.Is(err, failed) || len(s.Problems) != 1 {
		t.Errorf("without a status of the controller: %q, %v", s.Problems, err)
	}
}
