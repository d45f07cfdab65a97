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

	"github.com/jeoul/jeoul/internal/bench/load"
	"github.com/jeoul/jeoul/internal/bench/probe"
	"github.com/jeoul/jeoul/internal/bench/subject"
	"github.com/jeoul/jeoul/internal/lab"
	"github.com/jeoul/jeoul/internal/results"
)

// labNotes are facts about the laboratory and the measuring that every figure
// depends on (see package lab for the reasons of its settings).
var labNotes = []string{
	"all hosts are network namespaces of this one machine and share its cores",
	"TSO is off everywhere, transmit checksum offload on all hosts and towards the balancer (native XDP needs that); GRO is on; " +
		"every device has a queueing discipline (pfifo_fast), which holds senders back instead of dropping",
	"CPU per request has the kernel's part in it: the packet work of each device is measured where the kernel polls it (tracepoint napi_poll), " +
		"charged to its host, and taken off whatever process it ran on top of; a device has one queue, so that work has one core at most",
	"congestion control is cubic",
	"latencies are what the generators clocked, merged over all clients request by request (HdrHistogram, three digits). " +
		"ab gives 101 percentiles per client, between which requests are spread evenly; wrk every request, with wrk's own correction " +
		"(requests that it adds after the fact) taken out. ab's latency includes connecting, wrk's does not",
	"requests per second are good answers divided by the time from the first client's first request to the last client's last answer",
	"connections per backend are those that its kernel accepted (TcpPassiveOpens); wrk makes one a client more than it was asked for",
	settleNote,
}

// environment describes the machine and the programs of a run. A program that
// is missing is an error, before anything was built.
func environment(ctx context.Context, form Form, options Options) (results.Environment, error) {
	env, err := Machine(options.Version, options.Commit)
	if err != nil {
		return env, err
	}
	var errs []error
	flags := programs(form)
	for _, program := range slices.Sorted(maps.Keys(flags)) {
		version, err := probe.Version(ctx, program, flags[program])
		env.Versions[program] = version
		errs = append(errs, err)
	}
	for _, s := range form.Subjects {
		if known, ok := subject.Find(s.Name); ok {
			versions, err := known.Versions(ctx)
			maps.Copy(env.Versions, versions)
			errs = append(errs, err)
		}
	}
	return env, errors.Join(errs...)
}

// programs are what a form needs besides its subjects' own, each with the flag
// that makes it tell its version.
func programs(form Form) map[string]string {
	needed := map[string]string{"nginx": "-v"}
	for _, l := range form.Loads {
		if kind, ok := load.Find(l.Kind); ok {
			needed[kind.Name()] = kind.VersionFlag()
		}
	}
	return needed
}

// Machine is what the kernel says of the machine, and the version and commit of
// this jeoul: the environment of a run that needs no laboratory.
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

// addLimits writes down what bounded the run.
func addLimits(env *results.Environment, limits probe.Limits) {
	env.Cores = limits.Cores
	env.Limits["open_files"] = strconv.FormatUint(limits.OpenFiles, 10)
	env.Limits["cores"] = strconv.Itoa(limits.Cores)
	env.Limits["local_ports"] = strconv.Itoa(limits.LocalPorts)
}

// addLab writes down what a reader must know of the laboratory.
func addLab(env *results.Environment, l *lab.Lab, form Form) {
	size := fmt.Sprintf("%d clients, %d web servers (nginx, %d workers, access log on), a file of %d bytes",
		form.Lab.Clients, form.Lab.Servers, webWorkers, form.Web.FileBytes)
	env.Notes = append(append([]string{size}, labNotes...), l.Notes...)
}
