// SPDX-License-Identifier: Apache-2.0

package discover

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/test/testenv"
)

// fakeEngine speaks as much of Docker's API as the tests need.
type fakeEngine struct {
	path string
	mu   sync.Mutex
	// list is its list of containers; nil: answers replies instead.
	list    []map[string]any
	answers http.HandlerFunc
	events  []chan string
	server  *httptest.Server
}

func newFakeEngine(t *testing.T) *fakeEngine {
	e := &fakeEngine{path: filepath.Join(t.TempDir(), "docker.sock")}
	e.start(t)
	return e
}

// start listens; the test's end ends it.
func (e *fakeEngine) start(t *testing.T) {
	t.Helper()
	listener, err := net.Listen("unix", e.path)
	if err != nil {
		t.Fatal(err)
	}
	e.server = httptest.NewUnstartedServer(e)
	e.server.Listener.Close()
	e.server.Listener = listener
	e.server.Start()
	t.Cleanup(e.stop)
}

// stop takes the socket away.
func (e *fakeEngine) stop() {
	e.server.CloseClientConnections()
	e.server.Close()
}

func (e *fakeEngine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/events" {
		e.notify(w, r)
		return
	}
	if !strings.Contains(r.URL.Query().Get("filters"), labelService) {
		http.Error(w, "no filter", http.StatusBadRequest)
		return
	}
	e.mu.Lock()
	answers, list := e.answers, slices.Clone(e.list)
	e.mu.Unlock()
	if answers != nil {
		answers(w, r)
		return
	}
	if err := json.NewEncoder(w).Encode(list); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

// notify streams events.
func (e *fakeEngine) notify(w http.ResponseWriter, r *http.Request) {
	own := make(chan string, 10_000)
	e.mu.Lock()
	e.events = append(e.events, own)
	e.mu.Unlock()
	w.WriteHeader(http.StatusOK)
	for {
		w.(http.Flusher).Flush()
		select {
		case <-r.Context().Done():
			return
		case event := <-own:
			fmt.Fprintln(w, event)
		}
	}
}

// put changes the containers, with an event, as an engine has one for each.
func (e *fakeEngine) put(list ...map[string]any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.list, e.answers = list, nil; list == nil {
		e.list = []map[string]any{}
	}
	for _, own := range e.events {
		own <- started
	}
}

// answer has it answer otherwise from now on.
func (e *fakeEngine) answer(with http.HandlerFunc) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.answers = with
	for _, own := range e.events {
		own <- started
	}
}

// started is an event of a container with the label.
const started = `{"Type":"container","Action":"start","Actor":{"ID":"0123456789abcdef","Attributes":{"jeoul.service":"web"}}}`

// TestEvents: events of containers with the label are noted, however they come in pieces, and those of others are not.
func TestEvents(t *testing.T) {
	for text, want := range map[string]bool{started: true,
		strings.ReplaceAll(started, "jeoul.service", "service"): false,
		strings.Repeat("x", 10_000) + started:                   true, strings.Repeat("x", 10_000): false} {
		for _, reader := range []io.Reader{strings.NewReader(text), iotest.OneByteReader(strings.NewReader(text)),
			iotest.HalfReader(strings.NewReader(text))} {
			events, ended := make(chan struct{}, 1), make(chan error, 1)
			readEvents(reader, events, ended)
			if got := len(events) > 0; got != want || len(ended) != 1 {
				t.Errorf("%q was noted: %t", text[:min(len(text), 20)], got)
			}
		}
	}
}

// made is a container that runs.
func made(name, addr string, labels ...string) map[string]any {
	all := map[string]string{labelService: "web"}
	for _, label := range labels {
		key, value, _ := strings.Cut(label, "=")
		all[key] = value
	}
	return map[string]any{"Id": "0123456789abcdef", "Names": []string{"/" + name}, "Labels": all, "State": "running",
		"Status":          "Up 2 minutes",
		"NetworkSettings": map[string]any{"Networks": map[string]any{"bridge": map[string]any{"IPAddress": addr}}}}
}

// with returns a container with another value.
func with(of map[string]any, key string, value any) map[string]any {
	of[key] = value
	return of
}

func (e *fakeEngine) provider(network string) containers {
	return newContainers(lb.Service{VIP: netip.MustParseAddr("192.0.2.100"), Mode: lb.NAT,
		Discovery: lb.Discovery{Docker: lb.DockerOrigin{Socket: e.path, Network: network}}})
}

