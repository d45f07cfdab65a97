// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/cmd/jeoul/weighcmd"
)

const fixture = "../../internal/weigh/report/testdata/l2dsr-bmt.json"

// TestReport writes each form, selected by the file's ending or by a flag.
func TestReport(t *testing.T) {
	tests := []struct {
		name string
		args []string
		file string
		want string
	}{
		{"html", []string{"--to", "r.html"}, "r.html", "<!DOCTYPE html>"},
		{"markdown", []string{"--to", "r.md"}, "r.md", "# L2DSR"},
		{"text", []string{"--to", "r.txt"}, "r.txt", "\nL2DSR"},
		{"flag", []string{"--to", "r.out", "-o", "html"}, "r.out", "<!DOCTYPE html>"},
		{"chart", []string{"--chart", "r.svg"}, "r.svg", "<svg "},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			args := append([]string{"report", absolute(t, fixture)}, test.args...)
			t.Chdir(dir)
			var stdout, stderr bytes.Buffer
			if code := execute(context.Background(), args, &stdout, &stderr); code != exitOK {
				t.Fatalf("exit status %d: %s", code, &stderr)
			}
			data, err := os.ReadFile(test.file)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.HasPrefix(data, []byte(test.want)) {
				t.Errorf("%s begins with %.60q, want %q", test.file, data, test.want)
			}
		})
	}
}

// TestReportCompare compares two committed runs, as a page does.
func TestReportCompare(t *testing.T) {
	const before = "../../docs/results/instructions-1cb2b35.json.gz"
	const after = "../../docs/results/instructions-b3af6c6.json.gz"
	compared, err := asJeoul(t, "report", "compare", before, after).Output()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(compared), "jeoul-l2dsr-tc") {
		t.Errorf("no subject is compared:\n%s", compared)
	}
}

// TestReportErrors checks that nothing is written after any error, and that existing files stay.
func TestReportErrors(t *testing.T) {
	whole, err := os.ReadFile(fixture)
	if err != nil {
		t.Fatal(err)
	}
	const noTrials = `{"schema":1,"suite":"s","started":"2025-01-01T00:00:00Z","environment":{},"trials":[]}`
	tests := []struct {
		name, input string
		args        []string
		want        string
	}{
		{"truncated", string(whole[:len(whole)/2]), []string{"--to", "out.html"}, "ends in the middle"},
		{"not JSON", "requests/s: 12", []string{"--to", "out.html"}, "not JSON"},
		{"foreign JSON", `{"name":"npm"}`, []string{"--to", "out.html"}, "schema"},
		{"no such file", "", []string{"--to", "out.html"}, "no such file"},
		{"unknown ending", string(whole), []string{"--to", "out.pdf"}, "add -o text"},
		{"unknown form", string(whole), []string{"-o", "pdf"}, "--output"},
		{"nothing to draw", noTrials, []string{"--chart", "out.html"}, "no valid trial"},
		{"no such directory", string(whole), []string{"--to", "none/out.html"}, "none"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			if test.input != "" {
				write(t, "results.json", test.input)
			}
			write(t, "out.html", "kept")
			var stdout, stderr bytes.Buffer
			code := execute(context.Background(), append([]string{"report", "results.json"}, test.args...),
				&stdout, &stderr)
			if code == exitOK || !strings.Contains(stderr.String(), test.want) {
				t.Errorf("exit status %d, error %q; want a failure that says %q", code, &stderr, test.want)
			}
			if kept, err := os.ReadFile("out.html"); err != nil || string(kept) != "kept" {
				t.Errorf("the old report is now %q, %v", kept, err)
			}
			if files, _ := filepath.Glob("*out*"); len(files) != 1 {
				t.Errorf("files left: %q", files)
			}
		})
	}
}

// TestReportToPipe checks that a pipe is written to, and not replaced.
func TestReportToPipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	// Open for both directions, so that neither end waits for the other.
	pipe, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer pipe.Close()
	if err := weighcmd.Replace(path, []byte("report")); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len("report"))
	if _, err := io.ReadFull(pipe, got); err != nil || string(got) != "report" {
		t.Errorf("the pipe has %q, %v", got, err)
	}
}

func absolute(t *testing.T, path string) string {
	t.Helper()
	abs, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return abs
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestReportSummarises: a summary replaces its file, and reports of both are equal.
func TestReportSummarises(t *testing.T) {
	t.Parallel()
	const file = "../../docs/results/instructions.json.gz"
	summary, first, second := filepath.Join(t.TempDir(), "summary.json"), filepath.Join(t.TempDir(), "a.md"),
		filepath.Join(t.TempDir(), "b.md")
	for _, words := range [][]string{{"report", "summarise", file, "--to", summary}, {"report", summary, "--to", first},
		{"report", file, "--to", second}} {
		var stdout, stderr bytes.Buffer
		if code := execute(t.Context(), words, &stdout, &stderr); code != exitOK {
			t.Fatalf("%v: status %d: %s", words, code, &stderr)
		}
	}
	if a, b := read(t, first), read(t, second); a != b || a == "" {
		t.Error("the summary's report differs")
	}
}
