// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/jeoul/jeoul/internal/host/softirq"
	"github.com/jeoul/jeoul/internal/weigh/lab/claim"
	"github.com/jeoul/jeoul/internal/weigh/lab/measure"
	"github.com/jeoul/jeoul/internal/weigh/lab/netdev"
	"github.com/jeoul/jeoul/internal/weigh/lab/netns"
	"github.com/jeoul/jeoul/internal/weigh/lab/topology"
)

// closeTimeout bounds the waits of a lab's end.
const closeTimeout = claim.Bound

// Spec is what a lab shall be.
type Spec struct {
	// Clients and Servers are from 1 to 99.
	Clients, Servers int
	// Attacker adds a host that floods the others.
	Attacker bool
	// CoreQueues gives every device a queue for each core, and each core its own,
	// as network cards have them, and no queueing discipline: what one core sends
	// stays on it all the way, and waits for nothing that another core does.
	CoreQueues bool
	// BackQueues gives the switch's port to the balancer a queue for each core for what the
	// balancer sends by XDP, for trials in which no frame may be lost. Nothing holds XDP back,
	// and a queue has 256 frames: where all cores share one, the core that works on it may
	// be kept from it while another fills it.
	BackQueues bool
	// Wire makes a lab for loads of packets: the switch forwards in native XDP, and
	// devices are as with CoreQueues. Every host's frames have the same way, whatever
	// balances them; a sender is not held back, and what does not fit a device's queue
	// (256 frames) is lost and counted.
	Wire bool
	// Unmetered leaves out what measures the kernel's packet work device by device, and
	// itself costs instructions: CPU times are those of processes, with the packet work
	// that ran on top of them.
	Unmetered bool
	// KernelSettings leaves hosts the settings that the kernel gives new namespaces,
	// but for those that keep the laboratory quiet.
	KernelSettings bool
	// Containers puts the servers behind a bridge on the balancer, as a container host has
	// them: clients reach them through the balancer only, and so do their answers.
	Containers bool
	// Balancers, where it is not 0, is how many balancers share the VIP behind a router, of 2 to
	// [MaxBalancers]: each has a link to the router of its own besides that to the switch, and what
	// clients send to the VIP goes to the router ([Lab.DetourVIP]).
	Balancers int
	// Dir is the work directory. The caller's own is made if it is missing, and
	// kept; by default it is a fresh one under the directory for temporary
	// files, and goes with the lab.
	Dir string
}

// Lab is a laboratory. Its methods may be called from several goroutines.
type Lab struct {
	// ID is four hexadecimal digits, unique among the labs of this machine.
	ID               string
	Dir              string
	Switch, Balancer *Host
	Clients, Servers []*Host
	// Attacker is nil where the Spec asked for none.
	Attacker *Host
	// Balancers are all of them, Balancer first, and Router is before them, where the Spec asked
	// for several; else there are none.
	Balancers  []*Host
	Router     *Host
	VIP4, VIP6 netip.Addr
	// FullNAT is a free address of the segment, for balancers that send from one; on
	// machines it may be missing, and then is not valid.
	FullNAT netip.Addr
	// Notes are facts about this lab that a figure may depend on, such as
	// settings that the kernel refused.
	Notes []string

	spec   Spec
	lock   *claim.Lock
	ownDir bool
	// offload and xdp are what Offload and AcceptXDP set.
	offload, xdp bool
	usage        measure.Book
	fastPath     *fastPath
	wires        *wireSwitch
	refused      []string // the settings that the kernel keeps for the machine
	// far is set for a lab of machines, here for the one that this machine is.
	far       *far
	here      *here
	closeOnce sync.Once
	closeErr  error
}

// The figures that are read of hosts; see package measure.
type (
	CPU         = measure.CPU
	Drops       = measure.Drops
	MachineStat = measure.MachineStat
	SocketCount = measure.SocketCount
	Traffic     = measure.Traffic
)

