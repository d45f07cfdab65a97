// SPDX-License-Identifier: Apache-2.0

package sources

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/jeoul/jeoul/internal/balancer/config"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/text/yamlfile"
)

// amend asks for a difference of the source kube: these services, and that these go.
func amend(t *testing.T, s *Sources, services []string, remove ...string) (Change, error) {
	t.Helper()
	text := ""
	for _, one := range services {
		text += "  - " + strings.ReplaceAll(strings.TrimSuffix(one, "\n"), "\n", "\n    ") + "\n"
	}
	if text != "" {
		text = "services:\n" + text
	}
	if len(remove) > 0 {
		text += fmt.Sprintf("remove: [%s]\n", strings.Join(remove, ", "))
	}
	return s.Amend(t.Context(), Difference{Source: "kube", Text: []byte(text), By: "test"})
}

// TestAmend: each difference is in force when it returns, and is read again by the next process, also where another
// change comes between.
func TestAmend(t *testing.T) {
	dir := t.TempDir()
	s, p := open(t, dir)
	one := func(all ...string) []string { return all }
	for i, step := range []struct {
		services []string
		remove   []string
		want     string
	}{
		{one(service("mail", 101, 1)), nil, "kube:mail b1*1"},
		{one(service("shop", 102, 1), service("a", 103, 2)), nil, "kube:a b2*1, kube:mail b1*1, kube:shop b1*1"},
		{one(service("mail", 101, 5)), one("a"), "kube:mail b5*1, kube:shop b1*1"},
		{one(service("b", 103, 3)), nil, "kube:b b3*1, kube:mail b5*1, kube:shop b1*1"},
		{nil, one("b", "mail"), "kube:shop b1*1"},
		{one(service("mail", 104, 4)), one("shop"), "kube:mail b4*1"},
		{nil, one("mail"), ""},
		{one(service("mail", 104, 4)), nil, "kube:mail b4*1"},
	} {
		if done, err := amend(t, s, step.services, step.remove...); err != nil || !done.Changed ||
			done.Generation != uint64(i+1) {
			t.Fatalf("step %d: %+v, %v", i, done, err)
		}
		want := strings.TrimSuffix("file:web web01*1, "+step.want, ", ")
		again, _ := open(t, dir)
		if got, next := names(p.cfg), names(again.Config()); got != want || next != want {
			t.Fatalf("step %d: in force: %s\nafter a restart: %s\nwant: %s", i, got, next, want)
		}
		if diff := cmp.Diff(s.Fragments(), again.Fragments()); diff != "" {
			t.Fatalf("step %d: fragments (-now +after a restart):\n%s", i, diff)
		}
	}
	if done, err := amend(t, s, one(service("mail", 104, 4))); err != nil || done.Changed || done.Generation != 8 {
		t.Errorf("what it has: %+v, %v", done, err)
	}
	if _, err := ask(t, s, Put, Place{Source: "kube", Service: "c"}, service("c", 105, 7)); err != nil {
		t.Fatal(err)
	}
	if _, err := amend(t, s, one(service("d", 106, 8))); err != nil {
		t.Fatal(err)
	}
	again, _ := open(t, dir)
	if want := "file:web web01*1, kube:mail b4*1, kube:c b7*1, kube:d b8*1"; names(again.Config()) != want &&
		names(again.Config()) != names(s.Config()) {
		t.Errorf("after a restart: %s", names(again.Config()))
	}
}

// TestAmendAmongOthers makes differences, whole changes and reloads in random order: after each, the source's text is
// the one of its services in force, and the next process reads the same.
func TestAmendAmongOthers(t *testing.T) {
	random := rand.New(rand.NewPCG(46, 5))
	dir := t.TempDir()
	s, p := open(t, dir)
	there := map[string]bool{}
	for step := range 150 {
		var services, removed []string
		for n := range 1 + random.IntN(3) {
			name := string(rune('a' + 7*n + random.IntN(7)))
			if there[name] && random.IntN(3) == 0 {
				removed, there[name] = append(removed, name), false
				continue
			}
			services, there[name] = append(services, service(name, 110+int(name[0]-'a'), 1+random.IntN(9))), true
		}
		_, err := amend(t, s, services, removed...)
		switch random.IntN(8) {
		case 0:
			_, err = ask(t, s, Put, Place{Source: "other", Service: "z"}, service("z", 109, 1+random.IntN(9)))
		case 1:
			err = errors.Join(err, s.Reload(t.Context()))
		}
		if err != nil {
			t.Fatalf("step %d: %v", step, err)
		}
		for _, f := range s.Fragments() {
			want, err := config.WriteFragment(p.cfg, f.Name)
			if err != nil || string(f.Text) != string(want) {
				t.Fatalf("step %d: the text of %s is\n%s\nand of its services in force (%v)\n%s", step, f.Name, f.Text, err,
					want)
			}
		}
		again, _ := open(t, dir)
		if diff := cmp.Diff(s.Fragments(), again.Fragments()); diff != "" {
			t.Fatalf("step %d: fragments (-now +after a restart):\n%s", step, diff)
		}
	}
}

