// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"html"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jeoul/jeoul/internal/weigh/report/chart"
	"github.com/jeoul/jeoul/internal/weigh/report/model"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

var update = flag.Bool("update", false, "write the golden files anew")

// forms are all forms that can be made from a run.
var forms = map[string]func(io.Writer, *results.Run) error{
	"txt":  Terminal,
	"md":   Markdown,
	"html": HTML,
	"svg":  Chart,
}

func load(t testing.TB, name string) *results.Run {
	t.Helper()
	run, err := results.Load(filepath.Join("testdata", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	return run
}

func render(t testing.TB, write func(io.Writer, *results.Run) error, run *results.Run) string {
	t.Helper()
	var buf bytes.Buffer
	if err := write(&buf, run); err != nil {
		t.Fatal(err)
	}
	return buf.String()
}

// embedded matches the parts that a golden page need not repeat: charts have separate golden files, and style and
// script are source files.
var embedded = regexp.MustCompile(`(?s)(<svg [^>]*>).*?(</svg>)|(<style>).*?(</style>)|(<script>).*?(</script>)`)

func TestGolden(t *testing.T) {
	for _, name := range []string{"l2dsr-bmt", "packets"} {
		run := load(t, name)
		for ending, write := range forms {
			t.Run(name+"."+ending, func(t *testing.T) {
				got := render(t, write, run)
				if ending == "html" {
					got = embedded.ReplaceAllString(got, "$1$2$3$4$5$6")
				}
				compareGolden(t, filepath.Join("testdata", name+"."+ending), got)
			})
		}
	}
}

// TestGoldenCharts compares every chart of a load with its golden file.
func TestGoldenCharts(t *testing.T) {
	run := load(t, "l2dsr-bmt")
	sections := aggregate(run.Trials, run.Baseline)
	for i, f := range model.Figures(sections[0], model.NewPalette(sections)) {
		compareGolden(t, filepath.Join("testdata", fmt.Sprintf("chart-%d.svg", i+1)),
			f.Chart.Inline(chart.WideWidth, "wide")+"\n")
	}
}

func compareGolden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s differs (-want +got); if that is meant, run the test with -update:\n%s", path, diff)
	}
}

// TestOffline checks that a page and a picture load nothing.
func TestOffline(t *testing.T) {
	loads := regexp.MustCompile(
		`(?i)https?://|//[a-z]+\.|\b(src|href|srcset|action)\s*=|url\(|@import|<(link|img|iframe|object|embed|base)\b`)
	for _, name := range []string{"l2dsr-bmt", "packets"} {
		run := load(t, name)
		if found := loads.FindString(render(t, HTML, run)); found != "" {
			t.Errorf("the page of %s has %q", name, found)
		}
		picture := strings.Replace(render(t, Chart, run), `xmlns="http://www.w3.org/2000/svg"`, "", 1)
		if found := loads.FindString(picture); found != "" {
			t.Errorf("the picture of %s has %q", name, found)
		}
	}
}

// TestScriptPolicy checks that the page's policy allows its own script.
func TestScriptPolicy(t *testing.T) {
	page := render(t, HTML, load(t, "packets"))
	script := regexp.MustCompile(`(?s)<script>(.*)</script>`).FindStringSubmatch(page)
	policy := regexp.MustCompile(`script-src '([^']*)'`).FindStringSubmatch(html.UnescapeString(page))
	if script == nil || policy == nil {
		t.Fatal("the page has no script or no policy")
	}
	if got := integrity(script[1]); got != policy[1] {
		t.Errorf("the script's hash is %s, but the policy allows %s", got, policy[1])
	}
}

func trial(subject string, metrics map[string]float64) results.Trial {
	return results.Trial{
		Subject: subject, Load: "http", Params: map[string]any{"concurrency": 10}, Repeat: 1,
		Valid: true, Saturated: results.SaturatedNone, Metrics: metrics,
	}
}

func rps(v float64) map[string]float64 {
	return map[string]float64{results.RequestsPerSecond: v, results.BalancerCPUUsPerRequest: v / 100}
}

func runOf(trials ...results.Trial) *results.Run {
	return &results.Run{Schema: results.Schema, Suite: "test", Trials: trials}
}

func invalid(t results.Trial, reason string) results.Trial {
	t.Valid, t.Notes, t.Metrics = false, []string{reason}, nil
	return t
}

