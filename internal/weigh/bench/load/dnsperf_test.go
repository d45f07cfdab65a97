// SPDX-License-Identifier: Apache-2.0

package load

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/jeoul/jeoul/internal/test/testenv"
	"github.com/jeoul/jeoul/internal/weigh/bench/probe"
)

func TestParseDNSPerf(t *testing.T) {
	for file, want := range map[string]*Outcome{
		"dnsperf.txt": {Requests: 129802, Taken: 1000662 * time.Microsecond,
			Waits: Waits{Min: 13 * time.Microsecond, Mean: 468 * time.Microsecond, Max: 13928 * time.Microsecond}},
		"dnsperf-lost.txt": {Requests: 665, Failed: 1331, Lost: 4, Taken: 1000188 * time.Microsecond,
			Waits:    Waits{Min: 15 * time.Microsecond, Mean: 101 * time.Microsecond, Max: 4878 * time.Microsecond},
			Problems: []string{"1331 queries were answered with an error: NOERROR 665 (33.32%), NXDOMAIN 666 (33.37%), REFUSED 665 (33.32%)"}},
		"dnsperf-silent.txt": {Taken: 1000034 * time.Microsecond},
	} {
		got, err := DNSPerf{}.Parse(Share{}, read(t, file))
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", file, diff)
		}
	}
}

func TestParseDNSPerfRefusesOtherText(t *testing.T) {
	good := string(read(t, "dnsperf.txt"))
	for name, tc := range map[string]struct{ text, says string }{
		"nothing":        {"", "not the report"},
		"cut off":        {good[:strings.Index(good, "Run time")], "not the report"},
		"twice":          {good + good, "says twice"},
		"more than sent": {strings.Replace(good, "completed:    129802", "completed:    129803", 1), "contradict"},
		"more good than all": {strings.Replace(good, "NOERROR 129802", "NOERROR 99999999999999999999999", 1),
			"contradict"},
		"all lost":    {strings.Replace(good, "lost:         0", "lost:         5", 1), "contradict"},
		"an age":      {strings.Replace(good, "1.000662", "99999999", 1), "cannot be"},
		"no number":   {strings.Replace(good, "1.000662", "1.0.0", 1), "cannot be"},
		"upside down": {strings.Replace(good, "min 0.000013", "min 7.000013", 1), "contradict"},
		"too many": {strings.Replace(good, "sent:         129802", "sent:         99999999999999999", 1),
			"cannot be"},
	} {
		_, err := DNSPerf{}.Parse(Share{}, []byte(tc.text))
		if !errors.Is(err, ErrOutput) || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: got %v, want ErrOutput with %q", name, err, tc.says)
		}
	}
}

func FuzzParseDNSPerf(f *testing.F) {
	for _, name := range []string{"dnsperf.txt", "dnsperf-lost.txt", "dnsperf-silent.txt"} {
		f.Add(read(f, name))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		outcome, err := DNSPerf{}.Parse(Share{}, text)
		if err != nil {
			if !errors.Is(err, ErrOutput) {
				t.Errorf("got %v, want ErrOutput", err)
			}
			return
		}
		w := outcome.Waits
		if outcome.Taken < 0 || w.Min < 0 || w.Min > w.Mean || w.Mean > w.Max ||
			outcome.Requests > maxQueries || outcome.Failed > maxQueries || outcome.Lost > maxQueries {
			t.Errorf("accepted %+v", outcome)
		}
	})
}

func TestDNSPerfCommand(t *testing.T) {
	share := Share{Target: netip.MustParseAddrPort("198.18.0.100:53"), Concurrency: 8, Duration: 30 * time.Second,
		Dir: t.TempDir()}
	for _, tc := range []struct {
		kind DNSPerf
		want string
	}{
		{DNSPerf{Question: "a.domain.local A", Rate: 100_000}, "-l 30 -c 8 -Q 100000"},
		{DNSPerf{Question: "a.domain.local A", Threads: 16, Timeout: 10 * time.Second}, "-l 30 -c 8 -T 16 -t 10"},
		{DNSPerf{Question: "a.domain.local A", Once: true, Timeout: time.Second}, "-n 1 -c 8 -t 1"},
	} {
		got, err := tc.kind.Prepare(share)
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(share.Dir, "dnsperf.questions")
		if text, want := strings.Join(got, " "), "dnsperf -s 198.18.0.100 -p 53 -d "+file+" "+tc.want; text != want {
			t.Errorf("got %q, want %q", text, want)
		}
		if text, err := os.ReadFile(file); err != nil || string(text) != "a.domain.local A\n" {
			t.Errorf("the questions are %q, %v", text, err)
		}
	}
}

func TestDNSPerfTellsItsVersion(t *testing.T) {
	testenv.Program(t, "dnsperf")
	version, err := probe.Version(t.Context(), DNSPerf{}.Name(), DNSPerf{}.VersionFlag())
	if err != nil || !strings.Contains(version, ".") || version == "127.0.0.1" {
		t.Errorf("got %q, %v", version, err)
	}
}

func TestWaitsAreWeighted(t *testing.T) {
	var w Waits
	w.add(0, Waits{}, 0)
	w.add(0, Waits{Min: 2, Mean: 10, Max: 20}, 3)
	w.add(3, Waits{Min: 1, Mean: 50, Max: 60}, 1)
	w.add(4, Waits{}, 0) // a client without an answer
	if want := (Waits{Min: 1, Mean: 20, Max: 60}); w != want {
		t.Errorf("got %+v, want %+v", w, want)
	}
}