// TestDocker: containers come and go with the engine's events.
func TestDocker(t *testing.T) {
	t.Parallel()
	e := newFakeEngine(t)
	e.put(made("w1", "192.0.2.1"))
	answers := follow(t, e.provider(""))
	expect(t, answers, "w1")
	e.put(made("w1", "192.0.2.1"), made("w2", "192.0.2.2"), with(made("w3", "192.0.2.3"), "State", "exited"))
	expect(t, answers, "w1 w2")
	e.put()
	expect(t, answers, "")
	e.stop()
	expect(t, answers, "follow the events")
	expect(t, answers, "ask the engine at "+e.path)
	e.start(t)
	e.put(made("w4", "192.0.2.4"))
	expect(t, answers, "w4")
}

// TestDockerBad: an engine that says nonsense, or that it cannot say, is an error, after which the next
// answer counts.
func TestDockerBad(t *testing.T) {
	t.Parallel()
	e := newFakeEngine(t)
	e.put(made("w1", "192.0.2.1"))
	answers := follow(t, e.provider(""))
	expect(t, answers, "w1")
	for want, handler := range map[string]http.HandlerFunc{
		"not a list of containers": func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>") },
		"status 500": func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "\x1b[31mbroken", http.StatusInternalServerError)
		},
		"unexpected EOF": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			fmt.Fprint(w, "[")
		},
	} {
		e.answer(handler)
		expect(t, answers, want)
		e.put(made("w1", "192.0.2.1"))
		expect(t, answers, "w1")
	}
}