const markup = "<script>alert(1)</script>\x1b[31m|`*_x_*`[a](b)\n&amp;\"'\u202e"

// TestEdges renders runs that are odd but possible, and checks for texts that a reader must or must not see in every
// form of text.
func TestEdges(t *testing.T) {
	many := runOf()
	for i := range 20 {
		many.Trials = append(many.Trials, trial(fmt.Sprintf("subject%02d", i), rps(float64(i+1))))
	}
	hostile := trial(markup, rps(5))
	hostile.Load, hostile.Notes, hostile.Params = markup, []string{markup},
		map[string]any{markup: markup, "x": nil, "y": []any{1.0, "a"}, "z": true}
	hostile.Backends = []results.Backend{{Name: markup, Connections: 1}, {Connections: 2}}
	hostileRun := runOf(hostile)
	hostileRun.Title, hostileRun.Command, hostileRun.Environment.CPU = markup, markup, markup
	hostileRun.Environment.Notes = []string{markup}
	hostileRun.Environment.Versions = map[string]string{markup: markup}
	hostileRun.Published = &results.Published{Source: markup, Machine: markup, Columns: []string{markup},
		Rows: [][]string{{markup, markup}, {}}, Notes: []string{markup}}
	idle := trial("direct", rps(100))
	idle.Backends = []results.Backend{{Name: "a", Connections: 10}, {Name: "b"}}
	one := trial("haproxy-http", rps(100))
	one.Params = map[string]any{"concurrency": uint32(10), "threads": 1}
	negative := trial("jeoul-l2dsr-xdp", map[string]float64{results.NsPerPacket: 40, results.NsNetOfEmpty: -0.4})

	tests := []struct {
		name    string
		run     *results.Run
		want    []string
		not     []string
		picture bool
	}{
		{name: "no trials", run: runOf(), want: []string{"has no trials"}},
		{name: "all invalid", run: runOf(invalid(trial("direct", nil), "no room"),
			invalid(trial("jeoul-l2dsr-xdp", nil), "no rights")),
			want: []string{"No trial is valid", "no room", "no rights"}},
		{name: "one repeat", run: runOf(trial("direct", rps(1000)), trial("jeoul-l2dsr-xdp", rps(900))), picture: true,
			want: []string{"0.90", "once each", "jeoul-l2dsr-xdp"}, not: []string{"Spread of"}},
		{name: "missing metrics", run: runOf(trial("direct", map[string]float64{results.Failed: 0}),
			trial("jeoul-l2dsr-xdp", rps(900))), picture: true,
			want: []string{"900"}, not: []string{"NaN", "Inf"}},
		{name: "no baseline", run: runOf(trial("jeoul-l2dsr-xdp", rps(900))), picture: true,
			want: []string{"direct (not measured)", "nothing to hold it against", "no valid trial under this load"}},
		{name: "zero baseline", run: runOf(trial("direct", rps(0)), one, trial("jeoul-l2dsr-xdp", rps(200))),
			picture: true,
			want:    []string{"2.00 ×"}, not: []string{"NaN", "Inf"}},
		{name: "all zero", run: runOf(trial("direct", rps(0)), trial("jeoul-l2dsr-xdp", rps(0))), picture: true,
			not: []string{"NaN", "Inf"}},
		{name: "huge", run: runOf(trial("direct", rps(1.7e308)), trial("jeoul-l2dsr-xdp", rps(1e15)),
			trial("jeoul-l2dsr-tc", rps(12345678))), picture: true,
			want: []string{"12,345,678", "1e+15"}, not: []string{"NaN", "Inf"}},
		{name: "tiny", run: runOf(trial("direct", rps(1e-300)), trial("jeoul-l2dsr-xdp", rps(5e-324))), picture: true,
			not: []string{"NaN", "Inf"}},
		{name: "negative",
			run: runOf(trial("empty", map[string]float64{results.NsPerPacket: 41, results.NsNetOfEmpty: 0}),
				negative),
			picture: true,
			want:    []string{"−0.4"}, not: []string{"NaN", "-0.0", "−0.0 "}},
		{name: "unknown subjects", run: runOf(trial("direct", rps(100)), trial("ipvs-dr", rps(90)),
			trial("loxilb", rps(80))), picture: true,
			want: []string{"ipvs-dr", "0.90", "loxilb", "0.80"}},
		{name: "more subjects than colours", run: many, picture: true, want: []string{"subject19"}},
		{name: "idle backend", run: runOf(idle, trial("jeoul-l2dsr-xdp", rps(90))), picture: true,
			want: []string{"1 idle"}},
		{name: "names that would break a page", run: hostileRun, picture: true,
			not: []string{"<script>alert", "\x1b", "\u202e"}},
		{name: "interrupted", run: &results.Run{Suite: "x", Interrupted: true,
			Trials: []results.Trial{trial("direct", rps(1))}}, picture: true,
			want: []string{"was interrupted"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			for _, ending := range []string{"txt", "md", "html"} {
				text := embedded.ReplaceAllString(render(t, forms[ending], test.run), "")
				for _, want := range test.want {
					// Text is wrapped for a terminal, and HTML may escape it.
					if !strings.Contains(strings.Join(strings.Fields(html.UnescapeString(text)), " "), want) {
						t.Errorf("%s lacks %q:\n%s", ending, want, text)
					}
				}
				for _, not := range test.not {
					if ending == "txt" && strings.HasPrefix(not, "<") {
						continue // Plain text needs no escape.
					}
					if strings.Contains(text, not) {
						t.Errorf("%s has %q:\n%s", ending, not, text)
					}
				}
			}
			checkPicture(t, test.run, test.picture)
			checkCharts(t, render(t, HTML, test.run))
		})
	}
}

