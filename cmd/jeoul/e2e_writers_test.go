// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/jeoul/jeoul/cmd/jeoul/e2e"
	"github.com/jeoul/jeoul/internal/balancer/api"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/balancer/sources"
	"github.com/jeoul/jeoul/internal/test/testenv"
	"github.com/jeoul/jeoul/internal/tools/agent"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// The ports of the two writers' services, a service each: the first belong only to the file, the last only to the API,
// and both want those in between.
const (
	firstWritten, fileWrites, apiWrites, pastWritten = 7100, 7104, 7102, 7106
	// unchangedPort is the port of an unchanged service of the file, so that the VIP stays.
	unchangedPort = 7099
)

// writtenServices is the configuration of one source: services by name.
type writtenServices map[string]wantedService

type wantedService struct {
	Scheduler string
	// Weights are the weights of the backends by name.
	Weights map[string]int
}

func (w writtenServices) clone() writtenServices {
	c := writtenServices{}
	for name, s := range w {
		c[name] = wantedService{s.Scheduler, maps.Clone(s.Weights)}
	}
	return c
}

// writers are two writers that change one balancer: one through its file, one through its API.
type writers struct {
	*segment
	seed   uint64
	client *http.Client
	// file and api are the acknowledged configurations, and fileUncertain and apiUncertain those that a kill has left
	// uncertain; nil: none.
	file, api                   writtenServices
	fileUncertain, apiUncertain writtenServices
	// killing is set when the daemon will be killed in the middle of a request, and began counts requests.
	killing atomic.Bool
	began   atomic.Int64
	// counts are the outcomes of changes.
	mu     sync.Mutex
	counts map[string]int
}

func (w *writers) counted(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counts[what]++
}

// written returns a segment whose servers answer on the writers' ports.
func written(t *testing.T) *writers {
	t.Helper()
	l := newLab(t, lab.Spec{Clients: 1, Servers: 3})
	w := &writers{segment: &segment{l, newBalancer(t, l.Balancer)}, file: writtenServices{}, api: writtenServices{},
		counts: map[string]int{}}
	for _, server := range l.Servers {
		w.answer(t, server)
	}
	w.client = &http.Client{Timeout: e2e.WaitLimit, Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", w.socket)
		}}}
	w.writeFile(t, w.file)
	return w
}

