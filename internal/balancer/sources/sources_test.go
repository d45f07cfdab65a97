// SPDX-License-Identifier: Apache-2.0

package sources

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/jeoul/jeoul/internal/balancer/config"
)

const file = `interface: eth0
services:
  - name: web
    vip: 192.0.2.100
    port: 80
    backends:
      - {name: web01, address: 192.0.2.1}
`

// plane stands for the balancer that configurations are put in force in.
type plane struct {
	cfg     *config.Config
	refuses error
	// check, if set, refuses a merged configuration.
	check func(*config.Config) error
}

func (p *plane) apply(_ context.Context, load func() (*config.Config, error)) error {
	cfg, err := load()
	if err == nil {
		err = p.refuses
	}
	if err == nil && p.check != nil {
		err = p.check(cfg)
	}
	if err == nil {
		p.cfg = cfg
	}
	return err
}

// open returns the sources of a directory, which has the file already where it is not new.
func open(t *testing.T, dir string) (*Sources, *plane) {
	t.Helper()
	path := filepath.Join(dir, "jeoul.yaml")
	if _, err := os.Stat(path); err != nil {
		write(t, dir, file)
	}
	s, err := Open(path, filepath.Join(dir, "sources"))
	if err != nil {
		t.Fatal(err)
	}
	p := &plane{cfg: s.Config()}
	s.Use(p.apply, p.apply)
	return s, p
}