// checkPicture checks that there is a well-formed picture if want is set, otherwise an error and no output.
func checkPicture(t *testing.T, run *results.Run, want bool) {
	t.Helper()
	var buf bytes.Buffer
	err := Chart(&buf, run)
	switch {
	case !want && (err == nil || buf.Len() > 0):
		t.Errorf("Chart wrote %d bytes with error %v; want an error and nothing written", buf.Len(), err)
	case want && err != nil:
		t.Errorf("Chart: %v", err)
	case want:
		checkXML(t, buf.String())
	}
}

// checkCharts checks that every chart of a page is well formed.
func checkCharts(t *testing.T, page string) {
	t.Helper()
	for _, svg := range regexp.MustCompile(`(?s)<svg .*?</svg>`).FindAllString(page, -1) {
		checkXML(t, svg)
	}
}

func checkXML(t *testing.T, svg string) {
	t.Helper()
	decoder := xml.NewDecoder(strings.NewReader(svg))
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("not well formed: %v\n%s", err, svg)
		}
		if start, ok := token.(xml.StartElement); ok && strings.EqualFold(start.Name.Local, "script") {
			t.Fatalf("a chart has a script:\n%s", svg)
		}
	}
	if bad := regexp.MustCompile(`NaN|Inf\b`).FindString(svg); bad != "" {
		t.Errorf("a chart has %s for a number", bad)
	}
	if strings.Contains(svg, "#0102") {
		t.Error("a chart kept a stand-in colour")
	}
}

func TestWriteError(t *testing.T) {
	run := load(t, "packets")
	for ending, write := range forms {
		if err := write(failingWriter{}, run); !errors.Is(err, errFull) {
			t.Errorf("%s: error %v, want the writer's", ending, err)
		}
	}
}

var errFull = errors.New("disk full")

type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, errFull }

// FuzzForms renders anything that a results file can hold: no form may panic, and nothing from the file may become
// markup.
func FuzzForms(f *testing.F) {
	for _, name := range []string{"l2dsr-bmt", "packets"} {
		run := load(f, name)
		run.Trials = run.Trials[:min(8, len(run.Trials))]
		seed, err := json.Marshal(run)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(seed)
	}
	f.Add([]byte(
		`{"trials":[{"subject":"direct","load":"a","valid":true,"metrics":{"requests_per_second":-1,"latency_ms_p50":1e-320,"latency_ms_p99":1e308}}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var run results.Run
		if json.Unmarshal(data, &run) != nil {
			t.Skip()
		}
		for ending, write := range forms {
			var buf bytes.Buffer
			if err := write(&buf, &run); err != nil && ending != "svg" {
				t.Fatal(err)
			}
			if ending == "html" && strings.Count(buf.String(), "<script") != 1 {
				t.Fatal("the page has a script that is not its own")
			}
		}
	})
}
