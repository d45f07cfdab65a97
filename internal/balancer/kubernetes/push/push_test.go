// SPDX-License-Identifier: Apache-2.0

package push

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/jeoul/jeoul/internal/balancer/api"
	"github.com/jeoul/jeoul/internal/balancer/config"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/text/yamlfile"
)

// fakeBalancer checks services as a real one does, beside a file and other sources, and keeps them.
type fakeBalancer struct {
	file   string
	others []config.Source
	// earlier: it is of a version that does not support differences.
	earlier bool
	// most is the number of services of a source that it has room for; 0: any number.
	most  int
	has   []lb.Service
	tries int
	down  error
	// cfg is the configuration in force, of a generation of the source; whole counts the sources that were handed over
	// whole.
	cfg        *config.Config
	generation uint64
	fullTexts  int
}

func (b *fakeBalancer) Amend(_ context.Context, source string, generation uint64, text []byte) (*api.Change, error) {
	b.tries++
	if b.down != nil {
		return nil, b.down
	}
	if b.earlier {
		return nil, &api.Problem{Status: http.StatusNotFound, Detail: "no such path"}
	}
	if generation != b.generation {
		return nil, &api.Problem{Status: http.StatusPreconditionFailed, Detail: "its ETag is another"}
	}
	if b.cfg == nil {
		b.cfg, _ = config.Merge(config.Source{Name: "file", Data: []byte(b.file)}, b.others...)
	}
	read, _, err := b.cfg.Amend(config.Source{Name: source, Data: text})
	return b.apply(source, read, err)
}

func (b *fakeBalancer) SourceServices(context.Context, string) (names []string, generation uint64, err error) {
	for _, s := range b.has {
		names = append(names, s.Name)
	}
	return names, b.generation, b.down
}

func (b *fakeBalancer) Apply(_ context.Context, source string, text []byte, _ bool) (*api.Change, error) {
	b.tries++
	b.fullTexts++
	if b.down != nil {
		return nil, b.down
	}
	fragments := append([]config.Source{{Name: source, Data: text}}, b.others...)
	slices.SortFunc(fragments, func(x, y config.Source) int { return strings.Compare(x.Name, y.Name) })
	read, err := config.Merge(config.Source{Name: "file", Data: []byte(b.file)}, fragments...)
	return b.apply(source, read, err)
}

// apply has a configuration in force, or says why not.
func (b *fakeBalancer) apply(source string, read *config.Config, err error) (*api.Change, error) {
	var problems yamlfile.Problems
	if errors.As(err, &problems) {
		p := &api.Problem{Status: http.StatusUnprocessableEntity, Detail: err.Error()}
		for _, f := range problems {
			p.Errors = append(p.Errors, api.Fault{Source: f.File, Line: f.Line, Field: f.Field, Message: f.Message})
		}
		return nil, p
	}
	if err != nil {
		return nil, err
	}
	if b.most > 0 && len(read.ServicesOf(source)) > b.most {
		return nil, &api.Problem{Status: http.StatusUnprocessableEntity, Detail: "too many tables",
			Errors: []api.Fault{{Source: "/etc/jeoul/jeoul.yaml", Field: "services", Message: "too many tables"}}}
	}
	b.has = slices.Clone(read.ServicesOf(source))
	b.cfg, b.generation = read, b.generation+1
	return &api.Change{Generation: b.generation}, nil
}

func (b *fakeBalancer) names() string {
	words := make([]string, len(b.has))
	for i, s := range b.has {
		words[i] = fmt.Sprintf("%s@%s", s.Name, s.VIP)
	}
	return strings.Join(words, " ")
}

func made(name, vip string) lb.Service {
	return lb.Service{Name: name, VIP: netip.MustParseAddr(vip), Port: 80, Protocol: lb.TCP, Mode: lb.L2DSR,
		Scheduler: lb.Maglev, AllowEmpty: true}
}

const file = "interface: eth0\nservices: [{name: filed, vip: 192.0.2.9, port: 80, backends: [{name: a, address: 10.0.0.1}]}]\n"