func write(t *testing.T, dir, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, "jeoul.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// service is the text of one, with backends of these last octets.
func service(name string, vip int, backends ...int) string {
	text := fmt.Sprintf("name: %s\nvip: 192.0.2.%d\nport: 80\nbackends:\n", name, vip)
	for _, b := range backends {
		text += fmt.Sprintf("  - {name: b%d, address: 192.0.2.%d}\n", b, b)
	}
	return text
}

func ask(t *testing.T, s *Sources, verb Verb, at Place, text string) (Change, error) {
	t.Helper()
	r := Request{At: at, Verb: verb, By: "test"}
	if text != "" {
		value, err := ReadYAML([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		r.Value = value
	}
	return s.Ask(t.Context(), r)
}

// names are the services in force, with their backends.
func names(cfg *config.Config) string {
	var all []string
	for i, s := range cfg.Services {
		text := cfg.Owner(i) + ":" + s.Name
		for _, b := range s.Backends {
			text += fmt.Sprintf(" %s*%d", b.Name, b.Weight)
		}
		all = append(all, text)
	}
	return strings.Join(all, ", ")
}

// TestAsk: each change is in force when it returns, and is read again by the next process.
func TestAsk(t *testing.T) {
	dir := t.TempDir()
	s, p := open(t, dir)
	steps := []struct {
		verb Verb
		at   Place
		text string
		want string
		err  error
	}{
		{Put, Place{Service: "shop"}, service("shop", 101, 1, 2), "api:shop b1*1 b2*1", nil},
		{Put, Place{Service: "shop", Backend: "b3"}, "address: 192.0.2.3", "api:shop b1*1 b2*1 b3*1", nil},
		{Patch, Place{Service: "shop", Backend: "b3"}, "weight: 7", "api:shop b1*1 b2*1 b3*7", nil},
		{Patch, Place{Service: "shop", Backend: "b3"}, `{"weight": null}`, "api:shop b1*1 b2*1 b3*1", nil},
		{Put, Place{Service: "shop", Backend: "b3"}, "name: other\naddress: 192.0.2.3", "api:shop b1*1 b2*1 b3*1",
			ErrMalformed},
		{Delete, Place{Service: "shop", Backend: "b1"}, "", "api:shop b2*1 b3*1", nil},
		{Delete, Place{Service: "shop", Backend: "b1"}, "", "api:shop b2*1 b3*1", ErrNotFound},
		{Put, Place{Service: "none", Backend: "b1"}, "address: 192.0.2.3", "api:shop b2*1 b3*1", ErrNotFound},
		{Put, Place{Source: "kube"}, "services:\n  - " + strings.ReplaceAll(service("mail", 102, 9), "\n", "\n    "),
			"api:shop b2*1 b3*1, kube:mail b9*1", nil},
		{Put, Place{Source: "api", Service: "mail"}, service("mail", 103, 9), "api:shop b2*1 b3*1, kube:mail b9*1",
			ErrOwned},
		{Delete, Place{Service: "web"}, "", "api:shop b2*1 b3*1, kube:mail b9*1", ErrOwned},
		{Put, Place{Source: "api", Service: "web"}, service("web", 103, 9), "api:shop b2*1 b3*1, kube:mail b9*1",
			ErrOwned},
		{Patch, Place{Service: "shop"}, "{scheduler: rr, backends: [{name: b5, address: 192.0.2.5}]}",
			"api:shop b5*1, kube:mail b9*1", nil},
		{Delete, Place{Source: "kube"}, "", "api:shop b5*1", nil},
		{Put, Place{Source: "kube"}, "services: []", "api:shop b5*1", nil},
		{Delete, Place{Service: "shop"}, "", "", nil},
	}
	for i, step := range steps {
		before := s.Config()
		_, err := ask(t, s, step.verb, step.at, step.text)
		if !errors.Is(err, step.err) || step.err == nil && err != nil {
			t.Fatalf("step %d: %v, want %v", i, err, step.err)
		}
		if err != nil && s.Config() != before {
			t.Errorf("step %d: refused, and something changed", i)
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
}

// TestRefused: a change that the data plane or the disk refuses leaves everything as it was.
func TestRefused(t *testing.T) {
	dir := t.TempDir()
	s, p := open(t, dir)
	if _, err := ask(t, s, Put, Place{Service: "shop"}, service("shop", 101, 1)); err != nil {
		t.Fatal(err)
	}
	before, text := p.cfg, read(t, dir)
	check := func(what string, err, want error) {
		t.Helper()
		if !errors.Is(err, want) || p.cfg != before || s.Config() != before || read(t, dir) != text {
			t.Errorf("%s: error %v; in force: %s; stored:\n%s", what, err, names(p.cfg), read(t, dir))
		}
		if left, _ := filepath.Glob(filepath.Join(dir, "sources", "*"+pending)); len(left) > 0 {
			t.Errorf("%s leaves %v", what, left)
		}
	}
	p.refuses = errors.New("no room")
	_, err := ask(t, s, Put, Place{Service: "shop"}, service("shop", 101, 1, 2))
	check("the data plane", err, p.refuses)
	p.refuses = nil
	// A directory of that name cannot be written: as a full disk, which a test does not have.
	if err := os.Mkdir(filepath.Join(dir, "sources", "api.yaml.new"), 0o700); err != nil {
		t.Fatal(err)
	}
	_, err = ask(t, s, Put, Place{Service: "shop"}, service("shop", 101, 1, 2))
	if err := os.Remove(filepath.Join(dir, "sources", "api.yaml.new")); err != nil {
		t.Fatal(err)
	}
	check("the disk", err, ErrNotStored)
}

func read(t *testing.T, dir string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "sources", "api.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestDry: the difference is returned, and nothing changes.
func TestDry(t *testing.T) {
	s, _ := open(t, t.TempDir())
	value, err := ReadYAML([]byte(service("shop", 101, 1)))
	if err != nil {
		t.Fatal(err)
	}
	before := s.Config()
	change, err := s.Ask(t.Context(), Request{At: Place{Service: "shop"}, Value: value, Dry: true})
	if err != nil || !change.Changed || change.Generation != 1 ||
		!strings.Contains(change.Difference, "+  - name: shop\n") {
		t.Errorf("%+v, %v", change, err)
	}
	if s.Config() != before || len(s.Fragments()) > 0 {
		t.Error("a dry run has changed something")
	}
}

// TestUnchanged: a source's present text is no change, and makes no new generation.
func TestUnchanged(t *testing.T) {
	s, p := open(t, t.TempDir())
	for n := range 2 {
		change, err := ask(t, s, Put, Place{Service: "shop"}, service("shop", 101, 1))
		if err != nil || change.Generation != 1 || change.Changed != (n == 0) {
			t.Errorf("%+v, %v", change, err)
		}
		p.refuses = errors.New("asked in vain")
	}
}

// TestReload: the file takes effect beside the API's configuration; where they are at odds, both are named, also by a
// start.
func TestReload(t *testing.T) {
	dir := t.TempDir()
	s, p := open(t, dir)
	if _, err := ask(t, s, Put, Place{Service: "shop"}, service("shop", 101, 1)); err != nil {
		t.Fatal(err)
	}
	write(t, dir, strings.Replace(file, "web01", "web02", 1))
	if err := s.Reload(t.Context()); err != nil || names(p.cfg) != "file:web web02*1, api:shop b1*1" {
		t.Errorf("%s, %v", names(p.cfg), err)
	}
	write(t, dir, strings.Replace(file, "name: web", "name: shop", 1))
	err := s.Reload(t.Context())
	if err == nil ||
		!strings.Contains(err.Error(), "api:4: services[0].name: shop is already the name of services[0].name ("+
			filepath.Join(dir, "jeoul.yaml")+", line 3)") {
		t.Errorf("error %v", err)
	}
	if names(p.cfg) != "file:web web02*1, api:shop b1*1" {
		t.Errorf("in force: %s", names(p.cfg))
	}
	if _, err := Open(filepath.Join(dir, "jeoul.yaml"), filepath.Join(dir, "sources")); err == nil ||
		!strings.Contains(err.Error(), "kept in "+filepath.Join(dir, "sources")) {
		t.Errorf("a start with both: %v", err)
	}
}

// TestConditions: a change that expects another state than there is changes nothing.
func TestConditions(t *testing.T) {
	s, _ := open(t, t.TempDir())
	var tag string
	expect := func(want string) func(Part) error {
		return func(p Part) error {
			if tag = p.Tag; tag != want {
				return ErrChanged
			}
			return nil
		}
	}
	value := func(weight int) Request {
		v, err := ReadJSON(fmt.Appendf(nil, "{\"address\":\t\"192.0.2.1\", \"weight\": %d}", weight))
		if err != nil {
			t.Fatal(err)
		}
		return Request{At: Place{Service: "shop", Backend: "b1"}, Value: v}
	}
	if _, err := ask(t, s, Put, Place{Service: "shop"}, service("shop", 101, 1)); err != nil {
		t.Fatal(err)
	}
	first, err := s.Get(Place{Service: "shop", Backend: "b1"})
	if err != nil {
		t.Fatal(err)
	}
	for n, want := range []error{nil, ErrChanged} {
		r := value(5 + n)
		r.If = expect(first.Tag)
		if _, err := s.Ask(t.Context(), r); !errors.Is(err, want) {
			t.Errorf("%d: %v, want %v", n, err, want)
		}
	}
	if part, err := s.Get(Place{Service: "shop", Backend: "b1"}); err != nil || part.Tag != tag ||
		part.Tag == first.Tag {
		t.Errorf("%+v, %v", part, err)
	}
	if _, err := s.Get(Place{Service: "shop", Backend: "b2"}); !errors.Is(err, ErrNotFound) {
		t.Errorf("%v", err)
	}
}

// TestWriters: several programs change their own services at random, beside a file that changes, too; each change that
// was acknowledged is in force and stored, and a refused one is not.
func TestWriters(t *testing.T) {
	dir := t.TempDir()
	s, p := open(t, dir)
	var mu sync.Mutex
	want := map[string][]int{} // the backends of each service, as acknowledged
	var writers sync.WaitGroup
	for w := range 3 {
		writers.Go(func() {
			random := rand.New(rand.NewPCG(27, uint64(w)))
			source, vip := fmt.Sprintf("w%d", w), 110+w
			for range 60 {
				at := Place{Source: source, Service: source}
				backends := random.Perm(9)[:random.IntN(4)] // none: refused
				for i := range backends {
					backends[i]++
				}
				var err error
				if random.IntN(5) == 0 {
					backends = nil
					_, err = s.Ask(t.Context(), Request{At: at, Verb: Delete})
				} else {
					value, _ := ReadYAML([]byte(service(source, vip, backends...)))
					_, err = s.Ask(t.Context(), Request{At: at, Value: value})
				}
				if err == nil {
					mu.Lock()
					want[source] = backends
					mu.Unlock()
				}
			}
		})
	}
	for n := range 30 {
		write(t, dir, strings.Replace(file, "web01", fmt.Sprintf("web%02d", n), 1))
		if err := s.Reload(t.Context()); err != nil {
			t.Error(err)
		}
	}
	writers.Wait()
	again, _ := open(t, dir)
	text := []string{"file:web web29*1"}
	for w := range 3 {
		source := fmt.Sprintf("w%d", w)
		if backends := want[source]; backends != nil {
			line := source + ":" + source
			for _, b := range backends {
				line += fmt.Sprintf(" b%d*1", b)
			}
			text = append(text, line)
		}
	}
	slices.Sort(text)
	for what, cfg := range map[string]*config.Config{"in force": p.cfg, "shown": s.Config(),
		"after a restart": again.Config()} {
		if got := names(cfg); got != strings.Join(text, ", ") {
			t.Errorf("%s: %s\nacknowledged: %s", what, got, strings.Join(text, ", "))
		}
	}
}

// FuzzBody: whatever a body says, reading and patching with it ends, and an accepted one can be read again.
func FuzzBody(f *testing.F) {
	for _, seed := range []string{`{"address": "192.0.2.1"}`, "weight: null", "a: &a [*a]", `{"a": {"b": null}}`,
		"[1, 2", "\t", `{"name": "b1", "name": "b2"}`, "!!binary x: y", "? [a]\n: b", "1: 2"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, read := range []func([]byte) (r *yaml.Node, err error){ReadYAML, ReadJSON} {
			value, err := read(body)
			if err != nil {
				continue
			}
			r := Request{At: Place{Source: API, Service: "web", Backend: "b1"}, Verb: Patch, Value: value}
			before := Fragment{Name: API, Generation: 1,
				Text: []byte("services:\n  - " + strings.ReplaceAll(service("web", 101, 1), "\n", "\n    "))}
			part, err := r.At.lookup(before.Text, 1)
			if err != nil {
				t.Fatal(err)
			}
			text, _, err := r.edit(before, part)
			if err != nil {
				continue
			}
			_, _ = config.Merge(config.Source{Name: "f", Data: []byte(file)}, config.Source{Name: API, Data: text})
		}
	})
}
