// SPDX-License-Identifier: Apache-2.0

package top

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/jeoul/jeoul/internal/balancer/ops"
)

func TestSI(t *testing.T) {
	for value, want := range map[float64]string{0: "0", 0.25: "0.2", 9.96: "10", 17: "17", 999: "999", 999.6: "1.00k",
		1234:   "1.23k",
		45_600: "45.6k", 99_960: "100k", 999_400: "999k", 1e6: "1.00M", 2.5e9: "2.50G", 3e15: "3.00P"} {
		if got := formatSI(value); got != want || len(got) > rateWidth {
			t.Errorf("si(%g) = %q, want %q", value, got, want)
		}
	}
}

func TestSpark(t *testing.T) {
	for _, tc := range []struct {
		ascii  bool
		values []float64
		want   string
	}{
		{false, nil, "    "},
		{false, []float64{0, 0}, "  ▁▁"},
		{false, []float64{9, 0, 1, 50, 100}, "▁▂▅█"},
		{true, []float64{0, 0.001, 50, 100}, "_.:#"},
	} {
		if tc.ascii {
			tc.want = "_.=#"
		}
		if got := glyphsOf(tc.ascii).spark(tc.values, 4); got != tc.want {
			t.Errorf("%v: %q, want %q", tc.values, got, tc.want)
		}
	}
}

func TestUTF8IsTheLocales(t *testing.T) {
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		t.Setenv(name, "")
	}
	if UTF8() {
		t.Error("no locale is UTF-8")
	}
	t.Setenv("LANG", "de_DE.UTF-8")
	if !UTF8() {
		t.Error("de_DE.UTF-8 is not")
	}
	t.Setenv("LC_ALL", "C")
	if UTF8() {
		t.Error("C is UTF-8")
	}
}

func FuzzClean(f *testing.F) {
	f.Add("web\x1b[2J\u202e\x9b")
	f.Add("서비스\u200b\xff")
	f.Fuzz(func(t *testing.T, text string) {
		for _, g := range []glyphs{glyphsOf(false), glyphsOf(true)} {
			clean := g.clean(text)
			if strings.ContainsFunc(clean, func(r rune) bool {
				return r < ' ' || r >= 0x7f && r < 0xa0 || g.ascii && r > '~'
			}) {
				t.Errorf("%q became %q", text, clean)
			}
			if ansi.Strip(clean) != clean {
				t.Errorf("%q became %q, which has a sequence", text, clean)
			}
			if got := ansi.StringWidth(g.fit(clean, 10, false)); got != 10 {
				t.Errorf("%q takes %d columns, want 10", clean, got)
			}
		}
	})
}

// TestOnce: the table is printed with rates, as text and as JSON.
func TestOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		options := Options{View: Backends, Sort: "new/s", Filter: "web", Interval: time.Second, Now: time.Now}
		for _, asJSON := range []bool{false, true} {
			options.Balancer = &growingBalancer{began: time.Now()}
			var out bytes.Buffer
			if err := Once(t.Context(), options, &out, asJSON); err != nil {
				t.Fatal(err)
			}
			if !asJSON {
				lines := strings.Split(strings.TrimSpace(out.String()), "\n")
				if len(lines) != 5 || !strings.HasPrefix(lines[2], "web") || !strings.Contains(lines[2], "web02") ||
					!strings.Contains(lines[2], " 300 ") {
					t.Errorf("text:\n%s", out.String())
				}
				if !strings.HasSuffix(lines[4], "does not answer ARP requests") {
					t.Errorf("the last column is cut: %q", lines[4])
				}
				continue
			}
			var got struct {
				Seconds  float64
				Services []any
				Backends []struct {
					Backend string
					Rate    float64 `json:"connections_per_second"`
				}
			}
			if err := json.Unmarshal(out.Bytes(), &got); err != nil {
				t.Fatal(err)
			}
			if got.Seconds != 1 || got.Services != nil || len(got.Backends) != 3 ||
				got.Backends[0].Backend != "web02" ||
				got.Backends[0].Rate != 300 {
				t.Errorf("JSON: %s", out.String())
			}
		}
	})
}

// growingBalancer is a balancer whose counters grow with time.
type growingBalancer struct {
	fakeBalancer
	began time.Time
}

func (g *growingBalancer) Status(context.Context) (*ops.Status, error) {
	return sampled(uint64(time.Since(g.began).Seconds())), nil
}