// TestPush: a service that a balancer refuses is left as it was, and all others are taken.
func TestPush(t *testing.T) {
	b := &fakeBalancer{file: file}
	p := &Pusher{Balancer: b, Source: "kubernetes"}
	push := func(services ...lb.Service) Result {
		t.Helper()
		result, err := p.Push(t.Context(), services)
		if err != nil {
			t.Fatal(err)
		}
		return result
	}
	if r := push(made("a", "192.0.2.1"), made("b", "192.0.2.2")); b.names() != "a@192.0.2.1 b@192.0.2.2" ||
		len(r.Refused) > 0 {
		t.Fatalf("it has %s, refused %v", b.names(), r.Refused)
	}
	r := push(made("a", "192.0.2.9"), made("b", "192.0.2.3"), made("c", "192.0.2.9"), made("filed", "192.0.2.4"))
	if b.names() != "a@192.0.2.1 b@192.0.2.3" {
		t.Errorf("after bad ones it has %s", b.names())
	}
	if len(r.Refused) != 3 ||
		!strings.Contains(r.Refused["a"], "vip: tcp 192.0.2.9:80 is already taken by services[0].vip (file") ||
		!strings.Contains(r.Refused["filed"], "name: filed is already the name of") {
		t.Errorf("refused: %v", r.Refused)
	}
	if push(); b.names() != "" {
		t.Errorf("without a Service it has %s", b.names())
	}
	if b.fullTexts > 0 {
		t.Errorf("handed over whole %d times", b.fullTexts)
	}
	b.generation++ // as another client changes it
	if push(made("d", "192.0.2.5")); b.names() != "d@192.0.2.5" || b.fullTexts > 0 {
		t.Errorf("after a change by another it has %s; handed over whole %d times", b.names(), b.fullTexts)
	}
	b.down = errors.New("not running")
	if _, err := p.Push(t.Context(), []lb.Service{made("a", "192.0.2.1")}); !errors.Is(err, b.down) {
		t.Errorf("a balancer that is down: %v", err)
	}
}

// TestRestart: a new program's pushes leave a service that the balancer refuses as it was, whatever source it conflicts
// with.
func TestRestart(t *testing.T) {
	const animals = "services: [{name: lion, vip: 192.0.2.102, port: 80, backends: [{name: a, address: 10.0.0.1}]}]\n"
	b := &fakeBalancer{file: file, others: []config.Source{{Name: "zoo", Data: []byte(animals)}}}
	push := func(services ...lb.Service) Result {
		t.Helper()
		result, err := (&Pusher{Balancer: b, Source: "kubernetes"}).Push(t.Context(), services)
		if err != nil {
			t.Fatal(err)
		}
		return result
	}
	push(made("a", "192.0.2.1"), made("b", "192.0.2.2"), made("gone", "192.0.2.3"))
	r := push(made("a", "192.0.2.9"), made("b", "192.0.2.4"))
	if b.names() != "a@192.0.2.1 b@192.0.2.4" || len(r.Refused) != 1 || r.Refused["a"] == "" {
		t.Errorf("it has %s, refused %v", b.names(), r.Refused)
	}
	if push(made("a", "192.0.2.4"), made("b", "192.0.2.1")); b.names() != "a@192.0.2.4 b@192.0.2.1" {
		t.Errorf("with swapped addresses it has %s", b.names())
	}
	r = push(made("a", "192.0.2.4"), made("c", "192.0.2.102"))
	if b.names() != "a@192.0.2.4" || len(r.Refused) != 1 || !strings.Contains(r.Refused["c"], "zoo") {
		t.Errorf("beside another source it has %s, refused %v", b.names(), r.Refused)
	}
	if tries := b.tries; len(push(made("a", "192.0.2.4")).Refused) > 0 || b.tries != tries+1 || b.fullTexts > 0 {
		t.Errorf("%d tries, handed over whole %d times", b.tries-tries, b.fullTexts)
	}
}

// TestEarlierVersion: a balancer that does not support differences is handed everything.
func TestEarlierVersion(t *testing.T) {
	b := &fakeBalancer{file: file, earlier: true}
	p := &Pusher{Balancer: b, Source: "kubernetes"}
	for _, vip := range []string{"192.0.2.1", "192.0.2.9"} {
		r, err := p.Push(t.Context(), []lb.Service{made("a", vip), made("b", "192.0.2.2")})
		if err != nil || b.names() != "a@192.0.2.1 b@192.0.2.2" || len(r.Refused) > 0 != (vip == "192.0.2.9") {
			t.Errorf("it has %s, refused %v, error %v", b.names(), r.Refused, err)
		}
	}
	if b.fullTexts != 3 {
		t.Errorf("it was handed everything %d times", b.fullTexts)
	}
	b.has, b.generation = nil, 0
	p.Forget()
	b.down = errors.New("not running")
	if _, err := p.Push(t.Context(), []lb.Service{made("b", "192.0.2.2")}); !errors.Is(err, b.down) {
		t.Errorf("a balancer that is down: %v", err)
	}
	b.down = nil
	if _, err := p.Push(t.Context(), []lb.Service{made("b", "192.0.2.2")}); err != nil || b.names() != "b@192.0.2.2" {
		t.Errorf("it has %s, error %v", b.names(), err)
	}
}

// TestForget: services that the balancer may have lost are pushed again, though they are the same.
func TestForget(t *testing.T) {
	b := &fakeBalancer{file: file}
	p := &Pusher{Balancer: b, Source: "kubernetes"}
	push := func() string {
		t.Helper()
		if _, err := p.Push(t.Context(), []lb.Service{made("a", "192.0.2.1")}); err != nil {
			t.Fatal(err)
		}
		return b.names()
	}
	push()
	*b = fakeBalancer{file: file, down: errors.New("not running")}
	p.Forget()
	if _, err := p.Push(t.Context(), []lb.Service{made("a", "192.0.2.1")}); !errors.Is(err, b.down) {
		t.Errorf("a balancer that is down: %v", err)
	}
	b.down = nil
	if got := push(); got != "a@192.0.2.1" {
		t.Errorf("it has %q", got)
	}
	if tries := b.tries; push() != "a@192.0.2.1" || b.tries != tries {
		t.Errorf("the same services were pushed once more")
	}
}

