// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/weigh/bench/probe"
	"github.com/jeoul/jeoul/internal/weigh/bench/subject/subjects"
	"github.com/jeoul/jeoul/internal/weigh/lab"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// labNotes are facts about the laboratory and the measurement that every figure depends on (package lab has the reasons
// for its settings).
var labNotes = []string{
	"all hosts are network namespaces of this one machine and share its cores",
	"each program under test has a session of its own, and all others share the bench's: a scheduler that groups by session " +
		"(sched_autogroup_enabled) has each in a group alike, whether it makes a session itself or not; docker-proxy, a process for each server, shares the bench's",
	"GRO is on; congestion control is cubic",
	settleNote,
}

// frameNotes are the notes on loads without offloads, offloadNotes the notes on loads with offloads.
var (
	frameNotes = []string{
		"every device has a queueing discipline (pfifo_fast), which holds senders back instead of dropping",
		"TSO is off everywhere, transmit checksum offload on all hosts and towards the balancer (native XDP needs that)",
		"CPU has the kernel's part in it: the packet work of each device is measured where the kernel polls it (tracepoint napi_poll), " +
			"charged to its host, and taken off whatever process it ran on top of; a device has one queue, so that work has one core at most",
	}
	offloadNotes = []string{
		"with offloads, TSO and checksum offload are on everywhere as on network cards (for XDP all but the switch's port to the balancer), " +
			"packets of up to 64 KiB go the whole way in one piece, and no device has a queueing discipline",
		"with offloads, CPU has the kernel's part in it, too: packets are in a core's own queue, and each one's work, from where the kernel takes it up " +
			"(tracepoint netif_receive_skb) to the next one, is charged to the host of its device, and taken off whatever process it ran on top of",
	}
)

// notes returns the notes on everything that the form measures.
func (f Form) notes() []string {
	all := slices.Clone(labNotes)
	if framed := implementing[framing](f.experiments()); len(framed) > 0 {
		all = append(all, framed[0].FrameNotes()...)
	} else if slices.ContainsFunc(f.Loads, func(l Load) bool { return !l.Offloads }) {
		all = append(all, frameNotes...)
	}
	if slices.ContainsFunc(f.Loads, func(l Load) bool { return l.Offloads }) {
		all = append(all, offloadNotes...)
	}
	if f.Lab.Containers {
		all = append(all, containersNote)
	}
	if f.Lab.Balancers > 0 {
		all = append(all, fmt.Sprintf(severalNote, f.Lab.router().Name()))
	}
	if slices.ContainsFunc(f.Loads, Load.local) {
		all = append(all, localNote)
	}
	all = append(all, f.experimentNotes()...)
	if len(f.Tune) > 0 {
		all = append(all, tunedNote)
	}
	return all
}

// experimentNotes returns the notes of all experiments, each note once: two loads of one kind have the same notes.
func (f Form) experimentNotes() []string {
	var all []string
	for _, e := range f.experiments() {
		for _, note := range e.Notes(f) {
			if !slices.Contains(all, note) {
				all = append(all, note)
			}
		}
	}
	return all
}

// environment describes the machine and the programs of a run. A missing program of a subject or of a load is in
// absent, and makes the trials of that subject or load invalid. A missing program that the laboratory needs is an
// error.
func environment(ctx context.Context, form Form, options Options) (env results.Environment, absent Absent, err error) {
	absent = Absent{Subjects: map[string]string{}, Kinds: map[string]string{}, Generators: map[string]string{}}
	if env, err = Machine(options.Version, options.Commit); err != nil {
		return env, absent, err
	}
	var errs []error
	missing := func(from map[string]string, name string, err error) {
		if errors.Is(err, probe.ErrNotInstalled) {
			from[name] = err.Error()
			return
		}
		errs = append(errs, err)
	}
	for _, e := range form.experiments() {
		of := e.Programs()
		for _, program := range slices.Concat(of.Clients, of.Servers) {
			version, err := program.Version(ctx)
			env.Versions[program.Name] = version
			if program.Needed {
				errs = append(errs, err)
				continue
			}
			missing(absent.Kinds, e.Name(), err)
		}
	}
	for _, g := range form.generators() {
		version, missing, err := g.localVersion(ctx)
		env.Versions[g.Name], absent.Generators[g.Name] = version, missing
		errs = append(errs, err)
	}
	if kind := form.Lab.router(); form.Lab.Balancers > 0 && kind.SkipReason() == "" {
		env.Versions[string(kind)], err = probe.Version(ctx, kind.Program(), "--version")
		errs = append(errs, err)
	}
	for _, s := range form.Subjects {
		if known, ok := subjects.Find(s.Name); ok {
			versions, err := known.Versions(ctx)
			maps.Copy(env.Versions, versions)
			missing(absent.Subjects, s.Name, err)
		}
	}
	maps.DeleteFunc(env.Versions, func(_, version string) bool { return version == "" })
	return env, absent, errors.Join(errs...)
}

// Machine describes the machine as the kernel reports it, with the version and commit of this jeoul. It is the
// environment of a run without a laboratory.
func Machine(version, commit string) (results.Environment, error) {
	var names unix.Utsname
	if err := unix.Uname(&names); err != nil {
		return results.Environment{}, fmt.Errorf("asking for the kernel's version: %w", err)
	}
	kernel := unix.ByteSliceToString(names.Release[:])
	env := results.Environment{
		Kernel:   kernel,
		Cores:    runtime.NumCPU(),
		Versions: map[string]string{"jeoul": version, "kernel": kernel},
		Commit:   commit,
		Limits:   map[string]string{},
	}
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return env, fmt.Errorf("describing the machine: %w", err)
	}
	if cpus, err := proc.CPUInfo(); err == nil && len(cpus) > 0 {
		env.CPU = strings.TrimSpace(cpus[0].ModelName)
	}
	memory, err := proc.Meminfo()
	if err != nil {
		return env, fmt.Errorf("describing the machine: %w", err)
	}
	if memory.MemTotalBytes != nil {
		env.MemoryBytes = *memory.MemTotalBytes
	}
	return env, nil
}

// addLimits adds the limits of the run to its environment.
func addLimits(env *results.Environment, limits probe.Limits) {
	env.Cores = limits.Cores
	env.Limits["open_files"] = strconv.FormatUint(limits.OpenFiles, 10)
	env.Limits["cores"] = strconv.Itoa(limits.Cores)
	env.Limits["local_ports"] = strconv.Itoa(limits.LocalPorts)
	for name, n := range map[string]int{"tcp_orphans": limits.Orphans, "tcp_pages": limits.TCPPages} {
		if n > 0 {
			env.Limits[name] = strconv.Itoa(n)
		}
	}
}

// addLab adds the facts about the laboratory that a reader needs to the environment.
func addLab(env *results.Environment, l *lab.Lab, form Form) {
	size := form.Lab.String()
	if of := implementing[describing](form.experiments()); len(of) > 0 {
		size = of[0].Size(form)
	}
	env.Notes = append(append([]string{size}, form.notes()...), l.Notes...)
}

var describeTask = lab.NewTask("describe", func(context.Context, *lab.Host, struct{}) (results.Environment, error) {
	return Machine("", "")
})