// answer starts a server that answers with its name.
func (w *writers) answer(t *testing.T, server *lab.Host) {
	t.Helper()
	var a *agent.Agent
	if err := server.Do(func() (err error) {
		if a, err = agent.Start(agent.Options{VIPs: []netip.Addr{w.VIP4},
			Dir: filepath.Join(server.Dir, "state")}); err != nil {
			return err
		}
		for port := unchangedPort; port < pastWritten; port++ {
			listener, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
			if err != nil {
				return err
			}
			t.Cleanup(func() { listener.Close() })
			go serveTCP(listener, server.Name)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Do(a.Close); err != nil && !errors.Is(err, lab.ErrClosed) {
			t.Error(err)
		}
	})
}

// serviceOf returns a service in the form of a configuration.
func (w *writers) serviceOf(name string, s wantedService) entry {
	port, _ := strconv.Atoi(name[1:])
	var backends []entry
	for _, backend := range slices.Sorted(maps.Keys(s.Weights)) {
		backends = append(backends, w.backendOf(backend, s.Weights[backend]))
	}
	return entry{"name": name, "vip": w.VIP4.String(), "port": port, "scheduler": s.Scheduler, "backends": backends}
}

func (w *writers) backendOf(name string, weight int) entry {
	i := slices.IndexFunc(w.Servers, func(server *lab.Host) bool { return server.Name == name })
	return entry{"name": name, "address": w.Servers[i].IPv4.String(), "weight": weight}
}

// writeFile replaces the whole configuration file, as editors do.
func (w *writers) writeFile(t *testing.T, says writtenServices) {
	t.Helper()
	path := w.config
	w.config += ".new"
	services := []entry{w.segment.service("always", unchangedPort, w.Servers)}
	for _, name := range slices.Sorted(maps.Keys(says)) {
		services = append(services, w.serviceOf(name, says[name]))
	}
	w.configure(t, lb.HookTC, entry{"services": services})
	err := os.Rename(w.config, path)
	if w.config = path; err != nil {
		t.Error(err)
	}
}

// randomChoices are one writer's random choices.
type randomChoices struct {
	*rand.Rand
	servers []*lab.Host
}

func (d randomChoices) service() wantedService {
	s := wantedService{[]string{"maglev", "wrr"}[d.IntN(2)], map[string]int{}}
	for _, i := range d.Perm(len(d.servers))[:1+d.IntN(len(d.servers))] {
		s.Weights[d.servers[i].Name] = 1 + d.IntN(4)
	}
	return s
}

func (d randomChoices) backend() string { return d.servers[d.IntN(len(d.servers))].Name }

// one returns a random service of a source, if it has any.
func (d randomChoices) one(w writtenServices) (string, bool) {
	names := slices.Sorted(maps.Keys(w))
	if len(names) == 0 {
		return "", false
	}
	return names[d.IntN(len(names))], true
}

// errDaemonDied means that the daemon has died before it answered.
var errDaemonDied = errors.New("no answer")

// send sends a request to the daemon. Error: errDaemonDied.
func (w *writers) send(method, path string, header http.Header, body any) (code int, answered http.Header, text []byte,
	err error) {
	content, err := json.Marshal(body)
	if err != nil {
		return 0, nil, nil, err
	}
	request, err := http.NewRequest(method, "http://jeoul"+path, bytes.NewReader(content))
	if err != nil {
		return 0, nil, nil, err
	}
	if header != nil {
		request.Header = header
	}
	response, err := w.client.Do(request)
	if err != nil {
		return 0, nil, nil, errors.Join(errDaemonDied, err)
	}
	defer response.Body.Close()
	if text, err = io.ReadAll(response.Body); err != nil {
		return 0, nil, nil, errors.Join(errDaemonDied, err)
	}
	return response.StatusCode, response.Header, text, nil
}

// writeByFile makes some changes through the file, until the daemon has gone.
func (w *writers) writeByFile(t *testing.T, d randomChoices, changes int) {
	for range changes {
		next := w.file.clone()
		name := fmt.Sprintf("s%d", firstWritten+d.IntN(fileWrites-firstWritten))
		if _, there := next[name]; there && d.IntN(3) == 0 {
			delete(next, name)
		} else {
			next[name] = d.service()
		}
		w.writeFile(t, next)
		w.fileUncertain = next
		w.began.Add(1)
		code, _, text, err := w.send(http.MethodPost, "/v1/reload", nil, nil)
		switch {
		case err != nil:
			w.noteDaemonDied(t, "a reload", err)
			return
		case code == http.StatusOK:
			w.file = next
			w.counted("reloads acknowledged")
		default:
			if !strings.Contains(string(text), name) {
				t.Errorf("a reload with %s: %d: %s", name, code, text)
			}
			w.writeFile(t, w.file)
			w.counted("reloads refused")
		}
		w.fileUncertain = nil
	}
}

// noteDaemonDied records that the daemon has died in the middle of a request, as planned.
func (w *writers) noteDaemonDied(t *testing.T, what string, err error) {
	if !w.killing.Load() || !errors.Is(err, errDaemonDied) {
		t.Errorf("%s: %v", what, err)
	}
	w.counted("without an answer")
}

// apiChange is a change through the API, and the source's configuration after it.
type apiChange struct {
	method, path string
	body         any
	next         writtenServices
}

// change chooses a random change.
func (w *writers) change(d randomChoices) apiChange {
	next := w.api.clone()
	name, there := d.one(next)
	kind := d.IntN(6)
	if !there || kind == 0 {
		name = fmt.Sprintf("s%d", apiWrites+d.IntN(pastWritten-apiWrites))
		next[name] = d.service()
		return apiChange{http.MethodPut, servicePath(name), w.serviceOf(name, next[name]), next}
	}
	s, backend := next[name], d.backend()
	at := servicePath(name) + "/backends/" + backend
	_, has := s.Weights[backend]
	switch {
	case kind == 1:
		delete(next, name)
		return apiChange{http.MethodDelete, servicePath(name), nil, next}
	case kind == 2:
		s.Scheduler = d.service().Scheduler
		next[name] = s
		return apiChange{http.MethodPatch, servicePath(name), entry{"scheduler": s.Scheduler}, next}
	case kind == 3 && has && len(s.Weights) > 1:
		delete(s.Weights, backend)
		return apiChange{http.MethodDelete, at, nil, next}
	case kind == 4 && has:
		s.Weights[backend] = 1 + d.IntN(4)
		return apiChange{http.MethodPatch, at, entry{"weight": s.Weights[backend]}, next}
	}
	s.Weights[backend] = 1 + d.IntN(4)
	return apiChange{http.MethodPut, at, w.backendOf(backend, s.Weights[backend]), next}
}

func servicePath(name string) string { return "/v1/config/services/" + name }

// writeByAPI makes some changes through the API, until the daemon has gone: some of them with conditions, which hold or
// not.
func (w *writers) writeByAPI(t *testing.T, d randomChoices, changes int) {
	for range changes {
		c, header, may := w.change(d), http.Header{}, true
		switch d.IntN(5) {
		case 0:
			code, answered, _, err := w.send(http.MethodGet, c.path, nil, nil)
			if err != nil {
				w.noteDaemonDied(t, "a reading", err)
				return
			}
			if code == http.StatusOK && answered.Get("Jeoul-Source") == sources.API {
				header.Set("If-Match", answered.Get("ETag"))
			}
		case 1:
			header.Set("If-Match", `"of-another-time"`)
			may = false
		}
		w.apiUncertain = c.next
		w.began.Add(1)
		code, _, text, err := w.send(c.method, c.path, header, c.body)
		switch {
		case err != nil:
			w.noteDaemonDied(t, c.method+" "+c.path, err)
			if !may {
				w.apiUncertain = nil
			}
			return
		case code == http.StatusOK && may:
			w.api = c.next
			w.counted("changes by API acknowledged")
			if header.Get("If-Match") != "" {
				w.counted("of these with If-Match")
			}
		case code == http.StatusPreconditionFailed && !may:
			w.counted("refused by If-Match")
		case code == http.StatusConflict || code == http.StatusUnprocessableEntity || code == http.StatusNotFound &&
			!may:
			w.counted("changes by API refused")
		default:
			t.Errorf("%s %s, If-Match %q: %d: %s", c.method, c.path, header.Get("If-Match"), code, text)
		}
		w.apiUncertain = nil
	}
}

// round lets both make changes, at once; the daemon is killed in the middle of the change of a number, after a moment.
// With number 0, it is not killed.
func (w *writers) round(t *testing.T, by [2]randomChoices, changes int, number int64, moment time.Duration) {
	t.Helper()
	w.killing.Store(number > 0)
	w.began.Store(0)
	var writing sync.WaitGroup
	over := make(chan struct{})
	writing.Go(func() { w.writeByFile(t, by[0], changes) })
	writing.Go(func() { w.writeByAPI(t, by[1], changes) })
	go func() {
		writing.Wait()
		close(over)
	}()
	var watching sync.WaitGroup
	watching.Go(func() { w.checkStored(t, over) })
	if number > 0 {
		testenv.Eventually(t, testenv.WaitLimit, "the change has begun", func() bool {
			return w.began.Load() >= number || closed(over)
		})
		select {
		case <-time.After(moment):
		case <-over:
		}
		kill(t, w.daemon)
		w.counted("kills")
	}
	<-over
	watching.Wait()
}

func closed(over <-chan struct{}) bool {
	select {
	case <-over:
		return true
	default:
		return false
	}
}

// checkStored reads the stored configuration repeatedly until over is closed: it is valid at any moment.
func (w *writers) checkStored(t *testing.T, over <-chan struct{}) {
	alone := filepath.Join(w.host.Dir, "alone")
	base := filepath.Join(w.host.Dir, "alone.yaml")
	err := os.WriteFile(base,
		yamlOf(t, entry{"interface": w.host.Interface,
			"services": []entry{w.segment.service("always", unchangedPort, w.Servers)}}), 0o600)
	if err = errors.Join(err, os.MkdirAll(alone, 0o755)); err != nil {
		t.Error(err)
		return
	}
	for tick := time.NewTicker(20 * time.Millisecond); ; {
		text, err := os.ReadFile(filepath.Join(w.stored(t), "api.yaml"))
		if err == nil {
			if err = os.WriteFile(filepath.Join(alone, "api.yaml"), text, 0o600); err == nil {
				_, err = sources.Open(base, alone)
			}
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Errorf("what is stored: %v", err)
		}
		select {
		case <-over:
			tick.Stop()
			return
		case <-tick.C:
		}
	}
}

// restartDaemon starts the daemon after a kill. An unacknowledged file that claims services of the API is refused at a
// start, as the reload would have refused it: then the previous one is restored.
func (w *writers) restartDaemon(t *testing.T) {
	t.Helper()
	if _, err := sources.Open(w.config, w.stored(t)); err != nil && w.fileUncertain != nil {
		w.counted("files put back")
		w.writeFile(t, w.file)
		w.fileUncertain = nil
	}
	if _, err := sources.Open(w.config, w.stored(t)); err != nil {
		t.Fatalf("the file and what is stored after a kill: %v", err)
	}
	w.start(t)
}

// configured returns the configuration of a source.
func (w *writers) configured(t *testing.T, source string) writtenServices {
	t.Helper()
	code, _, text, err := w.send(http.MethodGet, "/v1/config/sources/"+source, nil, nil)
	if err != nil || code != http.StatusOK {
		t.Fatalf("source %s: %d, %v: %s", source, code, err, text)
	}
	var says struct {
		Services []struct {
			Name, Scheduler string
			Backends        []struct {
				Name   string
				Weight *int
			}
		}
	}
	if err := json.Unmarshal(text, &says); err != nil {
		t.Fatal(err)
	}
	found := writtenServices{}
	for _, service := range says.Services {
		if service.Name == "always" {
			continue
		}
		s := wantedService{string(lb.Maglev), map[string]int{}}
		if service.Scheduler != "" {
			s.Scheduler = service.Scheduler
		}
		for _, b := range service.Backends {
			s.Weights[b.Name] = 1
			if b.Weight != nil {
				s.Weights[b.Name] = *b.Weight
			}
		}
		found[service.Name] = s
	}
	return found
}

// expectNothingLost checks that each source has the acknowledged configuration, or the one with the uncertain changes.
func (w *writers) expectNothingLost(t *testing.T) {
	t.Helper()
	for _, of := range []struct {
		source                  string
		acknowledged, uncertain *writtenServices
	}{{"file", &w.file, &w.fileUncertain}, {sources.API, &w.api, &w.apiUncertain}} {
		found := w.configured(t, of.source)
		diff := cmp.Diff(*of.acknowledged, found)
		if *of.uncertain != nil && diff != "" {
			if diff = cmp.Diff(*of.uncertain, found); diff == "" {
				w.counted("made without an answer")
			}
		}
		if diff != "" {
			t.Fatalf("seed %d: what source %s says (-acknowledged +found):\n%s", w.seed, of.source, diff)
		}
		*of.acknowledged, *of.uncertain = found, nil
	}
}

// expectDataPlane checks by connections that each service has exactly the backends that get lists, and that there is no
// other service.
func (w *writers) expectDataPlane(t *testing.T) {
	t.Helper()
	client := api.NewClient(w.socket)
	w.eventually(t, "every backend is up", allUp)
	services, err := client.Services(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	shown, all := map[int]ops.Service{}, writtenServices{}
	maps.Copy(all, w.file)
	maps.Copy(all, w.api)
	for _, s := range services {
		if s.Name == "always" {
			continue
		}
		shown[int(s.Port)] = s
		weights := map[string]int{}
		for _, b := range s.Backends {
			weights[b.Name] = int(b.Weight)
		}
		if diff := cmp.Diff(all[s.Name], wantedService{string(s.Scheduler), weights}); diff != "" {
			t.Errorf("seed %d: get shows of %s (-configured +shown):\n%s", w.seed, s.Name, diff)
		}
	}
	if len(shown) != len(all) {
		t.Errorf("seed %d: get shows %d services, and %d are configured", w.seed, len(shown), len(all))
	}
	for port := firstWritten; port < pastWritten; port++ {
		w.onPort(t, netip.AddrPortFrom(w.VIP4, uint16(port)), shown[port])
	}
}

// maxConnections bounds the number of connections until each of three backends has answered: the one with the least
// weight gets a ninth of them.
const maxConnections = 400

// onPort connects to a port until every backend of its service has answered; without a service, connections are
// refused.
func (w *writers) onPort(t *testing.T, to netip.AddrPort, s ops.Service) {
	t.Helper()
	if s.Name == "" {
		err := w.Clients[0].Do(func() error {
			connection, err := net.DialTimeout("tcp", to.String(), e2e.WaitLimit)
			if err == nil {
				connection.Close()
			}
			return err
		})
		if !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("seed %d: %s has no service, and a connection ends with %v, not refused", w.seed, to, err)
		}
		return
	}
	met := map[string]int{}
	has := func(name string) bool {
		return slices.ContainsFunc(s.Backends, func(b ops.Backend) bool { return b.Name == name })
	}
	for range maxConnections {
		server, err := w.askOnce(to)
		if err != nil {
			t.Fatalf("seed %d: %s on %s: %v", w.seed, s.Name, to, err)
		}
		if met[server]++; !has(server) {
			t.Errorf("seed %d: %s answers for %s, and is none of its backends", w.seed, server, s.Name)
			return
		}
		if len(met) == len(s.Backends) {
			return
		}
	}
	t.Errorf("seed %d: %s has %d backends, and of %d connections only these answered: %v", w.seed, s.Name,
		len(s.Backends), maxConnections, met)
}

// askOnce sends a request on a new connection, which it then closes.
func (w *writers) askOnce(to netip.AddrPort) (server string, err error) {
	err = w.Clients[0].Do(func() error {
		connection, err := net.DialTimeout("tcp", to.String(), e2e.WaitLimit)
		if err != nil {
			return err
		}
		defer connection.Close()
		server, _, err = ask(connection)
		return err
	})
	return server, err
}

// numberOf reads a number of the environment.
func numberOf(t *testing.T, variable string, otherwise uint64) uint64 {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", variable, err)
	}
	return n
}

