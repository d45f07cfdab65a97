// SPDX-License-Identifier: Apache-2.0

package clock

import (
	"encoding/json"
	"testing"
	"time"
)

// TestFromWall: a time read from a file is as long ago, or as far ahead, as it really is, no matter how the wall clock
// was set in the meantime.
func TestFromWall(t *testing.T) {
	const boot = "a"
	start := time.Now()
	for _, test := range []struct {
		name string
		// set is the step of the wall clock between the file and now, and later the time in between. ago is the age of
		// the time when the file was written.
		set, later, ago time.Duration
		boot            string
		want            time.Duration // since the time
	}{
		{"not set", 0, time.Minute, 30 * time.Second, boot, 90 * time.Second},
		{"set forward", time.Hour, time.Minute, 30 * time.Second, boot, 90 * time.Second},
		{"set back", -time.Hour, time.Minute, 30 * time.Second, boot, 90 * time.Second},
		{"ahead, set forward", time.Hour, time.Minute, -10 * time.Minute, boot, -9 * time.Minute},
		{"ahead, set back", -time.Hour, time.Minute, -10 * time.Minute, boot, -9 * time.Minute},
		{"another boot", time.Hour, time.Minute, 30 * time.Second, "b", time.Hour + 90*time.Second},
		{"no boot known", time.Hour, time.Minute, 30 * time.Second, "", time.Hour + 90*time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			// The file has this clock's time without the step.
			before := At(start, boot, 5*time.Hour)
			before.Wall = before.Wall.Add(-test.set)
			file, err := json.Marshal(struct {
				Reading Reading
				T       time.Time
			}{before, before.ToWall(start.Add(-test.ago))})
			if err != nil {
				t.Fatal(err)
			}
			var read struct {
				Reading Reading
				T       time.Time
			}
			if err := json.Unmarshal(file, &read); err != nil {
				t.Fatal(err)
			}
			now := At(start.Add(test.later), test.boot, 5*time.Hour+test.later)
			if got := now.now.Sub(read.Reading.FromWall(read.T, now)); got != test.want {
				t.Errorf("%v ago, want %v", got, test.want)
			}
		})
	}
}

// TestZeroStaysZero: the zero time stays zero by any clock.
func TestZeroStaysZero(t *testing.T) {
	r := Read()
	if got := r.ToWall(time.Time{}); !got.IsZero() {
		t.Errorf("written as %v", got)
	}
	if got := r.FromWall(time.Time{}, Read()); !got.IsZero() {
		t.Errorf("told as %v", got)
	}
}

// TestRead: of two readings of this boot, the second is later.
func TestRead(t *testing.T) {
	a := Read()
	b := Read()
	if a.Boot == "" || a.Boot != b.Boot || b.Up < a.Up || a.Up <= 0 {
		t.Errorf("%+v, then %+v", a, b)
	}
	moment := time.Now()
	if got := a.FromWall(a.ToWall(moment), b); got.Sub(moment).Abs() > time.Minute {
		t.Errorf("%v became %v", moment, got)
	}
}
