// SPDX-License-Identifier: Apache-2.0

package bench_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/jeoul/jeoul/internal/host/sysctl"
	"github.com/jeoul/jeoul/internal/test/testenv"
	. "github.com/jeoul/jeoul/internal/weigh/bench"
	"github.com/jeoul/jeoul/internal/weigh/lab"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

const tunedSuite = `name: tuned
lab: {clients: 1, servers: 1}
web: {file_bytes: 100}
repeats: 1
tune: [none, somaxconn, timestamps, document]
subjects:
  - name: direct
loads:
  - kind: ab
    concurrency: [4]
    requests: 100
`

func TestTuneOfASuite(t *testing.T) {
	suite, err := ParseSuite("s.yaml", []byte(tunedSuite))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, trial := range Plan(suite.Long, roomy, Absent{}) {
		got = append(got, NameOf(trial)+" "+trial.AllParams()["tuned"].(string))
	}
	want := []string{
		"direct, tuned none, ab, concurrency 4, repeat 1 none",
		"direct, tuned somaxconn, ab, concurrency 4, repeat 1 somaxconn",
		"direct, tuned timestamps, ab, concurrency 4, repeat 1 timestamps",
		"direct, tuned document, ab, concurrency 4, repeat 1 document",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	each, err := ParseSuite("s.yaml", []byte(strings.Replace(tunedSuite, "timestamps, document", "each", 1)))
	if err != nil {
		t.Fatal(err)
	}
	items := each.Long.Tune
	if len(items) < 10 || slices.Contains(items, "each") || !slices.Contains(items, "local-ports") ||
		slices.Contains(items, "ring-rx") ||
		slices.Contains(items, "tcp-mem") || slices.Contains(items, "ipv6") {
		t.Errorf("each is %v", items)
	}

	for list, says := range map[string]string{
		"[none, somaxcon]":   `s.yaml:5: tune[1]: "somaxcon" is nothing that hosts of a laboratory can be tuned by; use none, all, document, `,
		"[none, ring-rx]":    `"ring-rx" is nothing`,
		"[somaxconn]":        "s.yaml:5: tune: none is missing",
		"[none, none]":       "none stands in the list twice",
		"[none, each, each]": "each",
	} {
		_, err := ParseSuite("s.yaml",
			[]byte(strings.Replace(tunedSuite, "[none, somaxconn, timestamps, document]", list, 1)))
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", list, err)
		}
	}
}

func TestTuneModes(t *testing.T) {
	for subject, want := range map[string]string{
		"jeoul-l2dsr-xdp": "l2dsr", "jeoul-fullnat-tc": "fullnat", "haproxy-http": "proxy", "nginx-stream": "proxy",
		"direct": "nat", "iptables-nth": "nat",
	} {
		if got := TuneMode(subject); got != want {
			t.Errorf("%s: %s, not %s", subject, got, want)
		}
	}
}

// TestTunedRun runs the suite, and reads the hosts' settings at the end of every trial.
func TestTunedRun(t *testing.T) {
	t.Parallel()
	begin(t)
	for _, program := range []string{"nginx", "ab"} {
		testenv.Program(t, program)
	}
	suite, err := ParseSuite("s.yaml", []byte(tunedSuite))
	if err != nil {
		t.Fatal(err)
	}
	r := patientRunner(t, Options{Suite: suite, Dir: filepath.Join(t.TempDir(), "made"), Progress: t.Output()})
	if r.Lab, err = lab.New(t.Context(), r.Form.Spec()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Lab.Close(); err != nil {
			t.Error(err)
		}
	})
	read := func(name string) (value string) {
		t.Helper()
		err := r.Lab.Servers[0].Do(func() (err error) { value, err = sysctl.Read(name); return err })
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
	kernels := read("net.core.somaxconn")
	if notes := strings.Join(r.CheckHosts(t.Context()), "\n"); !strings.Contains(notes, "on web01: somaxconn "+kernels+
		" (wanted: 65535)") {
		t.Errorf("the check says %q", notes)
	}
	trials := Plan(r.Form, roomy, Absent{})
	for i, want := range []struct{ somaxconn, timeout, says string }{
		{kernels, "60", ""},
		{"65535", "60", "every web: set: somaxconn from " + kernels + " to 65535"},
		{kernels, "60", "tuned by timestamps: nothing to change"},
		{"500000", "120", "fin-timeout from 60 to 120"},
		{kernels, "60", ""},
	} {
		trial := trials[i%len(trials)]
		if err := r.Tune(t.Context(), trial); err != nil {
			t.Fatal(err)
		}
		if now := read("net.core.somaxconn"); now != want.somaxconn {
			t.Errorf("tuned by %s: somaxconn is %s, not %s", trial.Tune, now, want.somaxconn)
		}
		if now := read("net.ipv4.tcp_fin_timeout"); now != want.timeout {
			t.Errorf("tuned by %s: tcp_fin_timeout is %s, not %s", trial.Tune, now, want.timeout)
		}
		if now := read("net.ipv6.conf.all.disable_ipv6"); now != "0" {
			t.Errorf("tuned by %s: IPv6 is off", trial.Tune)
		}
		got := []results.Trial{Blank(trial)}
		r.MarkTuned(got)
		if notes := strings.Join(got[0].Notes, "\n"); !strings.Contains(notes, want.says) {
			t.Errorf("tuned by %s: the notes are %q", trial.Tune, notes)
		}
		if changed := got[0].Metrics[results.SettingsChanged] > 0; changed != (want.somaxconn != kernels) {
			t.Errorf("tuned by %s: %v", trial.Tune, got[0].Metrics)
		}
	}
}
