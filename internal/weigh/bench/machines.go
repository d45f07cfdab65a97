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

	"github.com/jeoul/jeoul/internal/weigh/bench/probe"
	"github.com/jeoul/jeoul/internal/weigh/lab"
	"github.com/jeoul/jeoul/internal/weigh/remote"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// ErrMachines means that a suite cannot run on machines; the error says why.
var ErrMachines = errors.New("this suite cannot run on machines")

// machineNotes are facts about a laboratory of machines that every figure depends on.
var machineNotes = []string{
	"hosts are machines of an inventory, reached by SSH; their network cards' offloads, queues and congestion control are as they were found",
	"CPU is that of all processes of a machine but the bench's worker; with the packet work for each device, measured where the kernel polls it (tracepoint napi_poll)",
	settleNote,
	"on machines, connections between the inventory's addresses are meant in all of this, those of SSH apart",
}

// notesOnMachines returns the notes on everything that the form measures on machines.
func (f Form) notesOnMachines() []string {
	return append(slices.Clone(machineNotes), f.experimentNotes()...)
}

// onMachines returns the form as it runs on the machines of an inventory, with as many clients and servers as it has.
// The error says why no load of the form can run there.
func (f Form) onMachines(inventory *remote.Inventory) (Form, error) {
	contained, several := f.Lab.Containers, f.Lab.Balancers > 0
	f.Lab = Size{Clients: len(inventory.Clients), Servers: len(inventory.Servers)}
	f.Remote = true
	if contained {
		return f, fmt.Errorf("%w: its servers are containers of the balancer's host (lab.containers)", ErrMachines)
	}
	if several {
		return f, fmt.Errorf("%w: several balancers share a router (lab.balancers)", ErrMachines)
	}
	reasons := f.remoteAbsent()
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

// remoteAbsent maps kinds of loads to the reasons why they cannot run on machines.
func (f Form) remoteAbsent() map[string]string {
	absent := map[string]string{}
	for _, e := range f.experiments() {
		if reason := e.OnMachines(); reason != "" {
			absent[e.Name()] = reason
		}
	}
	return absent
}

// remoteSkipReason names the setting that keeps a point from running on machines; empty if there is none, or if the
// hosts are no machines.
func (p Point) remoteSkipReason() string {
	switch {
	case p.Form.Remote && p.Pinned:
		return "pinned: it ties clients and servers that share one machine to cores of their own; on machines each has its own"
	case p.Form.Remote && p.Tune != "":
		return "tune: machines keep their settings; prepare them by `jeoul tune` or the role in deploy/ansible"
	}
	return ""
}

// addMachines adds a description of the machines, grouping equal ones.
func addMachines(ctx context.Context, env *results.Environment, l *lab.Lab, form Form) error {
	alike := map[string][]string{}
	var mu sync.Mutex
	err := lab.Each(l.Hosts(), func(h *lab.Host) error {
		e, err := describeTask.On(ctx, h, struct{}{})
		mu.Lock()
		defer mu.Unlock()
		what := fmt.Sprintf("Linux %s, %s, %d cores, %.1f GiB of memory", e.Kernel, e.CPU, e.Cores,
			float64(e.MemoryBytes)/(1<<30))
		alike[what] = append(alike[what], h.Name)
		return err
	})
	var notes []string
	for _, what := range slices.Sorted(maps.Keys(alike)) {
		slices.Sort(alike[what])
		notes = append(notes, fmt.Sprintf("%s: %s", strings.Join(alike[what], ", "), what))
	}
	if machines, err := l.Machines(); err == nil && len(machines) < len(l.Hosts()) {
		notes = append(notes, fmt.Sprintf("these are %d hosts on %d machines, which they share", len(l.Hosts()),
			len(machines)))
	}
	env.Notes = append(append(append([]string{form.Lab.String() + " and a balancer, on machines"}, notes...),
		form.notesOnMachines()...), l.Notes...)
	return err
}

// limitsOf reads the limits of a run: the balancer's cores, and the minimum over all hosts of every other resource.
func limitsOf(ctx context.Context, l *lab.Lab) (probe.Limits, error) {
	if !l.Remote() {
		// On a client, because the range of local ports belongs to its namespace.
		limits, err := probe.LimitsOf(ctx, l.Clients[0])
		limits.ReadKernel()
		return limits, err
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
		limits.Orphans, limits.TCPPages = min(limits.Orphans, of.Orphans), min(limits.TCPPages, of.TCPPages)
		return err
	})
	return limits, err
}