// TestAmendRefused: a difference that the configuration, the data plane or the caller refuses leaves everything as it
// was, also for the next process.
func TestAmendRefused(t *testing.T) {
	dir := t.TempDir()
	s, p := open(t, dir)
	for _, vip := range []int{101, 102} {
		if _, err := amend(t, s, []string{service("shop", vip, 1)}); err != nil {
			t.Fatal(err)
		}
	}
	before, stored := s.Config(), names(s.Config())
	unchanged := func(what string) {
		t.Helper()
		again, _ := open(t, dir)
		if s.Config() != before || names(p.cfg) != stored || names(again.Config()) != stored {
			t.Errorf("%s: in force: %s; after a restart: %s", what, names(p.cfg), names(again.Config()))
		}
	}
	var problems yamlfile.Problems
	_, err := amend(t, s, []string{service("new", 109, 1), service("other", 100, 1)})
	if !errors.As(err, &problems) || len(problems) != 1 || problems[0].Field != "services[1].vip" {
		t.Errorf("a VIP that is taken: %v", err)
	}
	unchanged("a bad one")
	p.refuses = errors.New("no room")
	if _, err := amend(t, s, []string{service("new", 109, 1)}); !errors.Is(err, p.refuses) {
		t.Errorf("a data plane that refuses: %v", err)
	}
	p.refuses = nil
	unchanged("one that the data plane refuses")
	mismatch := Difference{Source: "kube", Text: []byte("remove: [shop]"), If: func(at Part) error {
		if at.Tag != TagOf(1) {
			return ErrChanged
		}
		return nil
	}}
	if _, err := s.Amend(t.Context(), mismatch); !errors.Is(err, ErrChanged) {
		t.Errorf("another generation: %v", err)
	}
	dry := Difference{Source: "kube", Text: []byte("remove: [shop]"), Dry: true}
	if done, err := s.Amend(t.Context(), dry); err != nil || !strings.Contains(done.Difference, "-  - name: shop") {
		t.Errorf("a dry run: %q, %v", done.Difference, err)
	}
	unchanged("a dry run")
}

// TestAmendRefusedAfterMerge: a problem that is found in the merged configuration has its field in the difference,
// where the service is in it, and names the service otherwise.
func TestAmendRefusedAfterMerge(t *testing.T) {
	s, p := open(t, t.TempDir())
	all := []string{service("a", 101, 1), service("b", 102, 1), service("c", 103, 1), service("d", 104, 1)}
	if _, err := amend(t, s, all); err != nil {
		t.Fatal(err)
	}
	p.check = func(c *config.Config) error {
		d := slices.IndexFunc(c.Services, func(s lb.Service) bool { return s.Name == "d" })
		return yamlfile.Problems{c.At(config.ServiceField(d, "vip"), "no")}
	}
	for _, test := range []struct {
		services       []string
		field, message string
	}{
		{[]string{service("a", 101, 2), service("d", 104, 2)}, "services[1].vip", "no"},
		{[]string{all[0], service("d", 104, 2)}, "services[1].vip", "no"},
		{[]string{service("a", 101, 2)}, "", "service d: no"},
	} {
		var problems yamlfile.Problems
		_, err := amend(t, s, test.services)
		if !errors.As(err, &problems) || len(problems) != 1 || problems[0].Field != test.field ||
			problems[0].Message != test.message {
			t.Errorf("want %q: %q, got %v", test.field, test.message, err)
		}
	}
}

