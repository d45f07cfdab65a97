// SPDX-License-Identifier: Apache-2.0

package load

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func read(tb testing.TB, name string) []byte {
	tb.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		tb.Fatal(err)
	}
	return data
}

func TestParseAB(t *testing.T) {
	for file, want := range map[string]struct {
		report abReport
		failed uint64
	}{
		"ab.txt": {report: abReport{Taken: 1_000_039_060, Complete: 29443, DocumentBytes: 5120}},
		"ab-404.txt": {report: abReport{Taken: 96_112_998, Complete: 2000, Non2xx: 2000, DocumentBytes: 153},
			failed: 2000},
		"ab-refused.txt": {report: abReport{Taken: 253 * time.Microsecond, Complete: 20, Failed: 30, Receive: 20,
			Exception: 10}, failed: 30},
	} {
		got, err := parseAB(read(t, file))
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		if diff := cmp.Diff(want.report, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", file, diff)
		}
		if got.failed() != want.failed {
			t.Errorf("%s: %d failed, want %d", file, got.failed(), want.failed)
		}
	}
}

func TestABsRateIsFinerThanItsTime(t *testing.T) {
	for name, test := range map[string]struct{ taken, rate, requests, want float64 }{
		"finer":               {1.714, 4666.67, 8000, 8000 / 4666.67},
		"of something else":   {1.714, 4600, 8000, 1.714},
		"none":                {1.714, 0, 8000, 1.714},
		"of nothing":          {0, 0, 0, 0},
		"too fast for a time": {0, 1e6, 100, 0.0001},
	} {
		if got := refineDuration(test.taken, test.rate, test.requests); got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

func TestAnErrorPageOfAnotherLengthFailsOnce(t *testing.T) {
	if got := (abReport{Failed: 7, Length: 7, Non2xx: 5}).failed(); got != 7 {
		t.Errorf("5 of 7 wrong lengths are error pages: %d failed, want 7", got)
	}
}

func TestParseABRefusesOtherText(t *testing.T) {
	whole := string(read(t, "ab.txt"))
	for name, text := range map[string]string{
		"empty":     "",
		"cut off":   whole[:strings.Index(whole, "Failed requests")],
		"no number": strings.Replace(whole, "29443", "many", 1),
		"negative":  strings.Replace(whole, "29443", "-1", 1),
		"absurd":    strings.Replace(whole, "29443", "99999999999999", 1),
	} {
		if _, err := parseAB([]byte(text)); !errors.Is(err, ErrOutput) {
			t.Errorf("%s: got %v, want ErrOutput", name, err)
		}
	}
}

func TestPercentilesOfAB(t *testing.T) {
	points, err := parsePercentiles(bytes.NewReader(read(t, "ab.csv")), 29443)
	if err != nil {
		t.Fatal(err)
	}
	l, err := fromQuantiles(points, 29443)
	if err != nil {
		t.Fatal(err)
	}
	if l.Count() != 29443 {
		t.Errorf("%d requests recorded, want 29443", l.Count())
	}
	// The figures of the table itself, which readers can look up there.
	near(t, "min", l.MinMs(), 0.219)
	near(t, "p99", l.Ms(99), 3.074)
	near(t, "max", l.MaxMs(), 9.288)
	near(t, "p100", l.Ms(100), 9.288)
}

func TestPercentilesOfOneRequest(t *testing.T) {
	// The table of ab for one request that took 46.467 ms.
	text := "Percentage served,Time in ms\n"
	for i := range 101 {
		ms := "46.467"
		if i >= 50 && i < 100 {
			ms = "0.000"
		}
		text += fmt.Sprintf("%d,%s\n", i, ms)
	}
	points, err := parsePercentiles(strings.NewReader(text), 1)
	if err != nil {
		t.Fatal(err)
	}
	l, err := fromQuantiles(points, 1)
	if err != nil {
		t.Fatal(err)
	}
	near(t, "p50", l.Ms(50), 46.467)
	near(t, "mean", l.MeanMs(), 46.467)
}

// near allows for the three digits of the histogram, and for one request more or less below a percentile.
func near(t *testing.T, name string, got, want float64) {
	t.Helper()
	if math.Abs(got-want) > want*0.01 {
		t.Errorf("%s: got %g, want %g", name, got, want)
	}
}

func TestParsePercentilesRefusesOtherText(t *testing.T) {
	for name, text := range map[string]string{
		"empty":       "",
		"header only": "Percentage served,Time in ms\n",
		"one row":     "Percentage served,Time in ms\n0,1\n",
		"falling":     "Percentage served,Time in ms\n0,2\n1,1\n",
		"repeated":    "Percentage served,Time in ms\n0,1\n0,1\n",
		"NaN":         "Percentage served,Time in ms\n0,1\n1,NaN\n",
		"beyond":      "Percentage served,Time in ms\n0,1\n101,2\n",
		"three cells": "Percentage served,Time in ms\n0,1,2\n",
		"a word":      "Percentage served,Time in ms\n0,1\n1,soon\n",
	} {
		if _, err := parsePercentiles(strings.NewReader(text), 1000); !errors.Is(err, ErrOutput) {
			t.Errorf("%s: got %v, want ErrOutput", name, err)
		}
	}
}

func TestMergeWeightsByRequests(t *testing.T) {
	// 300 requests of about 10 ms on one client, 100 of about 50 ms on another: two thirds of all must be fast, and the
	// slow quarter must be slow.
	fast, err := fromQuantiles([]quantile{{0, 10_000}, {100, 10_000}}, 300)
	if err != nil {
		t.Fatal(err)
	}
	slow, err := fromQuantiles([]quantile{{0, 50_000}, {100, 50_000}}, 100)
	if err != nil {
		t.Fatal(err)
	}
	all := newLatency()
	all.merge(fast)
	all.merge(slow)
	near(t, "p50", all.Ms(50), 10)
	near(t, "p75", all.Ms(75), 10)
	near(t, "p76", all.Ms(76), 50)
	near(t, "mean", all.MeanMs(), 20)
	near(t, "min", all.MinMs(), 10)
	near(t, "max", all.MaxMs(), 50)
}

func TestParseWrk(t *testing.T) {
	report, err := parseWrk(read(t, "wrk.txt"))
	if err != nil {
		t.Fatal(err)
	}
	l, measured, err := report.latency(20)
	if err != nil || !measured {
		t.Fatalf("measured %v, error %v", measured, err)
	}
	if l.Count() != int64(report.Requests) || report.Requests == 0 {
		t.Errorf("%d latencies of %d requests", l.Count(), report.Requests)
	}
	if report.failed() != 0 {
		t.Errorf("%d failed, want none", report.failed())
	}
	refused, err := parseWrk(read(t, "wrk-404.txt"))
	if err != nil {
		t.Fatal(err)
	}
	if refused.failed() != refused.Requests || refused.Requests == 0 {
		t.Errorf("%d of %d error pages failed, want all", refused.failed(), refused.Requests)
	}
}

func TestParseWrkRefusesOtherText(t *testing.T) {
	for name, text := range map[string]string{
		"empty":     "",
		"no script": "Requests/sec: 5\n",
		"cut off":   "\n{\"requests\":5,\"dura",
		"negative":  "\n{\"requests\":-5}\n",
		"absurd":    "\n{\"requests\":5,\"latencies_us\":[[-1,5]]}\n",
	} {
		if _, err := parseWrk([]byte(text)); !errors.Is(err, ErrOutput) {
			t.Errorf("%s: got %v, want ErrOutput", name, err)
		}
	}
}

// correct is wrk's stats_correct for a table of counts by microsecond.
func correct(table []int64, expected int) {
	for n := expected * 2; n < len(table); n++ {
		for m := n - expected; table[n] > 0 && m > expected; m -= expected {
			table[m] += table[n]
		}
	}
}

func pairs(table []int64) [][2]int64 {
	var all [][2]int64
	for us, count := range table {
		if count > 0 {
			all = append(all, [2]int64{int64(us), count})
		}
	}
	return all
}

func TestWrksCorrectionIsTakenOut(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		table := make([]int64, 3000)
		var requests uint64
		for range 500 {
			table[random.IntN(len(table))]++
			requests++
		}
		want := pairs(slices.Clone(table))
		const connections = 10
		duration := uint64(50 * (100 + random.IntN(300)))
		correct(table, int(duration/(requests/connections)))
		report := wrkReport{Requests: requests, DurationUs: duration, Latencies: pairs(table)}
		got, ok := report.uncorrected(connections)
		got = slices.DeleteFunc(got, func(p [2]int64) bool { return p[1] == 0 })
		if diff := cmp.Diff(want, got); !ok || diff != "" {
			t.Fatalf("ok %v (-measured +recovered):\n%s", ok, diff)
		}
	}
}

func TestATableThatWrkDidNotCorrectIsLeftAlone(t *testing.T) {
	report := wrkReport{Requests: 20, DurationUs: 1000, Latencies: [][2]int64{{10, 5}, {900, 30}}}
	l, measured, err := report.latency(10)
	if err != nil || measured {
		t.Fatalf("measured %v, error %v: want the table as it is, marked", measured, err)
	}
	if l.Count() != 35 {
		t.Errorf("%d requests, want all 35 of the table", l.Count())
	}
}

func FuzzParseAB(f *testing.F) {
	for _, file := range []string{"ab.txt", "ab-404.txt", "ab-refused.txt"} {
		f.Add(read(f, file))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		report, err := parseAB(text)
		if err == nil && (report.Taken < 0 || report.Complete > 1e12) {
			t.Errorf("accepted %+v", report)
		}
	})
}

