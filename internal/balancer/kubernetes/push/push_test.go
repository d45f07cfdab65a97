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

// fakeBalancer checks services as a real one does, beside a file, and keeps them.
type fakeBalancer struct {
	file  string
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
	if generation != b.generation {
		return nil, &api.Problem{Status: http.StatusPreconditionFailed, Detail: "its ETag is another"}
	}
	if b.cfg == nil {
		b.cfg, _ = config.Parse("file", []byte(b.file))
	}
	read, _, err := b.cfg.Amend(config.Source{Name: source, Data: text})
	return b.apply(read, err)
}

func (b *fakeBalancer) Apply(_ context.Context, source string, text []byte, _ bool) (*api.Change, error) {
	b.tries++
	b.fullTexts++
	if b.down != nil {
		return nil, b.down
	}
	read, err := config.Merge(config.Source{Name: "file", Data: []byte(b.file)},
		config.Source{Name: source, Data: text})
	return b.apply(read, err)
}

// apply has a configuration in force, or says why not.
func (b *fakeBalancer) apply(read *config.Config, err error) (*api.Change, error) {
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
	b.has = slices.DeleteFunc(slices.Clone(read.Services), func(s lb.Service) bool { return s.Name == "filed" })
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
	if push(made("d", "192.0.2.5")); b.names() != "d@192.0.2.5" || b.fullTexts != 1 {
		t.Errorf("after a change by another it has %s; handed over whole %d times", b.names(), b.fullTexts)
	}
	b.down = errors.New("not running")
	if _, err := p.Push(t.Context(), []lb.Service{made("a", "192.0.2.1")}); !errors.Is(err, b.down) {
		t.Errorf("a balancer that is down: %v", err)
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
