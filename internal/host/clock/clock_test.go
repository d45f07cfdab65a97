// SPDX-License-Identifier: Apache-2.0

package clock

import (
	"encoding/json"
	"testing"
	"time"
)

// TestFromWall: a time that is read from a file is as long ago, or as far ahead, as it is, however the wall clock was
// set meanwhile.
func TestFromWall(t *testing.T) {
	const boot = "a"
	start := time.Now()
	for _, test := range []struct {
		name string
		// set is by how much the wall clock was set between the file and now, and later how much
		// later that is; ago is when the time was, before the file was written.
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
			// The file is of a clock that showed this one's time, less the step by which it was set.
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

// TestZeroStaysZero: no time is none, by whatever clock.
func TestZeroStaysZero(t *testing.T) {
	r := Read()
	if got := r.ToWall(time.Time{}); !got.IsZero() {
		t.Errorf("written as %v", got)
	}
	if got := r.FromWall(time.Time{}, Read()); !got.IsZero() {
		t.Errorf("told as %v", got)
	}
}

// TestRead: two readings of this boot, of which the later one is later.
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
