// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"math"

	"github.com/jeoul/jeoul/internal/weigh/report/wording"
	"gonum.org/v1/plot/vg"
)

// ticks places marks on an axis and formats their numbers. It places fewer marks if the labels do not fit into room.
type ticks struct {
	log, percent bool
	room         vg.Length
}

// on returns the marks of an axis from low to high.
func (t ticks) on(low, high float64) []tick {
	if t.log {
		return t.logarithmic(low, high)
	}
	var out []tick
	for _, divisions := range []float64{3, 2, 1} {
		out = t.every(tickStep((high-low)/divisions), low, high)
		if t.fits(out) {
			break
		}
	}
	return out
}

// every marks the multiples of step.
func (t ticks) every(step, low, high float64) []tick {
	var out []tick
	for i := math.Ceil(low / step); i*step <= high; i++ {
		mark := tick{Value: i * step, Label: wording.Short(i*step, max(math.Abs(low), math.Abs(high)))}
		if t.percent {
			mark.Label += " %"
		}
		out = append(out, mark)
	}
	return out
}

// tickStep returns the largest 1, 2 or 5 times a power of ten up to v. gonum's own ticks can be as few as two on an
// axis.
func tickStep(v float64) float64 {
	e := math.Pow(10, math.Floor(math.Log10(v)))
	for _, f := range []float64{5, 2} {
		if f*e <= v {
			return f * e
		}
	}
	return e
}

// logarithmic marks 1, 2 and 5 times the powers of ten, or the powers only, or
// every few of them.
func (t ticks) logarithmic(low, high float64) []tick {
	if out := decades(low, high, 1, 1, 2, 5); t.fits(out) {
		return out
	}
	for every := 1.0; ; every++ {
		if out := decades(low, high, every, 1); len(out) < 2 || t.fits(out) {
			return out
		}
	}
}

// decades marks the given multiples of every few powers of ten.
func decades(low, high, every float64, multiples ...float64) []tick {
	var out []tick
	for e := math.Floor(math.Log10(low)); e <= math.Ceil(math.Log10(high)); e++ {
		for _, f := range multiples {
			v := f * math.Pow(10, e)
			if v >= low*0.999 && v <= high*1.001 && math.Mod(e, every) == 0 {
				out = append(out, tick{Value: v, Label: wording.Short(v, high)})
			}
		}
	}
	return out
}

// fits reports whether the marks' labels have room beside each other.
func (t ticks) fits(marks []tick) bool {
	var need vg.Length
	s := style(tickSize, InkQuiet, false, atStart)
	for _, m := range marks {
		need += s.Width(m.Label)*labelSlack + 2*gap
	}
	return need <= t.room || t.room == 0
}

// logFloor returns the largest of 1, 2 and 5 times a power of ten below v.
func logFloor(v float64) float64 {
	e := math.Pow(10, math.Floor(math.Log10(v)))
	for _, f := range []float64{5, 2} {
		if e*f <= v {
			return e * f
		}
	}
	return e
}

// logCeil returns the smallest of 1, 2 and 5 times a power of ten above v.
func logCeil(v float64) float64 {
	e := math.Pow(10, math.Floor(math.Log10(v)))
	for _, f := range []float64{2, 5} {
		if e*f > v {
			return e * f
		}
	}
	return e * 10
}

// tick is a mark on an axis, and its label.
type tick struct {
	Value float64
	Label string
}
