// SPDX-License-Identifier: Apache-2.0

package clock

import (
	"reflect"
	"testing"
	"time"
)

// set returns a reading after a time, of a wall clock that was stepped since the first reading, on a machine that was
// suspended in the meantime.
func (r Reading) set(after, by, slept time.Duration) Reading {
	return Reading{Wall: r.Wall.Add(after + by + slept), Boot: r.Boot, Up: r.Up + after + slept, now: r.now.Add(after)}
}

// TestPresent: after the clock was set, a time taken before keeps its age, and each conversion returns the same value.
func TestPresent(t *testing.T) {
	base := Read()
	for _, by := range []time.Duration{time.Hour, -time.Hour, -20 * 365 * 24 * time.Hour} {
		p, taken := NewWallClock(base), base.now.Add(time.Minute)
		if of := p.Of(base.set(2*time.Minute, time.Millisecond, 0)); of != nil {
			t.Fatalf("a clock that was not set tells %v as %v", taken, of(taken))
		}
		now := base.set(time.Hour, by, 0)
		fromWall := p.Of(now)(taken)
		if got := now.Wall.Sub(fromWall); got != 59*time.Minute {
			t.Errorf("set by %v, a time of 59 minutes ago becomes one of %v ago", by, got)
		}
		if again := p.Of(base.set(3*time.Hour, by+time.Microsecond, 0))(taken); !again.Equal(fromWall) {
			t.Errorf("set by %v, %v becomes %v later", by, fromWall, again)
		}
		if alone := taken.Round(0); p.Of(now)(alone) != alone || !p.Of(now)(time.Time{}).IsZero() {
			t.Errorf("set by %v, a time of the wall clock alone, or none, is told otherwise", by)
		}
		if of := p.Of(base.set(4*time.Hour, by, time.Hour)); of != nil {
			t.Errorf("times are told otherwise though the machine has slept")
		}
		if of := p.Of(base.set(5*time.Hour, 0, 0)); of != nil && !of(taken).Equal(taken) {
			t.Errorf("set back to what it was, %v becomes %v", taken, of(taken))
		}
	}
}

// TestMap: all times are converted, and values that are shared stay unchanged.
func TestMap(t *testing.T) {
	type part struct{ At time.Time }
	type whole struct {
		At    time.Time
		Name  string
		Parts []part
		One   *part
		None  *part
		ages  time.Time
	}
	at := time.Unix(100, 0)
	make := func() whole {
		return whole{At: at, Name: "a", Parts: []part{{at}, {}}, One: &part{at}, ages: at}
	}
	value, want := make(), make()
	got := Map(value, func(t time.Time) time.Time {
		if t.IsZero() {
			return t
		}
		return t.Add(time.Second)
	})
	if !reflect.DeepEqual(value, want) {
		t.Errorf("the value itself became %v", value)
	}
	later := at.Add(time.Second)
	want = whole{At: later, Name: "a", Parts: []part{{later}, {}}, One: &part{later}, ages: at}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
