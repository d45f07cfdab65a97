// SPDX-License-Identifier: Apache-2.0

package loop

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestTasks: tasks are done at their times by one timer, in order, again and not at all, until one fails.
func TestTasks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, a := time.Now(), New()
		var did []string
		add := func(name string, do func()) *Task {
			return a.AddFunc(func() {
				did = append(did, name+" "+time.Since(began).String())
				if do != nil {
					do()
				}
			})
		}
		var again, later *Task
		again = add("again", func() {
			if time.Since(began) < 3*time.Second {
				again.Schedule(time.Second)
			}
		})
		off, never := add("off", nil), add("never", nil)
		later = add("later", func() { off.Cancel() })
		again.Schedule(time.Second)
		off.Schedule(4 * time.Second)
		later.Schedule(time.Second)
		later.Schedule(4*time.Second - 1) // instead
		_ = never
		failed := a.AddTask(func() error { return errors.New("the end") })
		failed.Schedule(5 * time.Second)
		for {
			<-a.timer.C
			if err := a.runDue(); err != nil {
				did = append(did, err.Error())
				break
			}
		}
		want := []string{"again 1s", "again 2s", "again 3s", "later 3.999999999s", "the end"}
		if diff := cmp.Diff(want, did); diff != "" {
			t.Errorf("done (-want +got):\n%s", diff)
		}
	})
}
