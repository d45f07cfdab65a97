// SPDX-License-Identifier: Apache-2.0

package discover

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/test/testenv"
)

// follow sends a provider's answers into a channel until the test ends.
func follow(t *testing.T, p Provider) <-chan Answer {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	answers, done := make(chan Answer, 4096), make(chan struct{})
	go func() {
		defer close(done)
		p.Watch(ctx, func(a Answer) { answers <- a })
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return answers
}

// expect waits for an answer that has the wanted words: the names of its backends, or words of its error.
func expect(t *testing.T, answers <-chan Answer, want string) {
	t.Helper()
	var got []string
	bound := time.After(testenv.WaitLimit)
	for {
		select {
		case a := <-answers:
			text := namesOf(a)
			if got = append(got, text); text == want || a.Err != nil && strings.Contains(text, want) {
				return
			}
		case <-bound:
			t.Fatalf("answers %q, none is %q", got, want)
		}
	}
}

// namesOf is an answer as a line: the names in order, or the error.
func namesOf(a Answer) string {
	if a.Err != nil {
		return a.Err.Error()
	}
	var names []string
	for _, f := range a.Found {
		names = append(names, f.Name)
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// listOf is a file with backends of these names.
func listOf(names ...string) string {
	var b strings.Builder
	b.WriteString("backends:\n")
	for i, name := range names {
		fmt.Fprintf(&b, "  - {name: %s, address: 192.0.2.%d}\n", name, i+1)
	}
	return b.String()
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestFile: a list is read when it is replaced, written in place, led elsewhere by a link, or comes
// with its folder.
func TestFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "sub", "list.yaml")
	answers := follow(t, file{path, 10})
	expect(t, answers, "no such file or directory")
	if err := os.Mkdir(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, path, listOf("a"))
	expect(t, answers, "a") // found by looking, because the folder was not there to be watched
	write(t, path, listOf("a", "b"))
	expect(t, answers, "a b")
	write(t, path+".new", listOf("c"))
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
	expect(t, answers, "c")
	for i, folder := range []string{"one", "two"} {
		if err := os.Mkdir(filepath.Join(dir, folder), 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, folder, "list"), listOf(folder))
		if err := os.Symlink(filepath.Join(dir, folder, "list"), path+".link"); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".link", path); err != nil {
			t.Fatal(err)
		}
		expect(t, answers, folder)
		write(t, filepath.Join(dir, folder, "list"), listOf(folder, fmt.Sprint("z", i)))
		expect(t, answers, fmt.Sprintf("%s z%d", folder, i))
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	expect(t, answers, "no such file or directory")
	write(t, path, "backends: []\n")
	expect(t, answers, "")
}

// TestFileHalfWritten: while a program has the list open for writing, nothing of it is taken, though its present
// content could be read.
func TestFileHalfWritten(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "list.yaml")
	write(t, path, listOf("a"))
	answers := follow(t, file{path, 10})
	expect(t, answers, "a")
	writer, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	for line := range strings.Lines(listOf("a", "b", "c", "d")) {
		if _, err := writer.WriteString(line); err != nil {
			t.Fatal(err)
		}
		select {
		case a := <-answers:
			t.Fatalf("%q was taken of a list that is open for writing", namesOf(a))
		case <-time.After(3 * fileDebounce):
		}
	}
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	expect(t, answers, "a b c d")
}

// TestFileRefused: a file that is no list is refused with its line, and the next right one is taken.
func TestFileRefused(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "list.yaml")
	write(t, path, "")
	answers := follow(t, file{path, 2})
	expect(t, answers, "the file is empty; it needs backends")
	for text, want := range map[string]string{
		"backends:\n  - {name: a, addr": "not YAML",
		"backends:\n":                   "has no value",
		"backends:\n  - {name: a, address: 192.0.2.1, weight: much}\n":               `:2: backends[0].weight: "much" is not a whole number`,
		"backends:\n  - {name: a, address: web}\n  - {name: b, adress: 192.0.2.1}\n": "and 2 more",
		listOf("a", "b", "c"): "3 are more than the 2 of the key `most`",
		"backends:\n  - {name: a, address: 192.0.2.1}\n  - {name: b, address: 192.0.2.1}\n": "is already backends[0]",
		"services: []\n": "unknown key",
		"backends:\n  - {name: a, address: 127.0.0.1}\n": "loopback",
	} {
		write(t, path, text)
		expect(t, answers, want)
	}
	write(t, path, listOf("a"))
	expect(t, answers, "a")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(path, 0o755); err != nil {
		t.Fatal(err)
	}
	expect(t, answers, "no regular file")
}

// FuzzFile: a list is taken whole, and as it is written, or not at all.
func FuzzFile(f *testing.F) {
	f.Add([]byte(listOf("a", "b")))
	f.Add([]byte("backends: []\n"))
	f.Add([]byte(
		"backends:\n  - {name: a, address: '2001:db8::1', port: 8080, weight: 3, upper: 9, lower: 3, backup: true, drain: true}\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		a := file{"list", 5}.parse(text)
		if a.Err != nil && (len(a.Found) > 0 || a.Err.Error() == "") {
			t.Errorf("%v beside %v", a.Found, a.Err)
		}
		if len(a.Found) > 5 {
			t.Errorf("%d backends", len(a.Found))
		}
		names := map[string]bool{}
		for _, b := range a.Found {
			if names[b.Name] || backendName(b.Name) != b.Name || !b.Address.IsValid() || b.Address.IsLoopback() ||
				b.Address.IsMulticast() || b.Origin != lb.Origin("") {
				t.Errorf("backend %+v", b)
			}
			names[b.Name] = true
		}
	})
}
