// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jeoul/jeoul/cmd/jeoul/e2e/soak"
	"github.com/jeoul/jeoul/internal/balancer/api"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

const (
	// pollInterval is the interval at which balancers are asked for their status, routePollInterval the interval at
	// which the router's routes are read, and pollTimeout how long a balancer may take to answer.
	pollInterval      = 250 * time.Millisecond
	routePollInterval = 50 * time.Millisecond
	pollTimeout       = 5 * time.Second
)

// watch continuously follows the balancers and their router.
type watch struct {
	lab       *lab.Lab
	balancers []*soakBalancer

	mu       sync.Mutex
	timeline soak.Timeline
	// routes are the balancers that the router sends to now.
	routes []int
	// rounds counts how often all balancers were asked.
	rounds int
	seen   []*ops.Status // nil: the balancer did not answer
	// differs holds the services whose tables differ now, or whose tables are not all known.
	differs map[string]bool
}

// begin watches until ctx ends.
func (w *watch) begin(ctx context.Context, group *sync.WaitGroup, services []soakService) {
	w.timeline = soak.Timeline{Balancers: len(w.balancers), Differed: map[string][]soak.Span{}}
	w.seen, w.differs = make([]*ops.Status, len(w.balancers)), map[string]bool{}
	group.Go(func() {
		for before := time.Now(); ctx.Err() == nil; pause(ctx, routePollInterval) {
			before = w.readRoutes(before)
		}
	})
	group.Go(func() {
		for ; ctx.Err() == nil; pause(ctx, pollInterval) {
			w.poll(ctx, services)
		}
	})
}

// readRoutes reads the router's routes to the VIP, which were last read at before, and returns the time of this
// reading.
func (w *watch) readRoutes(before time.Time) time.Time {
	now := time.Now()
	hosts, err := w.lab.NextHops(w.lab.VIP4)
	if err != nil {
		return before // read during a change; the next reading has them
	}
	var hops []int
	for n, b := range w.balancers {
		if slices.Contains(hosts, b.host) {
			hops = append(hops, n)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !slices.Equal(hops, w.routes) {
		w.routes = hops
		w.timeline.NextHops = append(w.timeline.NextHops, soak.RouteChange{Before: before, Seen: time.Now()})
	}
	return now
}

// poll asks all balancers at once.
func (w *watch) poll(ctx context.Context, services []soakService) {
	began := time.Now()
	seen := make([]*ops.Status, len(w.balancers))
	var group sync.WaitGroup
	for n, b := range w.balancers {
		group.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, pollTimeout)
			defer cancel()
			seen[n], _ = api.NewClient(b.socket).Status(ctx) // nil means no answer
		})
	}
	group.Wait()
	if ctx.Err() != nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for n, status := range seen {
		if status != nil && status.BGP != nil && status.BGP.SpeakerPID > 0 {
			w.balancers[n].speaker.Store(int64(status.BGP.SpeakerPID))
		}
	}
	w.seen, w.rounds = seen, w.rounds+1
	for _, service := range services {
		w.compare(service.name, began)
	}
}

// compare records since when the tables of a service differ.
func (w *watch) compare(service string, began time.Time) {
	first, differ := "", false
	for _, status := range w.seen {
		digest := digestOf(status, service)
		if first == "" {
			first = digest
		}
		differ = differ || digest == "" || digest != first
	}
	spans := w.timeline.Differed[service]
	switch was := w.differs[service]; {
	case differ && !was:
		// The difference seen now began after the last reading.
		spans = append(spans, soak.Span{From: began.Add(-2 * pollInterval)})
	case !differ && was:
		spans[len(spans)-1].To = time.Now()
	}
	w.differs[service], w.timeline.Differed[service] = differ, spans
}

func digestOf(status *ops.Status, service string) string {
	if status == nil {
		return ""
	}
	for _, s := range status.Services {
		if s.Name == service {
			return s.TableDigest
		}
	}
	return ""
}

