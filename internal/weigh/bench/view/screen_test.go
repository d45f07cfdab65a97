// SPDX-License-Identifier: Apache-2.0

package view

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// terminal returns the lines that control sequences leave on a screen, as on a terminal.
func terminal(t *testing.T, written string) []string {
	t.Helper()
	lines, row := []string{""}, 0
	for len(written) > 0 {
		switch {
		case strings.HasPrefix(written, clearLine):
			lines[row], written = "", written[len(clearLine):]
		case strings.HasPrefix(written, lineUp):
			if row--; row < 0 {
				t.Fatal("above the first line")
			}
			written = written[len(lineUp):]
		case written[0] == '\n':
			if row++; row == len(lines) {
				lines = append(lines, "")
			}
			written = written[1:]
		default:
			end := strings.IndexAny(written, "\n\r\x1b")
			if end < 0 {
				end = len(written)
			}
			lines[row] += written[:end]
			written = written[end:]
		}
	}
	return lines
}

func TestScreen(t *testing.T) {
	var written strings.Builder
	s := New(&written, func() int { return 12 })
	s.Log("first")
	s.Status("a", "b")
	s.Log("second")
	s.Status("c", "a long line that is cut", "d")
	s.Status("e")
	s.Log("third")
	if diff := cmp.Diff([]string{"first", "second", "third", "e", ""}, terminal(t, written.String())); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	s.Status("c", "a long line that is cut")
	if diff := cmp.Diff([]string{"first", "second", "third", "c", "a long lin…"},
		terminal(t, written.String())); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	s.Status()
	if got := terminal(t, written.String()); strings.Join(got, "|") != "first|second|third||" {
		t.Errorf("at the end %q", got)
	}
}

func TestBarAndSI(t *testing.T) {
	for _, tc := range []struct{ got, want string }{
		{Bar(0, 10, 4), "[░░░░]"}, {Bar(5, 10, 4), "[██░░]"}, {Bar(10, 10, 4), "[████]"}, {Bar(3, 0, 4), "[░░░░]"},
		{Bar(99, 10, 4), "[████]"},
		{SI(7), "7 "}, {SI(45_600), "45.6 k"}, {SI(1_234_000), "1.23 M"}, {SI(2.5e9), "2.5 G"},
	} {
		if tc.got != tc.want {
			t.Errorf("got %q, want %q", tc.got, tc.want)
		}
	}
}