// TestDockerStalls: a list that does not come ends with its bound.
func TestDockerStalls(t *testing.T) {
	e := newFakeEngine(t)
	e.answer(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	c := e.provider("")
	c.client.Transport.(*http.Transport).ResponseHeaderTimeout = 50 * time.Millisecond
	expect(t, follow(t, c), "timeout awaiting response headers")
}

// TestContainers: the backends that follow from the containers that an engine lists.
func TestContainers(t *testing.T) {
	e := &fakeEngine{path: "/s"}
	networks := func(names ...string) map[string]any {
		all := map[string]any{}
		for i, name := range names {
			all[name] = map[string]any{"IPAddress": fmt.Sprintf("192.0.2.%d", i+1), "GlobalIPv6Address": "2001:db8::1"}
		}
		return map[string]any{"Networks": all}
	}
	tests := map[string]struct {
		network   string
		container map[string]any
		want      string // NAME@ADDRESS:PORT*WEIGHT REASON, or the note
	}{
		"labels": {"", made("w1", "192.0.2.1", "jeoul.port=8080", "jeoul.weight=3"), "w1@192.0.2.1:8080*3 "},
		"two services": {"", made("w1", "192.0.2.1", "jeoul.service=web, shop"),
			"w1@192.0.2.1:0*1 w1@192.0.2.1:0*1 "},
		"no service": {"", made("w1", "192.0.2.1", "jeoul.service="), ""},
		"port": {"", made("w1", "192.0.2.1", "jeoul.port=http"),
			`container w1 has the label jeoul.port="http", which is no port from 1 to 65535: it is left out`},
		"port 0": {"", made("w1", "192.0.2.1", "jeoul.port=0"),
			`container w1 has the label jeoul.port="0", which is no port from 1 to 65535: it is left out`},
		"weight": {"", made("w1", "192.0.2.1", "jeoul.weight=-1"),
			`container w1 has the label jeoul.weight="-1", which is no weight from 0 to 65535: it is left out`},
		"stopped": {"", with(made("w1", "192.0.2.1"), "State", "exited"), ""},
		"paused": {"", with(made("w1", "192.0.2.1"), "State", "paused"),
			"w1@192.0.2.1:0*1 is paused, as its engine says"},
		"unhealthy": {"", with(made("w1", "192.0.2.1"), "Status", "Up 2 minutes (unhealthy)"),
			"w1@192.0.2.1:0*1 is unhealthy, as its engine says"},
		"starting": {"", with(made("w1", "192.0.2.1"), "Health", map[string]any{"Status": "starting"}),
			"w1@192.0.2.1:0*1 is not healthy yet, as its engine says"},
		"healthy":   {"", with(made("w1", "192.0.2.1"), "Status", "Up 2 minutes (healthy)"), "w1@192.0.2.1:0*1 "},
		"no name":   {"", with(made("w1", "192.0.2.1"), "Names", nil), "0123456789ab@192.0.2.1:0*1 "},
		"a network": {"b", with(made("w1", ""), "NetworkSettings", networks("a", "b")), "w1@192.0.2.2:0*1 "},
		"networks": {"", with(made("w1", ""), "NetworkSettings", networks("a", "b")),
			"container w1 is on several networks (a, b): say by `network` which one counts: it is left out"},
		"another network": {"c", with(made("w1", ""), "NetworkSettings", networks("a", "b")),
			"container w1 is not on the network c; it is on a, b: it is left out"},
		"no network": {"", with(made("w1", ""), "NetworkSettings", nil),
			"container w1 is on no network: it is left out"},
		"no address": {"", made("w1", ""),
			"container w1 has no address on the network bridge that the service's mode reaches: it is left out"},
	}
	for title, test := range tests {
		t.Run(title, func(t *testing.T) {
			text, err := json.Marshal([]any{test.container})
			if err != nil {
				t.Fatal(err)
			}
			a, err := e.provider(test.network).parseList(text)
			if err != nil {
				t.Fatal(err)
			}
			var words []string
			reason := ""
			for _, f := range a.Found {
				words = append(words, fmt.Sprintf("%s@%s*%d", f.Name, netip.AddrPortFrom(f.Address, f.Port), f.Weight))
				reason = " " + f.NotReady
			}
			got := strings.Join(words, " ") + reason
			for _, note := range a.Notes {
				got += note.Text
			}
			if got != test.want {
				t.Errorf("%q, not %q", got, test.want)
			}
		})
	}
}

// TestDockerMany: 500 containers that start one after the other are known within some lists, and ten thousand are cut
// to the number that is taken.
func TestDockerMany(t *testing.T) {
	t.Parallel()
	e := newFakeEngine(t)
	e.put()
	answers := follow(t, e.provider(""))
	expect(t, answers, "")
	var list []map[string]any
	many := func(n int) {
		for i := len(list); i < n; i++ {
			list = append(list, made(fmt.Sprintf("w%05d", i), fmt.Sprintf("198.18.%d.%d", i/250, i%250+1)))
			if n <= 500 {
				e.put(slices.Clone(list)...)
			}
		}
		e.put(list...)
	}
	counts := func(want int) (answered int) {
		for bound := time.After(testenv.WaitLimit); ; {
			select {
			case a := <-answers:
				if answered++; len(a.Found) == want {
					return answered
				}
			case <-bound:
				t.Fatalf("%d answers, none of %d", answered, want)
			}
		}
	}
	start := time.Now()
	many(500)
	answered := counts(500)
	t.Logf("500 containers after %s, and %d lists", time.Since(start), answered)
	if answered > 100 {
		t.Errorf("%d lists for 500 containers", answered)
	}
	many(10_000)
	counts(10_000)
}

// TestDockerTooLarge: a list without end is not read.
func TestDockerTooLarge(t *testing.T) {
	e := newFakeEngine(t)
	e.answer(func(w http.ResponseWriter, r *http.Request) {
		blank := []byte(strings.Repeat(" ", 1<<20))
		for r.Context().Err() == nil {
			if _, err := w.Write(blank); err != nil {
				return
			}
		}
	})
	expect(t, follow(t, e.provider("")), "take more than 32 MiB")
}

// TestDockerNoSocket: a socket that no one listens on is named.
func TestDockerNoSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	e := &fakeEngine{path: path}
	answers := follow(t, e.provider(""))
	expect(t, answers, "ask the engine at "+path+": dial unix "+path+": connect: no such file or directory")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	expect(t, answers, "connection refused")
}

// FuzzDocker: whatever an engine lists becomes backends that have a name, an address and a service.
func FuzzDocker(f *testing.F) {
	text, err := json.Marshal([]any{made("w1", "192.0.2.1", "jeoul.port=80", "jeoul.weight=3"),
		with(made("", "::1"), "State", "paused")})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte(`[{"Labels":{"jeoul.service":","},"State":"running"}]`))
	e := &fakeEngine{path: "/s"}
	f.Fuzz(func(t *testing.T, text []byte) {
		a, err := e.provider("").parseList(text)
		if err != nil && len(a.Found) > 0 {
			t.Errorf("%v beside %v", a.Found, err)
		}
		for _, b := range a.Found {
			if b.Name != backendName(b.Name) || !b.Address.Is4() || b.Service == "" {
				t.Errorf("backend %+v", b)
			}
		}
	})
}
