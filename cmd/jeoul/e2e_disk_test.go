// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/test/testenv"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// diskTarget is the target in which TestUnwritableState makes diskFaults faults; in `make test` it makes one.
const (
	diskTarget = "test-disk"
	diskFaults = 100
)

// stateDisk is a small file system at the state directory of a balancer's host.
type stateDisk struct {
	host *lab.Host
	dir  string
}

// newStateDisk mounts the disk in the mount namespace of the host, with which it is removed.
func newStateDisk(t *testing.T, host *lab.Host) *stateDisk {
	t.Helper()
	d := &stateDisk{host, filepath.Join(host.Dir, "state")}
	if err := os.MkdirAll(d.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	d.do(t, func() error { return unix.Mount("tmpfs", d.dir, "tmpfs", 0, "size=256k,nr_inodes=64") })
	return d
}

func (d *stateDisk) do(t *testing.T, what func() error) {
	t.Helper()
	if err := d.host.Do(what); err != nil {
		t.Fatal(err)
	}
}

func (d *stateDisk) filler(n int) string { return filepath.Join(d.dir, "filler-"+strconv.Itoa(n)) }

// faults are the faults of the state directory, one after the other.
func (d *stateDisk) faults() []func() error {
	return []func() error{
		func() error { return unix.Mount("", d.dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, "") },
		// No room: write as much as possible, and then each page that is left.
		func() error {
			if err := os.WriteFile(d.filler(0), bytes.Repeat([]byte("x"), 1<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
				return fmt.Errorf("filling the disk: %w", err)
			}
			return nil
		},
		// No inodes.
		func() error {
			for n := range 1000 {
				err := os.WriteFile(d.filler(n), nil, 0o600)
				if errors.Is(err, unix.ENOSPC) {
					return nil
				}
				if err != nil {
					return err
				}
			}
			return errors.New("a disk of 64 inodes has room for 1000 files")
		},
	}
}

// repair repairs the state directory.
func (d *stateDisk) repair() error {
	if err := unix.Mount("", d.dir, "", unix.MS_REMOUNT, "size=256k,nr_inodes=64"); err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(d.dir, "filler-*"))
	for _, file := range files {
		err = errors.Join(err, os.Remove(file))
	}
	return err
}

// TestUnwritableState makes the state directory full, without inodes, or read-only, while a backend fails, one is
// drained, and the process is killed and started. All of it takes effect, nothing that serves breaks, and the status
// names the state that a restart may lose, until there is room.
func TestUnwritableState(t *testing.T) {
	testenv.Also(t, diskTarget)
	t.Parallel()
	forAHook(t, func(t *testing.T, hook lb.Hook) {
		faults := 1
		if testenv.InTarget(diskTarget) {
			faults = diskFaults
		}
		u := newDiskStage(t, hook)
		for n := range faults {
			u.injectFault(t, n)
		}
		stop(t, u.daemon)
		if n := u.pinned(t); n != 0 {
			t.Errorf("after a stop, pins: %d", n)
		}
		u.disk.do(t, func() error {
			left, err := os.ReadDir(u.disk.dir)
			if err == nil && len(left) != 0 {
				err = fmt.Errorf("after a stop, there is left: %v", left)
			}
			return err
		})
	})
}

// diskStage is a balancer on such a disk, with a backend that is drained and one that fails.
type diskStage struct {
	*segment
	disk            *stateDisk
	drained, fading *lab.Host
	// probe answers the checks of the failing backend.
	probe net.Listener
	held  connections
}

func newDiskStage(t *testing.T, hook lb.Hook) *diskStage {
	l := newLab(t, lab.Spec{Clients: 1, Servers: 3})
	u := &diskStage{segment: &segment{l, newBalancer(t, l.Balancer)}, drained: l.Servers[1], fading: l.Servers[2]}
	u.disk = newStateDisk(t, u.host)
	var backends []entry
	for _, server := range l.Servers {
		u.serve(t, server)
		backends = append(backends, entry{"name": server.Name, "address": server.IPv4.String()})
		probe := answerChecks(t, server)
		t.Cleanup(func() { probe.Close() })
		u.probe = probe // the last backend's
	}
	check := entry{"type": "tcp", "via": "address", "port": checkPort,
		"interval": "2s", "timeout": "2s", "rise": 1, "fall": 2}
	u.configure(t, hook, entry{"services": []entry{{"name": "web", "vip": u.VIP4.String(), "port": turnPort,
		"scheduler": "rr", "backends": backends, "check": check}}})
	u.start(t)
	t.Cleanup(func() {
		select {
		case <-u.daemon.Done():
		default:
			stop(t, u.daemon)
		}
	})
	u.within(t, time.Minute, "all serve", u.serves(true))
	u.held = openConnections(t, u.Clients[0], netip.AddrPortFrom(u.VIP4, turnPort), 6)
	return u
}

// answerChecks runs a listener that answers a server's health checks.
func answerChecks(t *testing.T, server *lab.Host) (probe net.Listener) {
	t.Helper()
	if err := server.Do(func() (err error) {
		probe, err = net.Listen("tcp", fmt.Sprintf(":%d", checkPort))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	go serveTCP(probe, server.Name)
	return probe
}

// serves reports whether the checks of the failing backend have noticed its state.
func (u *diskStage) serves(healthy bool) func(*ops.Status) bool {
	want := map[bool]lb.Health{true: lb.Healthy, false: lb.Failing}[healthy]
	return func(status *ops.Status) bool {
		return slices.ContainsFunc(status.Services[0].Backends, func(b ops.Backend) bool {
			return b.Name == u.fading.Name && b.Health != nil && b.Health.State == want
		})
	}
}

// injectFault starts and ends the n-th fault.
func (u *diskStage) injectFault(t *testing.T, n int) {
	t.Helper()
	when, troubles := fmt.Sprintf("fault %d", n), u.disk.faults()
	u.disk.do(t, troubles[n%len(troubles)])
	u.probe.Close()
	u.within(t, time.Minute, when+": the backend that fails is out", u.serves(false))
	u.operate(t, ops.Order{Verb: ops.Drain, Service: "web", Backend: u.drained.Name, By: "the test"})
	u.held.expectAlive(t, when)
	// Without room or inodes, the reserve may be enough for all of it.
	if readOnly := n%len(troubles) == 0; readOnly {
		u.expectUnwritten(t, when)
	}
	kill(t, u.daemon)
	u.held.expectAlive(t, when+", without a process")
	u.daemon = jeoul(t, u.host, &u.log, u.arguments()...)
	u.within(t, time.Minute, when+": another process knows the backend that fails", u.serves(false))
	u.held.expectAlive(t, when+", with another process")
	if in := u.status(t).Operations.InForce; len(in) != 1 || in[0].Target.Backend != u.drained.Name {
		t.Errorf("%s: after a kill, operations in force: %v", when, in)
	}
	u.disk.do(t, u.disk.repair)
	u.probe = answerChecks(t, u.fading)
	u.operate(t, ops.Order{Verb: ops.Enable, Service: "web", Backend: u.drained.Name, By: "the test"})
	u.within(t, time.Minute, when+" is over: all is written, and the backend serves", func(status *ops.Status) bool {
		return len(status.Unwritten) == 0 && u.serves(true)(status)
	})
	u.held.expectAlive(t, when+" is over")
}

// expectUnwritten fails the test unless the status names the files that cannot be written, and says that the kernel
// keeps the state.
func (u *diskStage) expectUnwritten(t *testing.T, when string) {
	t.Helper()
	status := u.status(t)
	reported := strings.Contains(strings.Join(status.Problems, "\n"), "cannot be written to")
	if len(status.Unwritten) == 0 || status.WriteFailures == 0 || !reported {
		t.Errorf("%s: unwritten %v, problems %q", when, status.Unwritten, status.Problems)
	}
	for _, f := range status.Unwritten {
		if !f.Kept {
			t.Errorf("%s: %s is not kept by the kernel: %s", when, f.What, f.Error)
		}
	}
}