// TestTwoWriters: the file and the API are changed at once, at random, and the daemon is killed in between. No
// acknowledged change is lost, the stored configuration is valid at every moment, and the data plane agrees with get.
// JEOUL_TEST_CHANGES is the number of changes that each makes, and JEOUL_TEST_SEED repeats the choices of a run.
func TestTwoWriters(t *testing.T) {
	t.Parallel()
	w := written(t)
	w.seed = numberOf(t, "JEOUL_TEST_SEED", rand.Uint64())
	changes, each := int(numberOf(t, "JEOUL_TEST_CHANGES", 30)), 15
	t.Logf("seed %d", w.seed)
	by := [2]randomChoices{{rand.New(rand.NewPCG(w.seed, 1)), w.Servers}, {rand.New(rand.NewPCG(w.seed, 2)), w.Servers}}
	when := rand.New(rand.NewPCG(w.seed, 3))
	w.start(t)
	began := time.Now()
	made := func() int {
		return min(w.counts["reloads acknowledged"]+w.counts["reloads refused"],
			w.counts["changes by API acknowledged"]+w.counts["changes by API refused"]+w.counts["refused by If-Match"])
	}
	for round := 0; made() < changes && !t.Failed(); round++ {
		if round%4 == 3 { // everything that was begun is answered
			w.round(t, by, each, 0, 0)
		} else {
			w.round(t, by, each, 1+when.Int64N(int64(2*each)), time.Duration(when.Int64N(int64(40*time.Millisecond))))
			w.restartDaemon(t)
		}
		w.expectNothingLost(t)
		w.expectDataPlane(t)
	}
	t.Logf("in %s: %v", time.Since(began).Round(time.Second), w.counts)
	for _, what := range []string{"reloads acknowledged", "changes by API acknowledged",
		"refused by If-Match", "kills"} {
		if w.counts[what] == 0 {
			t.Errorf("no %s", what)
		}
	}
	stop(t, w.daemon)
}
