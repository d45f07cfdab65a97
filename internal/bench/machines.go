// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/jeoul/jeoul/internal/bench/load"
	"github.com/jeoul/jeoul/internal/bench/probe"
	"github.com/jeoul/jeoul/internal/bench/subject"
	"github.com/jeoul/jeoul/internal/config"
	"github.com/jeoul/jeoul/internal/lab"
	"github.com/jeoul/jeoul/internal/remote"
	"github.com/jeoul/jeoul/internal/results"
)

// ErrMachines says that a suite cannot run on machines; the error says why.
var ErrMachines = errors.New("this suite cannot run on machines")

// machineNotes are facts about a laboratory of machines that every figure depends on.
var machineNotes = []string{
	"hosts are machines of an inventory, reached by SSH; their network cards' offloads, queues and congestion control are as they were found",
	"CPU is that of all processes of a machine but the bench's worker; with the packet work for each device, measured where the kernel polls it (tracepoint napi_poll)",
	settleNote,
	"on machines, connections between the inventory's addresses are meant in all of this, those of SSH apart",
}

// notesOnMachines are those on everything that the form does there.
func (f Form) notesOnMachines() []string {
	all := slices.Clone(machineNotes)
	if f.has(false) {
		all = append(all, webNotes...)
	}
	if f.has(true) {
		all = append(all, bulkNotes...)
	}
	return all
}

// onMachines takes a form as it runs on the machines of an inventory: with as many
// clients and servers as there are. The error says why nothing of it can.
func (f Form) onMachines(inventory *remote.Inventory) (Form, error) {
	f.Lab = Size{Clients: len(inventory.Clients), Servers: len(inventory.Servers)}
	f.far = true
	reasons := f.farAbsent()
	var all []string
	for _, l := range f.Loads {
		reason := reasons[l.Kind]
		if reason == "" {
			return f, nil
		}
		all = append(all, l.Name+": "+reason)
	}
	return f, fmt.Errorf("%w: %s", ErrMachines, strings.Join(slices.Compact(all), "; "))
}

// farAbsent says of kinds of load why they cannot run on machines.
func (f Form) farAbsent() map[string]string {
	absent := map[string]string{}
	for _, l := range f.Loads {
		if _, ok := load.Find(l.Kind); !ok {
			absent[l.Kind] = l.Kind + " needs the laboratory of namespaces: it is conducted step by step in all hosts at once, on one clock and one set of cores"
		}
	}
	return absent
}

// farObstacle says what keeps a point from machines; empty if nothing, or if the hosts
// are none.
func (p Point) farObstacle() string {
	switch {
	case p.Form.far && p.Pinned:
		return "pinned: it ties clients and servers that share one machine to cores of their own; on machines each has its own"
	case p.Form.far && p.Tune != "":
		return "tune: machines keep their settings; prepare them by `jeoul tune` or the role in deploy/ansible"
	case p.Form.far && p.TLS:
		return "tls: its certificate is the laboratory's of namespaces only"
	}
	return ""
}

var describeTask = lab.NewTask("describe", func(context.Context, *lab.Host, struct{}) (results.Environment, error) {
	return Machine("", "")
})

// programVersion is what a machine says of a program.
type programVersion struct{ Version, Missing string }

// askedProgram is a program, and the flag by which it tells its version.
type askedProgram struct{ Name, Flag string }

var programTask = lab.NewTask("program", func(ctx context.Context, _ *lab.Host, p askedProgram) (programVersion, error) {
	version, err := probe.Version(ctx, p.Name, p.Flag)
	if errors.Is(err, probe.ErrNotInstalled) {
		return programVersion{Missing: p.Name + " is not installed there"}, nil
	}
	return programVersion{Version: version}, err
})

// farEnvironment describes the machines and their programs, as environment does for
// this one. A machine that lacks what all trials need is an error, with the
// inventory's line.
func farEnvironment(ctx context.Context, l *lab.Lab, form Form, options Options) (env results.Environment, absent Absent, err error) {
	s := &survey{inventory: options.Inventory, absent: Absent{Subjects: map[string]string{}, Kinds: form.farAbsent()}}
	if s.env, err = describeTask.On(ctx, l.Balancer, struct{}{}); err != nil {
		return s.env, s.absent, err
	}
	s.env.Versions["jeoul"], s.env.Commit = options.Version, options.Commit
	if form.has(false) {
		s.need(ctx, l.Servers, askedProgram{"nginx", "-v"})
	}
	for _, of := range form.Loads {
		kind, ok := load.Find(of.Kind)
		if !ok {
			continue
		}
		program := askedProgram{kind.Name(), kind.VersionFlag()}
		s.need(ctx, l.Clients, program)
		if kind.Bulk() {
			s.need(ctx, l.Servers, program)
		}
	}
	if err := s.problems.Err(); err != nil {
		return s.env, s.absent, fmt.Errorf("%w\nprepare the machines: ansible-playbook -i %s deploy/ansible/site.yml", err, options.Inventory.File)
	}
	for _, of := range form.Subjects {
		if known, ok := subject.Find(of.Name); ok {
			s.subject(ctx, l, known)
		}
	}
	maps.DeleteFunc(s.env.Versions, func(_, version string) bool { return version == "" })
	return s.env, s.absent, errors.Join(s.errs...)
}

// survey asks machines what they are and have.
type survey struct {
	inventory *remote.Inventory
	env       results.Environment
	absent    Absent
	mu        sync.Mutex
	problems  config.Problems
	errs      []error
}

