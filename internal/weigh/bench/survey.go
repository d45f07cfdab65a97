// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/jeoul/jeoul/internal/text/yamlfile"
	"github.com/jeoul/jeoul/internal/weigh/bench/probe"
	"github.com/jeoul/jeoul/internal/weigh/bench/subject"
	"github.com/jeoul/jeoul/internal/weigh/bench/subject/subjects"
	"github.com/jeoul/jeoul/internal/weigh/lab"
	"github.com/jeoul/jeoul/internal/weigh/remote"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// programVersion is the version of a program on a machine, or the reason why it is missing.
type programVersion struct{ Version, Missing string }

var programTask = lab.NewTask("program",
	func(ctx context.Context, _ *lab.Host, p Program) (programVersion, error) {
		version, err := p.Version(ctx)
		if errors.Is(err, probe.ErrNotInstalled) {
			return programVersion{Missing: p.Name + " is not installed there"}, nil
		}
		return programVersion{Version: version}, err
	})

// remoteEnvironment describes the machines and their programs, as environment does for this machine. If a machine lacks
// a program that all trials need, the error names the line of the inventory.
func remoteEnvironment(ctx context.Context, l *lab.Lab, form Form, options Options) (env results.Environment,
	absent Absent, err error) {
	s := &survey{inventory: options.Inventory, absent: Absent{
		Subjects: map[string]string{}, Kinds: form.remoteAbsent(), Generators: map[string]string{}}}
	if s.env, err = describeTask.On(ctx, l.Balancer, struct{}{}); err != nil {
		return s.env, s.absent, err
	}
	s.env.Versions["jeoul"], s.env.Commit = options.Version, options.Commit
	s.programs(ctx, l, form)
	if err := s.problems.Err(); err != nil {
		return s.env, s.absent, fmt.Errorf("%w\nprepare the machines: ansible-playbook -i %s deploy/ansible/site.yml",
			err, options.Inventory.File)
	}
	for _, of := range form.Subjects {
		if known, ok := subjects.Find(of.Name); ok {
			s.subject(ctx, l, known)
		}
	}
	maps.DeleteFunc(s.env.Versions, func(_, version string) bool { return version == "" })
	return s.env, s.absent, errors.Join(s.errs...)
}

// programs determines the programs that servers and loads need.
func (s *survey) programs(ctx context.Context, l *lab.Lab, form Form) {
	for _, e := range form.experiments() {
		if s.absent.Kinds[e.Name()] != "" {
			continue
		}
		of := e.Programs()
		for _, program := range of.Clients {
			s.need(ctx, l.Clients, program)
		}
		for _, program := range of.Servers {
			s.need(ctx, l.Servers, program)
		}
	}
	for _, g := range form.generators() {
		s.generator(ctx, l, g)
	}
}

// generator determines the programs of a generator on the hosts that would run it. If they are missing, only the points
// with that generator cannot run.
func (s *survey) generator(ctx context.Context, l *lab.Lab, g *Generator) {
	ask := func(h *lab.Host, programs []Program) {
		for _, program := range programs {
			got, err := programTask.On(ctx, h, program)
			switch {
			case err != nil:
				s.errs = append(s.errs, err)
			case got.Missing != "":
				s.absent.Generators[g.Name] = h.Name + ": " + g.Missing(program.Name)
			default:
				s.env.Versions[program.Name] = got.Version
			}
		}
	}
	ask(l.Servers[0], g.Servers)
	ask(l.Clients[0], g.Clients)
}

// survey collects facts and programs of machines.
type survey struct {
	inventory *remote.Inventory
	env       results.Environment
	absent    Absent
	mu        sync.Mutex
	problems  yamlfile.Problems
	errs      []error
}

// need asks hosts for a program that each of them must have.
func (s *survey) need(ctx context.Context, hosts []*lab.Host, program Program) {
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
	// Differences of versions are noted, because they affect the figures.
	var words []string
	for _, version := range slices.Sorted(maps.Keys(found)) {
		slices.Sort(found[version])
		words = append(words, fmt.Sprintf("%s (%s)", version, strings.Join(found[version], ", ")))
	}
	s.env.Versions[program.Name] = strings.Join(words, ", ")
}

// missing records, once, a program that a host lacks.
func (s *survey) missing(host, what string) {
	problem := yamlfile.Problem{File: s.inventory.File, Field: host, Message: what}
	for _, h := range slices.Concat(s.inventory.Clients, s.inventory.Balancers, s.inventory.Servers) {
		if h.Name == host {
			problem.Line = h.Line
		}
	}
	if !slices.Contains(s.problems, problem) {
		s.problems = append(s.problems, problem)
		s.problems.SortByLine()
	}
}

// subject asks the balancer for the programs of a subject.
func (s *survey) subject(ctx context.Context, l *lab.Lab, known subject.Subject) {
	if reason := subject.OnMachines(known, l); reason != "" {
		s.absent.Subjects[known.Name()] = reason
		return
	}
	got, err := subjects.VersionsOn(ctx, l.Balancer, known)
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
