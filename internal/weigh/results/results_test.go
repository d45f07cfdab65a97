// SPDX-License-Identifier: Apache-2.0

package results

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func sample() *Run {
	return &Run{
		Schema: Schema, Suite: "l2dsr-bmt", Started: time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC),
		Environment: Environment{Kernel: "6.18", Cores: 2, Versions: map[string]string{"nginx": "1.22.1"}},
		Trials: []Trial{
			{Subject: "direct", Load: "ab", Params: map[string]any{"concurrency": 500.0}, Repeat: 1, Valid: true,
				Saturated: SaturatedNone, Notes: []string{}, Metrics: map[string]float64{RequestsPerSecond: 12.5},
				Backends: []Backend{{Name: "web01", Address: "198.18.2.1", Connections: 7}}},
			{Subject: "haproxy-http", Load: "ab", Params: map[string]any{"threads": 4.0}, Repeat: 1,
				Saturated: SaturatedUnknown, Notes: []string{"needs 4 cores"}},
		},
		Published: &Published{Columns: []string{"a", "b"}, Rows: [][]string{{"1", "2"}}},
	}
}

func TestSaveThenLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "results.json")
	want := sample()
	if err := want.Save(path); err != nil {
		t.Fatal(err)
	}
	got, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("a run changed on its way through the file (-want +got):\n%s", diff)
	}
}

func TestSaveKeepsTheOldFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "results.json")
	if err := sample().Save(path); err != nil {
		t.Fatal(err)
	}
	before, _ := os.ReadFile(path)
	broken := sample()
	broken.Trials[0].Metrics[Failed] = math.NaN()
	if err := broken.Save(path); !errors.Is(err, ErrInvalid) {
		t.Fatalf("Save of a run with NaN: got %v, want ErrInvalid", err)
	}
	after, _ := os.ReadFile(path)
	if diff := cmp.Diff(string(before), string(after)); diff != "" {
		t.Errorf("the old file changed:\n%s", diff)
	}
	entries, _ := os.ReadDir(dir)
	if len(entries) != 1 {
		t.Errorf("%d files left in the directory, want the results file alone", len(entries))
	}
	if err := sample().Save(filepath.Join(dir, "missing", "results.json")); err == nil {
		t.Error("Save into a missing directory: no error")
	}
}

func TestLoadErrors(t *testing.T) {
	dir := t.TempDir()
	good := filepath.Join(dir, "good.json")
	if err := sample().Save(good); err != nil {
		t.Fatal(err)
	}
	data, _ := os.ReadFile(good)
	text := string(data)
	for name, tc := range map[string]struct {
		text string
		want error
		says string
	}{
		"truncated":    {text[:len(text)/2], ErrTruncated, ":30:"},
		"empty":        {"", ErrTruncated, ":1:1:"},
		"no schema":    {"{}", ErrSchema, "schema"},
		"newer schema": {strings.Replace(text, `"schema": 1`, `"schema": 99`, 1), ErrSchema, "schema 99"},
		"not JSON":     {"{\n  nonsense\n}", nil, ":2:3: not JSON"},
		"wrong type": {strings.Replace(text, `"repeat": 1`, `"repeat": "one"`, 1), nil,
			"trials.repeat cannot hold a JSON string"},
		"two values": {text + "{}", nil, "more text"},
		"repeat 0": {strings.Replace(text, `"repeat": 1`, `"repeat": 0`, 1), ErrInvalid,
			"trials[0] (direct, ab, repeat 0)"},
		"unexplained":   {strings.Replace(text, `"needs 4 cores"`, `" "`, 1), ErrInvalid, "no note says why"},
		"unknown part":  {strings.Replace(text, `"none"`, `"moon"`, 1), ErrInvalid, "moon"},
		"metric's name": {strings.Replace(text, RequestsPerSecond, "Requests/s", 1), ErrInvalid, "Requests/s"},
		"not a number":  {strings.Replace(text, `"repeat": 1`, `"repeat": NaN`, 1), nil, `not JSON, in "repeat"`},
		"no finite number": {fmt.Sprintf(`{"schema":1,"suite":"s","started":"2030-01-02T03:04:05Z","trials":[`+
			`{"subject":"a","load":"b","repeat":1,"valid":true,"saturated":"none","metrics":{"%s":1e999}}]}`,
			RequestsPerSecond), nil, "metrics"},
		"published rows": {strings.Replace(text, `"b"`, `"b", "c"`, 1), ErrInvalid, "published.rows[0]"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(dir, "bad.json")
			if err := os.WriteFile(path, []byte(tc.text), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := Load(path)
			if err == nil {
				t.Fatal("no error")
			}
			if tc.want != nil && !errors.Is(err, tc.want) {
				t.Errorf("got %v, want %v", err, tc.want)
			}
			for _, part := range []string{path, tc.says} {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q does not say %q", err, part)
				}
			}
		})
	}
	if _, err := Load(filepath.Join(dir, "none.json")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file: got %v, want os.ErrNotExist", err)
	}
}

// FuzzLoad checks that everything that parse accepts can be written and read again.
func FuzzLoad(f *testing.F) {
	f.Add([]byte(`{"schema":1,"suite":"s","started":"2030-01-02T03:04:05Z","trials":[]}`))
	f.Add([]byte(
		`{"schema":1,"suite":"s","started":"2030-01-02T03:04:05Z","trials":[{"subject":"a","load":"b","repeat":1,"saturated":"none","notes":["x"]}]}`))
	f.Add([]byte(`{"schema":2}`))
	f.Add([]byte(`{"schema":1,"suite":"s","started":"2030-01-02T03:04:05Z","summarised":true,"texts":["x"],"points":[` +
		`{"subject":"a","load":"b","repeats":[1,2],"valid":[false],"saturated":["none"],"notes":[[0]]}]}`))
	f.Add([]byte("{\n"))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, data []byte) {
		run, err := parse(data)
		if err != nil {
			return
		}
		path := filepath.Join(dir, "results.json")
		if err := run.Save(path); err != nil {
			t.Fatalf("accepted, but cannot be saved: %v", err)
		}
		if _, err := Load(path); err != nil {
			t.Fatalf("accepted and saved, but cannot be loaded: %v", err)
		}
	})
}