// need asks hosts for a program that each of them must have.
func (s *survey) need(ctx context.Context, hosts []*lab.Host, program askedProgram) {
	found := map[string][]string{}
	s.errs = append(s.errs, lab.Each(hosts, func(h *lab.Host) error {
		got, err := programTask.On(ctx, h, program)
		if err != nil {
			return err
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if got.Missing != "" {
			s.missing(h.Name, got.Missing)
			return nil
		}
		found[got.Version] = append(found[got.Version], h.Name)
		return nil
	}))
	if len(found) <= 1 {
		for version := range found {
			s.env.Versions[program.Name] = version
		}
		return
	}
	// Differences are told, for they are in the figures.
	var words []string
	for _, version := range slices.Sorted(maps.Keys(found)) {
		slices.Sort(found[version])
		words = append(words, fmt.Sprintf("%s (%s)", version, strings.Join(found[version], ", ")))
	}
	s.env.Versions[program.Name] = strings.Join(words, ", ")
}

// missing notes a program that a host lacks, once.
func (s *survey) missing(host, what string) {
	problem := config.Problem{File: s.inventory.File, Field: host, Message: what}
	for _, h := range slices.Concat(s.inventory.Clients, s.inventory.Balancers, s.inventory.Servers) {
		if h.Name == host {
			problem.Line = h.Line
		}
	}
	if !slices.Contains(s.problems, problem) {
		s.problems = append(s.problems, problem)
		slices.SortFunc(s.problems, func(a, b config.Problem) int { return cmp.Compare(a.Line, b.Line) })
	}
}

// subject asks the balancer for a subject's programs.
func (s *survey) subject(ctx context.Context, l *lab.Lab, known subject.Subject) {
	if reason := subject.OnMachines(known, l); reason != "" {
		s.absent.Subjects[known.Name()] = reason
		return
	}
	got, err := subject.VersionsOn(ctx, l.Balancer, known)
	if err != nil {
		s.errs = append(s.errs, err)
		return
	}
	if got.Missing != "" {
		s.absent.Subjects[known.Name()] = l.Balancer.Name + ": " + got.Missing
		return
	}
	for program, version := range got.Versions {
		if there := s.env.Versions[program]; there != "" && there != version {
			version = fmt.Sprintf("%s, %s (%s)", there, version, l.Balancer.Name)
		}
		s.env.Versions[program] = version
	}
}

// addMachines says what the machines are, those that are alike together.
func addMachines(ctx context.Context, env *results.Environment, l *lab.Lab, form Form) error {
	alike := map[string][]string{}
	var mu sync.Mutex
	err := lab.Each(l.Hosts(), func(h *lab.Host) error {
		e, err := describeTask.On(ctx, h, struct{}{})
		mu.Lock()
		defer mu.Unlock()
		what := fmt.Sprintf("Linux %s, %s, %d cores, %.1f GiB of memory", e.Kernel, e.CPU, e.Cores, float64(e.MemoryBytes)/(1<<30))
		alike[what] = append(alike[what], h.Name)
		return err
	})
	var notes []string
	for _, what := range slices.Sorted(maps.Keys(alike)) {
		slices.Sort(alike[what])
		notes = append(notes, fmt.Sprintf("%s: %s", strings.Join(alike[what], ", "), what))
	}
	if machines, err := l.Machines(); err == nil && len(machines) < len(l.Hosts()) {
		notes = append(notes, fmt.Sprintf("these are %d hosts on %d machines, which they share", len(l.Hosts()), len(machines)))
	}
	env.Notes = append(append(append([]string{form.Lab.String() + " and a balancer, on machines"}, notes...), form.notesOnMachines()...), l.Notes...)
	return err
}

// limitsOf reads what bounds a run: the balancer's cores, and the least that any
// host offers of what all need.
func limitsOf(ctx context.Context, l *lab.Lab) (probe.Limits, error) {
	if !l.Far() {
		// On a client, for the range of local ports is the namespace's.
		return probe.LimitsOf(ctx, l.Clients[0])
	}
	limits, err := probe.LimitsOf(ctx, l.Balancer)
	if err != nil {
		return limits, err
	}
	var mu sync.Mutex
	limits.LocalPorts = 1 << 16
	err = lab.Each(slices.Concat(l.Clients, l.Servers), func(h *lab.Host) error {
		of, err := probe.LimitsOf(ctx, h)
		mu.Lock()
		defer mu.Unlock()
		limits.OpenFiles, limits.LocalPorts = min(limits.OpenFiles, of.OpenFiles), min(limits.LocalPorts, of.LocalPorts)
		return err
	})
	return limits, err
}

// writeRoot makes the web servers' file, once for all namespaces and on each
// machine, and returns the directory that it is in.
func writeRoot(ctx context.Context, l *lab.Lab, fileBytes int) (root func(*lab.Host) string, err error) {
	if !l.Far() {
		dir := filepath.Join(l.Dir, "html")
		return func(*lab.Host) string { return dir }, fill(filepath.Join(dir, fileName), fileBytes)
	}
	root = func(server *lab.Host) string { return filepath.Join(server.Dir, "html") }
	return root, lab.Each(l.Servers, func(server *lab.Host) error {
		_, err := fillTask.On(ctx, server, filled{filepath.Join(root(server), fileName), fileBytes})
		return err
	})
}

// filled is a file of so many bytes.
type filled struct {
	Path  string
	Bytes int
}

var fillTask = lab.NewTask("fill-file", func(_ context.Context, _ *lab.Host, f filled) (struct{}, error) {
	return struct{}{}, fill(f.Path, f.Bytes)
})

// fill makes a file of so many bytes, and its directory.
func fill(path string, size int) error {
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = os.WriteFile(path, bytes.Repeat([]byte{'x'}, size), 0o644)
	}
	if err != nil {
		return fmt.Errorf("making the web servers' file: %w", err)
	}
	return nil
}
