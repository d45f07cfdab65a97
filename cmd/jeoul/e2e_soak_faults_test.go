// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/cmd/jeoul/cmdtest"
	"github.com/jeoul/jeoul/cmd/jeoul/e2e/soak"
	"github.com/jeoul/jeoul/internal/balancer/api"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

const (
	// soakTimeout is how long any step may take on a busy machine, and operateTimeout how long the answer of a balancer
	// may take that a fault may have hung.
	soakTimeout    = 2 * time.Minute
	operateTimeout = 15 * time.Second
	// atOnce is the number of faults of balancers at a time: one balancer is left alone.
	atOnce = 2
)

// soakBalancer is a balancer of a soak.
type soakBalancer struct {
	number         int
	host           *lab.Host
	config, socket string
	daemon         *lab.Process
	log            *os.File
	// taken is locked during a fault of the balancer; faults counts its faults for others to see.
	taken   sync.Mutex
	faults  atomic.Int32
	speaker atomic.Int64
	// awaited: the daemon is expected to end; otherwise failf records that it has ended by itself.
	awaited atomic.Bool
	failf   func(string, ...any)
	// admin is locked while its configuration and operations are applied.
	admin sync.Mutex
}

// begin starts the daemon, and waits until it answers.
func (b *soakBalancer) begin(ctx context.Context) error {
	executable, err := os.Executable()
	if err != nil {
		return err
	}
	b.daemon, err = b.host.Start(context.WithoutCancel(ctx), lab.Command{Path: executable, Session: true,
		Args: []string{"run", "-c", b.config, "--state-dir", filepath.Join(b.host.Dir, "state"), "--store-dir",
			filepath.Join(b.host.Dir, "store")},
		Env: append(os.Environ(), actAsJeoul+"=1"), Stdout: b.log, Stderr: b.log})
	if err != nil {
		return err
	}
	b.awaited.Store(false)
	go func(daemon *lab.Process) {
		if err := daemon.Wait(); !b.awaited.Load() {
			b.failf("%s ended by itself: process %d: %v", b.host.Name, daemon.PID(), err)
		}
	}(b.daemon)
	for began := time.Now(); ; pause(ctx, pollInterval) {
		status, err := api.NewClient(b.socket).Status(ctx)
		if err == nil && status.PID == b.daemon.PID() {
			return nil
		}
		select {
		case <-b.daemon.Done():
			return fmt.Errorf("%s ended: %w", b.host.Name, b.daemon.Wait())
		default:
		}
		if time.Since(began) > soakTimeout || ctx.Err() != nil {
			return fmt.Errorf("%s does not answer: %w", b.host.Name, errors.Join(err, ctx.Err()))
		}
	}
}