// note adds a fault to the timeline.
func (w *watch) note(f *soak.Happened) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timeline.Faults = append(w.timeline.Faults, f)
}

// change changes the record of a fault.
func (w *watch) change(what func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	what()
}

// until waits until nothing is missing in two rounds that both began later.
func (w *watch) until(ctx context.Context, bound time.Duration, missing func() string) error {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	w.mu.Lock()
	first := w.rounds + 2
	w.mu.Unlock()
	for {
		w.mu.Lock()
		lacks := "no balancer was asked"
		if w.rounds >= first {
			lacks = missing()
		}
		w.mu.Unlock()
		switch {
		case lacks == "":
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("after %v: %s", bound, lacks)
		}
		pause(ctx, pollInterval)
	}
}

// missing names a condition that a balancer does not meet for its recovery, among the balancers without a fault; w.mu
// is held.
func (w *watch) missing(n int) string {
	b, status := w.balancers[n], w.seen[n]
	switch {
	case status == nil:
		return b.host.Name + " does not answer"
	case !slices.Contains(w.routes, n):
		return "the router does not send to " + b.host.Name
	case status.Members == nil:
		return b.host.Name + " has no members"
	}
	for other, o := range w.balancers {
		if other == n || o.faults.Load() > 0 {
			continue
		}
		i := slices.IndexFunc(status.Members.Members, func(m ops.Member) bool { return m.Name == o.host.Name })
		if i < 0 {
			return fmt.Sprintf("%s does not know %s", b.host.Name, o.host.Name)
		}
		if m := status.Members.Members[i]; m.State != ops.MemberAlive || !m.Ready || m.Flows == nil ||
			!m.Flows.Sending || !m.Flows.Receiving || !m.Flows.Synced {
			return fmt.Sprintf("%s and %s do not tell each other of flows: %s, ready %v, %+v", b.host.Name, o.host.Name,
				m.State, m.Ready, m.Flows)
		}
	}
	return ""
}

// different names a service whose table differs among balancers without a fault; w.mu is held.
func (w *watch) different(services []soakService) string {
	for _, service := range services {
		first := ""
		for n, status := range w.seen {
			if w.balancers[n].faults.Load() > 0 {
				continue
			}
			digest := digestOf(status, service.name)
			if first == "" {
				first = digest
			}
			if digest == "" || digest != first {
				return fmt.Sprintf("the digest of %s at %s is %q, and %q elsewhere", service.name,
					w.balancers[n].host.Name, digest, first)
			}
		}
	}
	return ""
}

// measure reads a daemon's use of descriptors, memory and pins.
func (b *soakBalancer) measure() (soak.Held, error) {
	pid := b.daemon.PID()
	held := soak.Held{Balancer: b.host.Name, PID: pid, At: time.Now()}
	fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		return held, err
	}
	for _, fd := range fds {
		to, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", pid, fd.Name()))
		if err != nil {
			continue // closed meanwhile
		}
		held.Descriptors++
		if strings.HasPrefix(to, "anon_inode:bpf") {
			held.BPF++
		}
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return held, err
	}
	for line := range strings.Lines(string(status)) {
		fields := strings.Fields(line)
		switch {
		case len(fields) < 2:
		case fields[0] == "VmRSS:":
			held.RSSKiB, _ = strconv.Atoi(fields[1])
		case fields[0] == "Threads:":
			held.Threads, _ = strconv.Atoi(fields[1])
		}
	}
	held.Pins, err = b.pins()
	return held, err
}

// pins counts the pins on the balancer.
func (b *soakBalancer) pins() (n int, err error) {
	err = b.host.Do(func() error {
		return filepath.WalkDir("/sys/fs/bpf", func(path string, _ os.DirEntry, err error) error {
			if strings.HasPrefix(path, "/sys/fs/bpf/jeoul") {
				n++
			}
			return err
		})
	})
	return n, err
}