// New removes what dead labs left, then builds one. It returns ErrNoRights or
// ErrSpec, or what failed; when it fails, or ctx ends meanwhile, it has removed
// whatever it made.
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

// Hosts returns the switch, the balancers, the clients, the servers, the attacker and the router.
func (l *Lab) Hosts() []*Host {
	hosts := []*Host{l.Switch, l.Balancer}
	if len(l.Balancers) > 0 {
		hosts = append(hosts, l.Balancers[1:]...)
	}
	hosts = append(append(append(hosts, l.Clients...), l.Servers...), l.Attacker, l.Router)
	return slices.DeleteFunc(hosts, func(h *Host) bool { return h == nil })
}

// note records a fact once, however many hosts it holds for.
func (l *Lab) note(s string) {
	if !slices.Contains(l.Notes, s) {
		l.Notes = append(l.Notes, s)
	}
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
	if err := l.plugIn(); err != nil {
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

// plugIn makes the switch forward past its bridge. A lab can do without, but one for
// loads of packets would measure its bridge.
func (l *Lab) plugIn() error {
	hosts := slices.DeleteFunc(l.Hosts()[1:], func(h *Host) bool { return h.portOn != l.Switch })
	if l.spec.Wire {
		return l.Switch.Do(func() (err error) {
			l.wires, err = newWireSwitch(hosts)
			return err
		})
	}
	if err := l.Switch.Do(func() (err error) {
		l.fastPath, err = newFastPath(hosts)
		return err
	}); err != nil {
		l.note(fmt.Sprintf("the switch forwards by its bridge alone, which takes more CPU: %v", err))
	}
	return nil
}

// addHosts makes the switch first, since the others are plugged into it.
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

// makeDir makes the work directory. The lock file names it before it exists, so
// that a cleaner finds it whenever the owner dies.
func (l *Lab) makeDir() error {
	l.Dir = l.spec.Dir
	if l.Dir == "" {
		l.ownDir = true
		l.Dir = filepath.Join(os.TempDir(), "jeoul-lab-"+l.ID)
	}
	var err error
	if l.Dir, err = filepath.Abs(l.Dir); err != nil {
		return fmt.Errorf("find the work directory: %w", err)
	}
	r := claim.Record{PID: os.Getpid()}
	if l.ownDir {
		r.Dir = l.Dir
		// A directory of that name is no lab's any more: its ID is ours now.
		if err := os.RemoveAll(l.Dir); err != nil {
			return fmt.Errorf("make room for the work directory: %w", err)
		}
	}
	if err := l.lock.Write(r); err != nil {
		return err
	}
	if !l.ownDir {
		err = os.MkdirAll(l.Dir, 0o755)
	} else {
		err = makeOpenDir(l.Dir)
	}
	if err != nil {
		return fmt.Errorf("make the work directory: %w", err)
	}
	return nil
}

// makeOpenDir makes a directory that others may enter, whatever the umask: web
// servers read their files as users of their own.
func makeOpenDir(dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	return os.Chmod(dir, 0o755)
}

func (l *Lab) addSwitch() (*Host, error) {
	h, err := newHost(l, topology.Switch, 0)
	if err != nil {
		return nil, err
	}
	err = h.onKeeper(func() error {
		if err := l.setSysctls(topology.Switch); err != nil {
			return err
		}
		return netdev.BuildBridge(topology.PortMAC(topology.Switch, 0))
	})
	if err != nil {
		return h, fmt.Errorf("set up the switch: %w", err)
	}
	return h, nil
}

// addHost makes host n of a role and connects it. The host is returned with an
// error too, once there is something of it to remove.
func (l *Lab) addHost(r topology.Role, n int) (*Host, error) {
	h, err := newHost(l, r, n)
	if err != nil {
		return nil, err
	}
	h.Interface, h.Port = topology.DeviceName(h.Name, l.ID), topology.PortName(h.Name, l.ID)
	h.MAC = topology.MAC(r, n)
	h.IPv4, h.IPv6 = topology.Addresses(r, n)
	h.portOn = l.Switch
	if l.contained(r) {
		h.IPv4, h.IPv6 = topology.ContainerAddresses(n)
		h.portOn = l.Balancer
	}
	if err := h.onKeeper(func() error { return h.prepare(l) }); err != nil {
		return h, fmt.Errorf("set up host %s: %w", h.Name, err)
	}
	if err := h.portOn.onKeeper(func() error { return connect(h) }); err != nil {
		return h, err
	}
	if err := h.onKeeper(func() error { return h.configure(l) }); err != nil {
		return h, fmt.Errorf("set up host %s: %w", h.Name, err)
	}
	if err := h.portOn.onKeeper(func() error { return h.configurePort(l) }); err != nil {
		return h, fmt.Errorf("set up the port of %s on %s: %w", h.Name, h.portOn.Name, err)
	}
	return h, nil
}

// prepare is what must be set before the host has its device.
func (h *Host) prepare(l *Lab) error {
	if err := l.setSysctls(h.role); err != nil {
		return err
	}
	return netdev.Up("lo")
}

// setSysctls sets those of a role in the calling thread's namespace.
func (l *Lab) setSysctls(r topology.Role) error {
	refused, err := topology.SetSysctls(topology.SysctlsOf(r, l.spec.KernelSettings))
	for _, name := range refused {
		if !slices.Contains(l.refused, name) {
			l.refused = append(l.refused, name)
		}
	}
	return err
}

// configure sets the host's device and its addresses. It runs inside the host.
func (h *Host) configure(l *Lab) error {
	if err := h.useQueues(l); err != nil {
		return err
	}
	if err := l.setDevice(h.Interface, l.hostOffloads()); err != nil {
		return err
	}
	note, err := h.address()
	if note != "" {
		l.note(note)
	}
	if err == nil && l.contained(h.role) {
		err = h.routeByBridge()
	}
	return err
}

// configurePort sets the far end of the host's link. It runs where that is.
func (h *Host) configurePort(l *Lab) error {
	if err := l.setDevice(h.Port, l.portOffloads(h)); err != nil {
		return err
	}
	if h.role != topology.Balancer {
		return nil
	}
	return netdev.AcceptXDP(h.Port)
}

// Close kills every process of the lab, removes its namespaces, its mounts and
// its directory, and says what it could not remove. Later calls return what the
// first one did.
func (l *Lab) Close() error {
	l.closeOnce.Do(func() { l.closeErr = l.close() })
	return l.closeErr
}

func (l *Lab) close() error {
	switch {
	case l.far != nil:
		return l.closeFar()
	case l.here != nil:
		return l.closeHere()
	}
	if l.lock == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	errs := []error{l.killAll(ctx)}
	if l.usage.Meter != nil {
		errs = append(errs, l.usage.Meter.Close())
	}
	if l.fastPath != nil {
		errs = append(errs, l.fastPath.close())
	}
	if l.wires != nil {
		errs = append(errs, l.wires.close())
	}
	for _, h := range l.Hosts() {
		h.leave()
	}
	r := claim.Record{}
	if l.ownDir {
		r.Dir = l.Dir
	}
	errs = append(errs, claim.Remove(ctx, l.ID, r))
	if err := errors.Join(errs...); err != nil {
		// The file stays, so that a later CleanStale tries again.
		l.lock.Release()
		return fmt.Errorf("close lab %s: %w", l.ID, err)
	}
	return l.lock.Remove()
}

// CleanStale removes the remains of labs whose owner is dead: processes, namespaces, mounts, directories, and at last
// the lock. It returns the IDs of those labs. Labs that live, and everything else, are left alone.
func CleanStale(ctx context.Context) (removed []string, err error) { return claim.Clean(ctx) }