// TestTornJournal: a difference that did not come to be in force, and one that was not written to its end, are none;
// those that follow are.
func TestTornJournal(t *testing.T) {
	dir := t.TempDir()
	s, _ := open(t, dir)
	for _, vip := range []int{101, 102} {
		if _, err := amend(t, s, []string{service("shop", vip, 1)}); err != nil {
			t.Fatal(err)
		}
	}
	s.store.release()
	path := filepath.Join(dir, "sources", "kube"+journaled)
	line, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, tail := range map[string][]byte{"half a line": line[:len(line)/2], "a line of before": line,
		"a line that never counted": append([]byte{entryWritten}, line[1:]...)} {
		if err := os.WriteFile(path, append(bytes.Clone(line), tail...), 0o600); err != nil {
			t.Fatal(err)
		}
		next, _ := open(t, dir)
		if f := next.Fragments()[0]; f.Generation != 2 || !strings.Contains(string(f.Text), "vip: 192.0.2.102") {
			t.Errorf("%s: generation %d of\n%s", name, f.Generation, f.Text)
		}
		if _, err := amend(t, next, []string{service("late", 103, 1)}); err != nil {
			t.Fatal(err)
		}
		next.store.release()
		last, _ := open(t, dir)
		if got, want := names(last.Config()), names(next.Config()); got != want {
			t.Errorf("%s: after a restart: %s, want %s", name, got, want)
		}
		last.store.release()
	}
}

// FuzzBlocks: the text of a source that the configuration takes comes apart into its services, and together again.
func FuzzBlocks(f *testing.F) {
	written := "services:\n  - " + strings.ReplaceAll(service("web", 101, 1), "\n", "\n    ")
	for _, seed := range []string{written, strings.ReplaceAll(written, "name: web", `name: "web"`),
		strings.ReplaceAll(written, "name: web", "name: &a web"), "services: []", "", "services:\n  - name: web\n", " # none\n"} {
		f.Add([]byte(seed))
	}
	whole := config.Source{Name: "f", Data: []byte(file)}
	f.Fuzz(func(t *testing.T, text []byte) {
		cfg, err := config.Merge(whole, config.Source{Name: API, Data: text})
		if err != nil {
			return
		}
		want := cfg.ServicesOf(API)
		blocks, err := blocksOf(text)
		if err != nil && len(want) > 0 {
			t.Fatal(err)
		}
		if len(blocks) != len(want) {
			t.Fatalf("%d services are taken apart into %d", len(want), len(blocks))
		}
		for i, b := range blocks {
			if b.name != want[i].Name {
				t.Errorf("service %d is %q, want %q", i, b.name, want[i].Name)
			}
		}
		if len(blocks) == 0 {
			return
		}
		again, err := config.Merge(whole, config.Source{Name: API,
			Data: append([]byte(config.FragmentHead), join(blocks)...)})
		if err != nil || !cmp.Equal(again.ServicesOf(API), want, cmpopts.EquateComparable(netip.Addr{})) {
			t.Errorf("together again they are others: %v", err)
		}
	})
}

// FuzzJournal: whatever a line of a journal has, reading it ends, and a line that was written and accepted has the
// content that was written.
func FuzzJournal(f *testing.F) {
	f.Add("kube", []byte("  - name: a\n"), []byte("= 00 {}"))
	f.Fuzz(func(t *testing.T, by string, text, line []byte) {
		if e, ok := decodeEntry(line); ok {
			_, _ = Fragment{}.with([]entry{e})
		}
		if !utf8.ValidString(by) || !utf8.Valid(text) {
			return // texts of a source are UTF-8
		}
		written, err := encodeEntry(amended{made: Fragment{Generation: 7, By: by}, put: []block{{"a", text}},
			removed: []string{"b"}})
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := decodeEntry(written); ok {
			t.Error("a difference counts before it is in force")
		}
		written[0] = entryAccepted
		e, ok := decodeEntry(written)
		if !ok || e.Generation != 7 || e.By != by || len(e.Put) != 1 || e.Put[0].Text != string(text) ||
			len(e.Removed) != 1 {
			t.Errorf("written %q, read %+v, %v", written, e, ok)
		}
		if _, torn := decodeEntry(written[:len(written)-2]); torn {
			t.Error("a torn line counts")
		}
	})
}