// end sends the daemon a signal (0: it already has one), and waits until it has ended.
func (b *soakBalancer) end(ctx context.Context, signal syscall.Signal) error {
	b.awaited.Store(true)
	if signal != 0 {
		if err := b.daemon.Signal(signal); err != nil {
			return err
		}
	}
	select {
	case <-b.daemon.Done():
	case <-time.After(soakTimeout):
		return fmt.Errorf("%s has not ended %v after %v", b.host.Name, soakTimeout, signal)
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := b.daemon.Wait(); err != nil && signal != syscall.SIGKILL && signal != 0 {
		return fmt.Errorf("it did not end well: %w", err)
	}
	return nil
}

// signalSpeaker sends a signal to the BGP speaker.
func (b *soakBalancer) signalSpeaker(signal syscall.Signal) error {
	return unix.Kill(int(b.speaker.Load()), signal)
}

// killAll kills the daemon, which would start another speaker, and the speaker.
func (b *soakBalancer) killAll(ctx context.Context) error {
	b.awaited.Store(true)
	return errors.Join(b.daemon.Signal(syscall.SIGKILL), b.signalSpeaker(syscall.SIGKILL), b.end(ctx, 0))
}

// detach removes the remains of a killed daemon.
func (b *soakBalancer) detach(ctx context.Context) error {
	return b.run(ctx, os.Args[0], "detach", "-c", b.config, "--state-dir", filepath.Join(b.host.Dir, "state"))
}

// run runs a program on the host.
func (b *soakBalancer) run(ctx context.Context, path string, arguments ...string) error {
	var out cmdtest.SyncBuffer
	process, err := b.host.Start(ctx,
		lab.Command{Path: path, Args: arguments, Env: append(os.Environ(), actAsJeoul+"=1"), Stdout: &out,
			Stderr: &out})
	if err == nil {
		err = process.Wait()
	}
	if err != nil {
		return fmt.Errorf("%s %q: %w: %s", path, arguments, err, out.String())
	}
	return nil
}

// partitionFrom makes a balancer receive nothing from another, or everything again.
func (b *soakBalancer) partitionFrom(ctx context.Context, other *soakBalancer, on bool) error {
	const table = "soak"
	if !on {
		return b.run(ctx, "nft", "delete", "table", "ip", table)
	}
	return b.run(ctx, "nft",
		fmt.Sprintf("table ip %s { chain in { type filter hook input priority -10; ip saddr %s drop; }; }", table,
			other.host.IPv4))
}

// runFault makes a fault, whose balancers or backend are already locked, and waits for recovery.
func (s *soakRun) runFault(ctx context.Context, fault soak.Fault) {
	happened := &soak.Happened{Fault: fault, Span: soak.Span{From: time.Now()}}
	s.watch.note(happened)
	s.logf("%s", fault)
	for _, n := range fault.Balancers {
		if fault.Kind.OfBalancer() {
			s.balancers[n].faults.Add(1)
		}
	}
	undo, err := s.make(ctx, happened)
	if err == nil {
		pause(ctx, fault.For)
		// The fault is undone even if the run ends.
		err = undo(context.WithoutCancel(ctx))
	}
	s.watch.change(func() { happened.Restored = time.Now() })
	if err == nil {
		err = s.awaitRecovery(context.WithoutCancel(ctx), fault)
	}
	if err != nil {
		s.failf("%s: %v", fault, err)
	}
	s.watch.change(func() { happened.To = time.Now() })
	s.logf("fault %d is over after %v", fault.Number, time.Since(happened.From).Round(100*time.Millisecond))
	for _, n := range fault.Balancers {
		if fault.Kind.OfBalancer() {
			s.balancers[n].faults.Add(-1)
		}
	}
}

// awaitRecovery waits for the balancers or the backend of a fault.
func (s *soakRun) awaitRecovery(ctx context.Context, fault soak.Fault) error {
	if fault.Kind == soak.UnknownSender {
		return nil
	}
	return s.watch.until(ctx, soakTimeout, func() string {
		if !fault.Kind.OfBalancer() {
			return s.backendMissing(fault.Backend)
		}
		for _, n := range fault.Balancers {
			if lacks := s.watch.missing(n); lacks != "" {
				return lacks
			}
		}
		return ""
	})
}

// backendMissing names a reason for which a balancer without a fault does not send to a backend, or does not agree with
// the others; watch.mu is held.
func (s *soakRun) backendMissing(backend int) string {
	for n, status := range s.watch.seen {
		if s.balancers[n].faults.Load() > 0 {
			continue
		}
		if status == nil {
			return s.balancers[n].host.Name + " does not answer"
		}
		for _, service := range status.Services {
			i := slices.IndexFunc(service.Backends, func(b ops.Backend) bool {
				return b.Name == s.doors[backend].host.Name
			})
			if i < 0 || service.Backends[i].State != lb.Up {
				return fmt.Sprintf("%s is not up in %s at %s", s.doors[backend].host.Name, service.Name,
					s.balancers[n].host.Name)
			}
		}
	}
	return s.watch.different(s.services)
}

type undoFault func(context.Context) error

// make makes a fault, and returns a function that undoes it.
func (s *soakRun) make(ctx context.Context, h *soak.Happened) (undoFault, error) {
	if h.Kind.OfBalancer() {
		return s.makeOfBalancer(ctx, s.balancers[h.Balancers[0]], h)
	}
	door := s.doors[h.Backend]
	switch h.Kind {
	case soak.BackendDies:
		door.close()
		return func(context.Context) error { return door.open() }, nil
	case soak.BackendLink:
		return func(context.Context) error { return s.setLink(door.host, true) }, s.setLink(door.host, false)
	case soak.BackendDrain:
		return s.want(ctx, func(on bool) { s.wanted.drained[h.Backend] = on })
	case soak.BackendLeaves:
		return s.want(ctx, func(on bool) { s.wanted.left[h.Backend] = on })
	case soak.Reweigh:
		return s.want(ctx, func(bool) { s.wanted.weights[h.Backend] = h.Weight })
	}
	return nothingToUndo, s.sendGarbage(h.Balancers[0])
}

func nothingToUndo(context.Context) error { return nil }

// want changes the desired state of all balancers, and returns a function that undoes that.
func (s *soakRun) want(ctx context.Context, set func(on bool)) (undoFault, error) {
	change := func(ctx context.Context, on bool) error {
		s.wanted.mu.Lock()
		set(on)
		s.wanted.mu.Unlock()
		var errs []error
		for _, b := range s.balancers {
			before := b.faults.Load()
			if err := s.applyWanted(ctx, b); err != nil && before == 0 && b.faults.Load() == 0 {
				errs = append(errs, fmt.Errorf("%s: %w", b.host.Name, err))
			}
		}
		return errors.Join(errs...)
	}
	return func(ctx context.Context) error { return change(ctx, false) }, change(ctx, true)
}

// applyWanted brings a balancer to the desired state: through its file, and through the API. A balancer with a fault
// misses a change, and gets it when the fault is over.
func (s *soakRun) applyWanted(ctx context.Context, b *soakBalancer) error {
	b.admin.Lock()
	defer b.admin.Unlock()
	if err := s.write(b); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, operateTimeout)
	defer cancel()
	client := api.NewClient(b.socket)
	if _, err := client.Reload(ctx); err != nil {
		return err
	}
	status, err := client.Status(ctx)
	if err != nil {
		return err
	}
	s.wanted.mu.Lock()
	drained := slices.Clone(s.wanted.drained)
	s.wanted.mu.Unlock()
	for _, service := range status.Services {
		for _, backend := range service.Backends {
			order := ops.Order{Verb: ops.Drain, Service: service.Name, Backend: backend.Name, By: "the soak"}
			switch want := drained[s.backends[backend.Name]]; {
			case want == (backend.Drain != nil):
				continue
			case !want:
				order.Verb = ops.Enable
			}
			if _, err := client.Operate(ctx, order); err != nil {
				return err
			}
		}
	}
	return nil
}

