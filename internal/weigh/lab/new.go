// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/jeoul/jeoul/internal/host/softirq"
	"github.com/jeoul/jeoul/internal/weigh/lab/claim"
	"github.com/jeoul/jeoul/internal/weigh/lab/l2switch"
	"github.com/jeoul/jeoul/internal/weigh/lab/netns"
	"github.com/jeoul/jeoul/internal/weigh/lab/topology"
)

// New removes the remains of dead labs, then builds one. It returns ErrNoRights or ErrSpec, or the error of the step
// that failed. If it fails, or ctx ends in the meantime, it has removed everything that it made.
func New(ctx context.Context, spec Spec) (*Lab, error) {
	if err := check(spec); err != nil {
		return nil, err
	}
	l := &Lab{VIP4: topology.VIP4, VIP6: topology.VIP6, FullNAT: topology.VIP4.Prev(), spec: spec, xdp: true}
	if _, err := CleanStale(ctx); err != nil {
		if ctx.Err() != nil {
			return nil, fmt.Errorf("build a lab: %w", err)
		}
		l.note(fmt.Sprintf("a dead lab's remains could not be removed: %v", err))
	}
	if err := l.build(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("build a lab: %w", err), l.Close())
	}
	return l, nil
}

func check(spec Spec) error {
	switch {
	case spec.Clients < 1 || spec.Clients > topology.MaxPerRole:
		return fmt.Errorf("%w: %d clients; use 1 to %d", ErrSpec, spec.Clients, topology.MaxPerRole)
	case spec.Servers < 1 || spec.Servers > topology.MaxPerRole:
		return fmt.Errorf("%w: %d servers; use 1 to %d", ErrSpec, spec.Servers, topology.MaxPerRole)
	case spec.Balancers != 0 && (spec.Balancers < 2 || spec.Balancers > MaxBalancers):
		return fmt.Errorf("%w: %d balancers; use 2 to %d, or leave them out", ErrSpec, spec.Balancers, MaxBalancers)
	case spec.Balancers != 0 && (spec.Containers || spec.Wire || spec.Attacker):
		return fmt.Errorf("%w: several balancers go with none of Containers, Wire and Attacker", ErrSpec)
	case spec.Containers && (spec.Wire || spec.CoreQueues || spec.BackQueues || spec.Attacker):
		return fmt.Errorf(
			"%w: containers go with none of Wire, CoreQueues, BackQueues and Attacker, which are for servers on the segment", ErrSpec)
	case os.Geteuid() != 0:
		return fmt.Errorf("%w: network namespaces need root; use sudo", ErrNoRights)
	}
	return nil
}

// build makes everything, in an order that Close can undo at any point.
func (l *Lab) build(ctx context.Context) error {
	var err error
	if l.lock, err = claim.New(); err != nil {
		return err
	}
	l.ID = l.lock.ID
	if err := l.makeDir(); err != nil {
		return err
	}
	if err := netns.PrepareNames(); err != nil {
		return fmt.Errorf("prepare the directory of the namespaces' names: %w", err)
	}
	l.usage.Init()
	if err := l.addHosts(ctx); err != nil {
		return err
	}
	if err := l.attachFastPath(); err != nil {
		return err
	}
	if err := l.presetNeighbours(); err != nil {
		return err
	}
	if l.spec.Unmetered {
		l.note("CPU times are those of processes, with the packet work of other hosts that ran on top of them")
	} else if l.usage.Meter, err = softirq.NewMeter(); err != nil {
		l.note(fmt.Sprintf(
			"CPU times are those of processes, with the packet work of other hosts that ran on top of them: %v", err))
	}
	if len(l.refused) > 0 {
		l.note(topology.RefusedNote(l.refused))
	}
	return nil
}

// attachFastPath makes the switch forward past its bridge. A lab works without this, but a lab for loads of packets
// would measure its bridge.
func (l *Lab) attachFastPath() error {
	var ports []l2switch.Port
	for _, h := range l.Hosts()[1:] {
		if h.portOn == l.Switch {
			ports = append(ports, l2switch.Port{Host: h.Name, Name: h.Port, MAC: h.MAC})
		}
	}
	if l.spec.Wire {
		return l.Switch.Do(func() (err error) {
			l.wires, err = l2switch.NewWires(ports)
			return err
		})
	}
	if err := l.Switch.Do(func() (err error) {
		l.fastPath, err = l2switch.NewFastPath(ports)
		return err
	}); err != nil {
		l.note(fmt.Sprintf("the switch forwards by its bridge alone, which takes more CPU: %v", err))
	}
	return nil
}

// addHosts makes the switch first, because the other hosts are connected to it.
func (l *Lab) addHosts(ctx context.Context) (err error) {
	if l.Switch, err = l.addSwitch(); err != nil {
		return err
	}
	add := func(r topology.Role, n int) (h *Host) {
		if err == nil {
			err = ctx.Err()
		}
		if err == nil {
			h, err = l.addHost(r, n)
		}
		return h
	}
	l.Balancer = add(topology.Balancer, 1)
	if l.spec.Containers && err == nil {
		err = l.bridgeContainers()
		if failed := l.groupBalancer(); failed != nil {
			l.note(fmt.Sprintf("no cgroup of its own for the balancer's programs: %v", failed))
		}
	}
	if l.spec.Balancers > 0 && err == nil {
		err = l.addBalancers(ctx)
	}
	for n := 1; n <= l.spec.Clients && err == nil; n++ {
		l.Clients = append(l.Clients, add(topology.Client, n))
	}
	for n := 1; n <= l.spec.Servers && err == nil; n++ {
		l.Servers = append(l.Servers, add(topology.Server, n))
	}
	if l.spec.Attacker {
		l.Attacker = add(topology.Attacker, 1)
	}
	return err
}
