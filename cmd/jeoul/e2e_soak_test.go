// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jeoul/jeoul/cmd/jeoul/e2e/soak"
	"github.com/jeoul/jeoul/internal/balancer/config"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/test/testenv"
	"github.com/jeoul/jeoul/internal/tools/agent"
	jeoulsubject "github.com/jeoul/jeoul/internal/weigh/bench/subject/jeoul"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// The environment of a soak: the duration of the faults (1h), the seed from which they are drawn, the number of
// long-lived connections of each service (40), and the file for the summary.
const (
	soakFor   = "JEOUL_SOAK"
	soakSeed  = "JEOUL_SOAK_SEED"
	soakCrowd = "JEOUL_SOAK_CROWD"
	soakOut   = "JEOUL_SOAK_OUT"
	// The kinds of faults and the services to select, separated by commas; all if empty.
	soakFaults     = "JEOUL_SOAK_FAULTS"
	soakOfServices = "JEOUL_SOAK_SERVICES"
)

const (
	soakBackends   = 6
	defaultClients = 40
	shortPerLong   = 4 // long-lived connections per short-lived one
	firstMinutes   = 2 * time.Minute
	reportInterval = 30 * time.Second
	explainAfter   = 3 * time.Second
	soakFlowLimit  = 20000
)

// soakTimeouts are short, so that flows are reported again and forgotten many times in an hour.
var soakTimeouts = lb.Timeouts{Opening: 10 * time.Second, First: 10 * time.Second, Established: 90 * time.Second,
	UDP: 30 * time.Second, Fin: 20 * time.Second, Closed: 10 * time.Second}

// soakService is a service of a soak; each has all backends.
type soakService struct {
	name      string
	port      uint16
	mode      lb.Mode
	scheduler lb.Scheduler
}

var soakServices = []soakService{
	{"maglev", 7000, lb.L2DSR, lb.Maglev}, {"sh", 7001, lb.L2DSR, lb.SourceHash}, {"rr", 7002, lb.L2DSR, lb.RoundRobin},
	{"lc", 7003, lb.L2DSR, lb.LeastConnections}, {"ipip-maglev", 7004, lb.IPIP, lb.Maglev},
}

// soakRun is a running soak.
type soakRun struct {
	t         *testing.T
	began     time.Time
	lab       *lab.Lab
	services  []soakService
	kinds     []soak.Kind // nil: all
	balancers []*soakBalancer
	doors     []*backendListeners
	backends  map[string]int
	watch     *watch
	crowd     *soakClients
	wanted    struct {
		mu            sync.Mutex
		drained, left []bool
		weights       []int
	}

	mu            sync.Mutex
	summary       soak.Summary
	pendingChecks sync.WaitGroup
}

