// SPDX-License-Identifier: Apache-2.0

package subject_test

import (
	"errors"
	"fmt"
	"github.com/google/go-cmp/cmp"
	"github.com/jeoul/jeoul/internal/weigh/bench/subject"
	"github.com/jeoul/jeoul/internal/weigh/bench/subject/subjecttest"
	"testing"
)

func TestUndoTakesBackTheLastFirst(t *testing.T) {
	var got []string
	step := func(name string, err error) func(bool) error {
		return func(on bool) error {
			got = append(got, fmt.Sprint(name, on))
			return err
		}
	}
	var u subject.Undo
	for _, name := range []string{"a", "b"} {
		if err := u.On(step(name, nil)); err != nil {
			t.Fatal(err)
		}
	}
	failed := errors.New("failed")
	if err := u.On(step("c", failed)); !errors.Is(err, failed) {
		t.Errorf("got %v, want what failed", err)
	}
	if err := u.All(); !errors.Is(err, failed) {
		t.Errorf("got %v, want what failed", err)
	}
	want := []string{"atrue", "btrue", "ctrue", "cfalse", "bfalse", "afalse"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestSetupsShareNothing(t *testing.T) {
	setup := subjecttest.ChangedPaper()
	copied := setup.With(setup.Services)
	setup.Services[0].Weights["web02"] = 9
	setup.Services[0].Servers[1] = nil
	if of := copied.Services[0]; of.Servers[1] == nil || of.Weight(of.Servers[1]) != 3 {
		t.Errorf("the copy changed with the original: %+v", of)
	}
}