func FuzzParsePercentiles(f *testing.F) {
	f.Add(read(f, "ab.csv"), int64(29443))
	f.Add([]byte("p,ms\n0,1\n50,2\n100,2\n"), int64(1))
	f.Fuzz(func(t *testing.T, text []byte, count int64) {
		if count < 0 || count > 1e12 {
			return
		}
		points, err := parsePercentiles(bytes.NewReader(text), uint64(count))
		if err != nil {
			return
		}
		l, err := fromQuantiles(points, count)
		if err != nil {
			t.Fatal(err)
		}
		checkLatency(t, l, count)
	})
}

func FuzzParseWrk(f *testing.F) {
	f.Add(read(f, "wrk.txt"), uint64(20))
	f.Add([]byte("\n{\"requests\":5,\"percentiles_us\":[[0,1],[100,2]]}\n"), uint64(1))
	f.Add([]byte("\n{\"requests\":5,\"duration_us\":9,\"latencies_us\":[[1,5]]}\n"), uint64(1))
	f.Fuzz(func(t *testing.T, text []byte, connections uint64) {
		report, err := parseWrk(text)
		if err != nil {
			return
		}
		l, measured, err := report.latency(connections)
		if err != nil {
			return
		}
		if measured {
			checkLatency(t, l, l.Count())
			if uint64(l.Count()) > report.Requests {
				t.Errorf("%d latencies of %d requests", l.Count(), report.Requests)
			}
		}
	})
}

func checkLatency(t *testing.T, l *Latency, count int64) {
	t.Helper()
	if l.Count() != count {
		t.Errorf("%d recorded, want %d", l.Count(), count)
	}
	for _, ms := range []float64{l.MinMs(), l.MeanMs(), l.Ms(50), l.Ms(99), l.MaxMs()} {
		if math.IsNaN(ms) || math.IsInf(ms, 0) || ms < 0 {
			t.Errorf("a latency of %g ms", ms)
		}
	}
	if l.MinMs() > l.Ms(50) || l.Ms(50) > l.Ms(99) || l.Ms(99) > l.MaxMs() {
		t.Errorf("min %g, p50 %g, p99 %g, max %g do not rise", l.MinMs(), l.Ms(50), l.Ms(99), l.MaxMs())
	}
}