// start is begin, and then applies changes of the desired state since the fault.
func (s *soakRun) start(b *soakBalancer) undoFault {
	return func(ctx context.Context) error {
		if err := b.begin(ctx); err != nil {
			return err
		}
		return s.applyWanted(ctx, b)
	}
}

func (s *soakRun) makeOfBalancer(ctx context.Context, b *soakBalancer, h *soak.Happened) (undoFault, error) {
	goOn := func(signal func(syscall.Signal) error) undoFault {
		return func(ctx context.Context) error {
			if err := signal(syscall.SIGCONT); err != nil {
				return err
			}
			return s.applyWanted(ctx, b)
		}
	}
	signal := func(sig syscall.Signal) error { return b.daemon.Signal(sig) }
	switch h.Kind {
	case soak.KillDaemon:
		return s.start(b), b.end(ctx, syscall.SIGKILL)
	case soak.KillAll:
		return s.start(b), b.killAll(ctx)
	case soak.Lose:
		return s.start(b), errors.Join(b.killAll(ctx), s.lose(ctx, b, h))
	case soak.Stop:
		err := b.end(ctx, syscall.SIGTERM)
		s.watch.change(func() { h.Lost = time.Now() })
		return s.start(b), err
	case soak.Restart:
		return s.start(b), b.end(ctx, syscall.SIGUSR2)
	case soak.HangDaemon:
		return goOn(signal), signal(syscall.SIGSTOP)
	case soak.HangSpeaker:
		return goOn(b.signalSpeaker), b.signalSpeaker(syscall.SIGSTOP)
	case soak.KillSpeaker:
		return nothingToUndo, b.signalSpeaker(syscall.SIGKILL)
	case soak.Cut:
		return func(context.Context) error { return b.host.Cut(false) }, b.host.Cut(true)
	case soak.Part:
		other := s.balancers[h.Balancers[1]]
		return func(ctx context.Context) error {
				return errors.Join(b.partitionFrom(ctx, other, false), other.partitionFrom(ctx, b, false))
			},
			errors.Join(b.partitionFrom(ctx, other, true), other.partitionFrom(ctx, b, true))
	}
	drain := func(ctx context.Context, on bool) error {
		_, err := api.NewClient(b.socket).Drain(ctx, on)
		return err
	}
	return func(ctx context.Context) error { return drain(ctx, false) }, drain(ctx, true)
}

// lose removes the data plane once the router has noticed that its balancer is gone, as with a lost machine.
func (s *soakRun) lose(ctx context.Context, b *soakBalancer, h *soak.Happened) error {
	err := s.watch.until(ctx, soakTimeout, func() string {
		if slices.Contains(s.watch.routes, b.number) {
			return "the router still sends to " + b.host.Name
		}
		return ""
	})
	if err == nil {
		err = b.detach(ctx)
	}
	s.watch.change(func() { h.Lost = time.Now() })
	return err
}

// setLink disconnects a host at its switch port, or connects it again.
func (s *soakRun) setLink(host *lab.Host, up bool) error {
	return s.lab.Switch.Do(func() error {
		port, err := netlink.LinkByName(host.Port)
		if err != nil {
			return err
		}
		if up {
			return netlink.LinkSetUp(port)
		}
		return netlink.LinkSetDown(port)
	})
}

// sendGarbage sends garbage to a balancer's ports for members, from a host that is no member and from one that is:
// there, it looks like that of a member with another key.
func (s *soakRun) sendGarbage(n int) error {
	at := s.balancers[n].host
	for _, from := range []*lab.Host{s.lab.Clients[0], s.balancers[(n+1)%len(s.balancers)].host} {
		err := from.Do(func() error {
			for _, port := range []uint16{lb.DefaultMembersPort, lb.DefaultMembersPort + 1} {
				for _, network := range []string{"udp", "tcp"} {
					connection, err := net.DialTimeout(network, netip.AddrPortFrom(at.IPv4, port).String(),
						operateTimeout)
					if err != nil {
						continue // the balancer may be gone, or the two partitioned
					}
					for size := 1; size < 1400; size += 97 {
						garbage := make([]byte, size)
						_, _ = rand.Read(garbage) // it never fails
						if _, err := connection.Write(garbage); err != nil {
							break // it may be closed immediately
						}
					}
					connection.Close()
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}