// TestPushEndsWhenAllAreRefused: the tries end, however many services a balancer refuses.
func TestPushEndsWhenAllAreRefused(t *testing.T) {
	b := &fakeBalancer{file: file}
	p := &Pusher{Balancer: b, Source: "kubernetes"}
	var all []lb.Service
	for i := range 300 {
		all = append(all, made(fmt.Sprintf("s%d", i), "192.0.2.9"))
	}
	result, err := p.Push(t.Context(), all)
	if err != nil || len(result.Refused) != 300 || b.tries > 3 {
		t.Errorf("error %v, %d refused in %d tries", err, len(result.Refused), b.tries)
	}
}

// TestKeep: services that are to stay are not removed; a balancer that would drop them is handed nothing.
func TestKeep(t *testing.T) {
	b := &fakeBalancer{file: file}
	p := &Pusher{Balancer: b, Source: "kubernetes"}
	push := func(p *Pusher, services ...lb.Service) error { _, err := p.Push(t.Context(), services); return err }
	if err := push(p, made("a", "192.0.2.1"), made("b", "192.0.2.2"), made("c", "192.0.2.3")); err != nil {
		t.Fatal(err)
	}
	next := &Pusher{Balancer: b, Source: "kubernetes", Keep: func(name string) bool { return name == "a" }}
	if err := push(next, made("b", "192.0.2.4")); err != nil || b.names() != "a@192.0.2.1 b@192.0.2.4" {
		t.Errorf("it has %s, error %v", b.names(), err)
	}
	next.Keep = nil
	if err := push(next, made("b", "192.0.2.4")); err != nil || b.names() != "b@192.0.2.4" {
		t.Errorf("without Keep it has %s, error %v", b.names(), err)
	}
	b.earlier = true
	next.Keep = func(string) bool { return true }
	if err := push(next, made("c", "192.0.2.5")); err == nil || b.names() != "b@192.0.2.4" {
		t.Errorf("the earlier version has %s, error %v", b.names(), err)
	}
}

// TestPushExceedsALimit: where services exceed a limit of all services, which names none of them, those that fit are
// taken, and the others stay as they were. They are tried again when something is removed, and by Retry.
func TestPushExceedsALimit(t *testing.T) {
	b := &fakeBalancer{file: file, most: 3}
	p := &Pusher{Balancer: b, Source: "kubernetes"}
	check := func(want string, refused int, services ...lb.Service) {
		t.Helper()
		result, err := p.Push(t.Context(), services)
		if err != nil || b.names() != want || len(result.Refused) != refused {
			t.Fatalf("it has %s, refused %v, error %v; want %s", b.names(), result.Refused, err, want)
		}
		for _, why := range result.Refused {
			if !strings.Contains(why, "too many tables") {
				t.Errorf("the reason is %q", why)
			}
		}
	}
	a, c, d, e, z := made("a", "192.0.2.1"), made("c", "192.0.2.3"), made("d", "192.0.2.4"), made("e", "192.0.2.5"),
		made("z", "192.0.2.8")
	check("z@192.0.2.8", 0, z)
	z.VIP = netip.MustParseAddr("192.0.2.7")
	check("a@192.0.2.1 c@192.0.2.3 z@192.0.2.7", 2, a, c, d, e, z)
	tries := b.tries
	if check("a@192.0.2.1 c@192.0.2.3 z@192.0.2.7", 2, a, c, d, e, z); b.tries != tries {
		t.Errorf("what does not fit was tried again at once, %d times", b.tries-tries)
	}
	check("a@192.0.2.1 d@192.0.2.4 z@192.0.2.7", 1, a, d, e, z)
	b.most = 4
	p.Retry()
	check("a@192.0.2.1 d@192.0.2.4 e@192.0.2.5 z@192.0.2.7", 0, a, d, e, z)
}

// TestPushExceedsALimitByFar: the tries end, and what was not tried counts as refused.
func TestPushExceedsALimitByFar(t *testing.T) {
	b := &fakeBalancer{file: file, most: 20}
	p := &Pusher{Balancer: b, Source: "kubernetes"}
	all := make([]lb.Service, 200)
	for i := range all {
		all[i] = made(fmt.Sprintf("s%03d", i), fmt.Sprintf("10.0.0.%d", i))
	}
	result, err := p.Push(t.Context(), all)
	if err != nil || len(b.has) != b.most || len(result.Refused) != len(all)-b.most || b.tries > maxRounds {
		t.Errorf("it has %d, %d are refused in %d tries, error %v", len(b.has), len(result.Refused), b.tries, err)
	}
}