// TestSoak injects faults into three balancers behind a router, in the order of a seed, under live connections: none
// breaks without a reason that package soak accepts, and in the end all balancers agree, and use no more resources than
// in the beginning.
func TestSoak(t *testing.T) {
	length, err := time.ParseDuration(os.Getenv(soakFor))
	if err != nil {
		t.Skipf("set %s, such as 1h: `make test-soak`", soakFor)
	}
	testenv.Program(t, "bird")
	testenv.Program(t, "nft")
	s := newSoak(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var looking, crowding sync.WaitGroup
	s.watch.begin(ctx, &looking, s.services)
	for _, b := range s.balancers {
		if err := s.start(b)(ctx); err != nil {
			t.Fatal(err)
		}
	}
	s.calm(t, ctx)
	crowd, endCrowd := context.WithCancel(ctx)
	defer endCrowd()
	long := numberOf(t, soakCrowd, defaultClients)
	crowding.Go(func() { s.crowd.begin(crowd, int(long), int(long)/shortPerLong); s.crowd.group.Wait() })
	s.makeFaults(ctx, numberOf(t, soakSeed, uint64(time.Now().UnixNano())), length)
	s.logf("no more faults")
	s.calm(t, ctx)
	s.measureLast(t)
	s.summary.Open = s.crowd.openNow.Load()
	endCrowd()
	crowding.Wait()
	s.pendingChecks.Wait()
	s.drainFlows(t, ctx)
	cancel()
	looking.Wait()
	s.end(t)
	s.finish(t)
}

func (s *soakRun) logf(format string, arguments ...any) {
	s.t.Logf("%s +%-8v %s", time.Now().Format("15:04:05.000"), time.Since(s.began).Round(time.Second),
		fmt.Sprintf(format, arguments...))
}

// failf records a failure, and continues.
func (s *soakRun) failf(format string, arguments ...any) {
	text := fmt.Sprintf(format, arguments...)
	s.logf("WRONG: %s", text)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.summary.Failures = append(s.summary.Failures, text)
}

// newSoak builds everything except the daemons.
func newSoak(t *testing.T) *soakRun {
	t.Helper()
	var id string
	t.Cleanup(func() {
		left, err := filepath.Glob("/run/netns/jeoul-" + id + "-*")
		if err != nil || len(left) > 0 {
			t.Errorf("namespaces that are left: %v, %v", left, err)
		}
	})
	l := newLab(t, lab.Spec{Clients: 4, Servers: soakBackends, Balancers: 3})
	id = l.ID
	s := &soakRun{t: t, began: time.Now(), lab: l, services: soakServices, backends: map[string]int{}}
	s.narrow(t)
	s.summary.Faults, s.summary.Broken, s.summary.Digests = map[soak.Kind]int{}, map[soak.Reason]int{},
		map[string]string{}
	s.wanted.drained, s.wanted.left, s.wanted.weights = make([]bool, soakBackends), make([]bool, soakBackends),
		slices.Repeat([]int{1}, soakBackends)
	for n, h := range l.Servers {
		s.backends[h.Name] = n
		s.serve(t, h)
	}
	routeTo(t, l)
	for n, h := range l.Balancers {
		s.addBalancer(t, n, h)
	}
	s.watch = &watch{lab: l, balancers: s.balancers}
	s.crowd = &soakClients{clients: l.Clients, vip: l.VIP4, services: s.services, backends: s.backends,
		broke:   s.explainBroken,
		refused: s.explainRefused}
	return s
}

// narrow leaves out the faults and services that the environment does not name.
func (s *soakRun) narrow(t *testing.T) {
	t.Helper()
	if text := os.Getenv(soakFaults); text != "" {
		for _, name := range strings.Split(text, ",") {
			if !soak.Kind(name).Known() {
				t.Fatalf("%s: there is no fault %q", soakFaults, name)
			}
			s.kinds = append(s.kinds, soak.Kind(name))
		}
	}
	if text := os.Getenv(soakOfServices); text != "" {
		names := strings.Split(text, ",")
		s.services = slices.DeleteFunc(slices.Clone(soakServices), func(of soakService) bool {
			return !slices.Contains(names, of.name)
		})
		if len(s.services) != len(names) {
			t.Fatalf("%s=%s: not all of these are services", soakOfServices, text)
		}
	}
}

// addBalancer prepares a balancer, which is started later.
func (s *soakRun) addBalancer(t *testing.T, n int, h *lab.Host) {
	t.Helper()
	log, err := os.Create(filepath.Join(h.Dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	b := &soakBalancer{number: n, host: h, config: filepath.Join(h.Dir, "jeoul.yaml"),
		socket: filepath.Join(h.Dir, "jeoul.sock"), log: log, failf: s.failf}
	s.balancers = append(s.balancers, b)
	if err := s.write(b); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		log.Close()
		if keep := os.Getenv(soakOut); keep != "" && t.Failed() {
			text, err := os.ReadFile(log.Name())
			if err == nil {
				err = os.WriteFile(keep+"."+h.Name+".log", text, 0o644)
			}
			t.Logf("the log of %s is in %s.%s.log: %v", h.Name, keep, h.Name, err)
		}
	})
}

// serve prepares a backend and opens its listeners.
func (s *soakRun) serve(t *testing.T, server *lab.Host) {
	t.Helper()
	var a *agent.Agent
	err := server.Do(func() (err error) {
		a, err = agent.Start(agent.Options{VIPs: []netip.Addr{s.lab.VIP4}, Modes: []lb.Mode{lb.L2DSR, lb.IPIP},
			Dir: filepath.Join(server.Dir, "state")})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	d := &backendListeners{host: server}
	for _, service := range s.services {
		d.ports = append(d.ports, service.port)
	}
	s.doors = append(s.doors, d)
	if err := d.open(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		d.close()
		if err := server.Do(a.Close); err != nil {
			t.Error(err)
		}
	})
}

// write writes a balancer's configuration, from the desired state.
func (s *soakRun) write(b *soakBalancer) error {
	file := config.New()
	file.Interfaces, file.Hook, file.Socket = []string{b.host.Interface}, lb.HookTC, b.socket
	file.Flows = config.Flows{Limit: soakFlowLimit, Unproven: soakFlowLimit / 4, Timeouts: soakTimeouts}
	file.Transition.TCP = 2 * time.Minute
	jeoulsubject.Announce(file, s.lab, b.host)
	s.wanted.mu.Lock()
	defer s.wanted.mu.Unlock()
	for _, of := range s.services {
		service := lb.Service{Name: of.name, VIP: s.lab.VIP4, Port: of.port, Protocol: lb.TCP, Mode: of.mode,
			Scheduler: of.scheduler,
			Checks: lb.Checks{Panic: lb.DefaultPanic, OnDown: lb.DefaultOnDown(lb.TCP),
				List: []lb.Check{{Type: lb.CheckTCP,
					Interval: 2 * time.Second, Fast: 2 * time.Second, Timeout: 2 * time.Second, Fall: 2, Rise: 1}}}}
		for n, d := range s.doors {
			if !s.wanted.left[n] {
				service.Backends = append(service.Backends, lb.Backend{Name: d.host.Name, Address: d.host.IPv4,
					Port: of.port, Weight: uint16(s.wanted.weights[n])})
			}
		}
		file.Services = append(file.Services, service)
	}
	text, err := config.Write(file)
	if err != nil {
		return err
	}
	return b.host.WriteFile(b.config, text)
}

// calm waits until no balancer lacks anything, has a problem, or differs from the others.
func (s *soakRun) calm(t *testing.T, ctx context.Context) {
	t.Helper()
	err := s.watch.until(ctx, soakTimeout, func() string {
		for n := range s.balancers {
			if lacks := s.watch.missing(n); lacks != "" {
				return lacks
			}
			if problems := s.watch.seen[n].Problems; len(problems) > 0 {
				return fmt.Sprintf("%s has problems: %s", s.balancers[n].host.Name, strings.Join(problems, "; "))
			}
		}
		for backend := range s.doors {
			if lacks := s.backendMissing(backend); lacks != "" {
				return lacks
			}
		}
		return ""
	})
	if err != nil {
		s.failf("all is not calm: %v", err)
		return
	}
	for _, service := range s.services {
		s.summary.Digests[service.name] = digestOf(s.watch.seen[0], service.name)
	}
	s.logf("all is calm")
}

// makeFaults makes one fault after the other, and returns when the last is over.
func (s *soakRun) makeFaults(ctx context.Context, seed uint64, length time.Duration) {
	schedule := soak.Schedule(seed, length, soak.Among{Balancers: len(s.balancers), Backends: len(s.doors),
		Kinds: s.kinds})
	s.summary.Seed = seed
	s.logf("%s=%d: %d faults in %v", soakSeed, seed, len(schedule), length)
	var group sync.WaitGroup
	room, backends := make(chan struct{}, atOnce), make([]sync.Mutex, len(s.doors))
	began, measured, reported := time.Now(), false, time.Now()
	for _, fault := range schedule {
		pause(ctx, fault.After)
		if ctx.Err() != nil || time.Since(began) > length {
			s.logf("%d of %d faults were made: each waits for its target", fault.Number-1, len(schedule))
			break
		}
		free := s.lockTargets(fault, room, backends)
		s.mu.Lock()
		s.summary.Faults[fault.Kind]++
		if fault.Kind.OfBalancer() && len(room) > 1 {
			s.summary.Overlapping++
		}
		s.mu.Unlock()
		group.Go(func() {
			defer free()
			s.runFault(ctx, fault)
		})
		if !measured && time.Since(began) > min(firstMinutes, length/2) {
			group.Wait()
			measured = true
			s.calm(s.t, ctx)
			s.summary.First = s.measure()
		}
		if time.Since(reported) > reportInterval {
			reported = time.Now()
			s.report()
		}
	}
	group.Wait()
	s.summary.Seconds = time.Since(began).Seconds()
}

// lockTargets waits until the balancers or the backend of a fault are free, locks them, and returns a function that
// unlocks them.
func (s *soakRun) lockTargets(fault soak.Fault, room chan struct{}, backends []sync.Mutex) (free func()) {
	if fault.Kind == soak.UnknownSender {
		return func() {}
	}
	if !fault.Kind.OfBalancer() {
		backends[fault.Backend].Lock()
		return backends[fault.Backend].Unlock
	}
	room <- struct{}{}
	for _, n := range fault.Balancers {
		s.balancers[n].taken.Lock()
	}
	return func() {
		for _, n := range fault.Balancers {
			s.balancers[n].taken.Unlock()
		}
		<-room
	}
}

// report logs the progress.
func (s *soakRun) report() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.logf("%d connections live, %d were opened, %d answers; broken %v, new ones that failed: %d in faults, %d otherwise; failures: %d", s.crowd.openNow.Load(), s.crowd.opened.Load(),
		s.crowd.answered.Load(), s.summary.Broken, s.summary.Refused, s.summary.RefusedInPeace, len(s.summary.Failures))
}

// explainBroken determines why a connection broke, once the events of that time are known. If none that is already
// known explains it, the balancers are asked immediately.
func (s *soakRun) explainBroken(c soak.Connection) {
	s.pendingChecks.Go(func() {
		s.watch.mu.Lock()
		taken := s.watch.timeline.Explain(c) == soak.OwnBackend
		s.watch.mu.Unlock()
		var found soak.Evidence
		if !taken {
			found = s.evidence(c)
		}
		pause(s.t.Context(), explainAfter)
		s.watch.mu.Lock()
		reason := s.watch.timeline.Explain(c)
		s.watch.mu.Unlock()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.summary.Broken[reason]++
		line := fmt.Sprintf("%s: %s, opened %s, proven %s, last answered %s, broken %s: %s", c.Service, reason,
			c.Opened.Format("15:04:05.000"), c.Proven.Format("15:04:05.000"), c.Answered.Format("15:04:05.000"),
			c.Broke.Format("15:04:05.000"), c.Error)
		if reason == soak.Unexplained {
			s.summary.Unexplained = append(s.summary.Unexplained, line)
			found.Connection = line
			s.summary.Evidence = append(s.summary.Evidence, found)
		}
		if reason != soak.OwnBackend {
			s.logf("broken: %s\n%s", line, found)
		}
	})
}

// explainRefused determines why a new connection failed.
func (s *soakRun) explainRefused(service soakService, opening soak.Span, err error) {
	s.pendingChecks.Go(func() {
		pause(s.t.Context(), explainAfter)
		s.watch.mu.Lock()
		explained := s.watch.timeline.ExplainRefused(opening)
		s.watch.mu.Unlock()
		s.mu.Lock()
		defer s.mu.Unlock()
		if explained {
			s.summary.Refused++
			return
		}
		s.summary.RefusedInPeace++
		s.summary.Unexplained = append(s.summary.Unexplained, fmt.Sprintf("%s: a new connection at %s: %v",
			service.name, opening.From.Format("15:04:05.000"), err))
		s.logf("WRONG: %s: a new connection failed: %v", service.name, err)
	})
}

func (s *soakRun) measure() (all []soak.Held) {
	for _, b := range s.balancers {
		held, err := b.measure()
		if err != nil {
			s.failf("measure %s: %v", b.host.Name, err)
		}
		all = append(all, held)
	}
	return all
}

// measureLast compares the resources that daemons use with those of the first minutes.
func (s *soakRun) measureLast(t *testing.T) {
	t.Helper()
	s.summary.Last = s.measure()
	if len(s.summary.First) < len(s.summary.Last) {
		s.summary.First = s.summary.Last // too short to compare
	}
	for i, last := range s.summary.Last {
		for _, line := range last.Leaks(s.summary.First[i]) {
			s.failf("%s", line)
		}
	}
}

// drainFlows waits until all flows of the clients are forgotten.
func (s *soakRun) drainFlows(t *testing.T, ctx context.Context) {
	t.Helper()
	var left uint64
	err := s.watch.until(ctx, soakTimeout+2*soakTimeouts.Established, func() string {
		left = 0
		for n, status := range s.watch.seen {
			if status == nil || status.Flows == nil {
				return s.balancers[n].host.Name + " does not answer"
			}
			left += status.Flows.Proven + status.Flows.Unproven
		}
		if left > 0 {
			return fmt.Sprintf("flows are remembered: %d", left)
		}
		return ""
	})
	s.summary.FlowsLeft = left
	if err != nil {
		s.failf("the crowd is gone: %v", err)
	}
}

// end stops all balancers, which must leave nothing.
func (s *soakRun) end(t *testing.T) {
	t.Helper()
	for _, b := range s.balancers {
		if err := b.end(context.Background(), syscall.SIGTERM); err != nil {
			s.failf("%v", err)
			continue
		}
		if n, err := b.pins(); err != nil || n > 0 {
			s.failf("%s has stopped, and pins are left: %d, %v", b.host.Name, n, err)
		}
		left, err := os.ReadDir(filepath.Join(b.host.Dir, "state"))
		if err != nil || len(left) > 0 {
			s.failf("%s has stopped, and in its state directory is left: %v, %v", b.host.Name, left, err)
		}
	}
}

// finish logs the summary, and writes it to a file if one is named.
func (s *soakRun) finish(t *testing.T) {
	t.Helper()
	sum := &s.summary
	sum.NextHopChanges, sum.Opened, sum.Answered = len(s.watch.timeline.NextHops), s.crowd.opened.Load(),
		s.crowd.answered.Load()
	for _, line := range append(slices.Clone(sum.Unexplained), sum.Failures...) {
		t.Error(line)
	}
	t.Logf("\n%s", sum)
	if path := os.Getenv(soakOut); path != "" {
		text, err := json.MarshalIndent(sum, "", "  ")
		if err == nil {
			err = os.WriteFile(path, append(text, '\n'), 0o644)
		}
		if err != nil {
			t.Error(err)
		}
	}
}
