// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"errors"
	"slices"
	"testing"
)

// TestRun: all steps run in order, or those before the one that fails are undone in reverse order.
func TestRun(t *testing.T) {
	t.Parallel()
	var did []string
	named := func(name string, err, back error) Step {
		return Step{
			Do:   func() error { did = append(did, name); return err },
			Undo: func() error { did = append(did, "undo "+name); return back },
		}
	}
	last := named("last", nil, nil)
	last.Undo = nil
	tests := map[string]struct {
		steps []Step
		did   []string
		err   string
	}{
		"all": {[]Step{named("a", nil, nil), last}, []string{"a", "last"}, ""},
		"third fails": {[]Step{named("a", nil, errors.New("a stays")), named("b", nil, nil),
			named("c", errors.New("no c"), nil), last},
			[]string{"a", "b", "c", "undo b", "undo a"}, "no c\na stays"},
		"after one without undo": {[]Step{last, named("a", errors.New("no a"), nil)}, []string{"last", "a"}, "no a"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			did = nil
			text := ""
			if err := Run(test.steps); err != nil {
				text = err.Error()
			}
			if !slices.Equal(did, test.did) || text != test.err {
				t.Errorf("did %q with the error %q, want %q and %q", did, text, test.did, test.err)
			}
		})
	}
}
