// SPDX-License-Identifier: Apache-2.0

package local_test

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/balancer/datapath"
	"github.com/jeoul/jeoul/internal/balancer/datapath/keeper"
	"github.com/jeoul/jeoul/internal/balancer/datapath/pins"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// attached is how many programs are attached to the sockets of the tests' control group.
func (r *testBalancer) attached() (n int) {
	r.t.Helper()
	for _, at := range []ebpf.AttachType{ebpf.AttachCGroupInet4Connect, ebpf.AttachCGroupInet6Connect,
		ebpf.AttachCGroupUDP4Sendmsg,
		ebpf.AttachCGroupUDP6Sendmsg, ebpf.AttachCGroupUDP4Recvmsg, ebpf.AttachCGroupUDP6Recvmsg,
		ebpf.AttachCgroupInet4GetPeername, ebpf.AttachCgroupInet6GetPeername, ebpf.AttachCgroupInetSockRelease} {
		result, err := link.QueryPrograms(link.QueryOptions{Target: r.cgroupFD(), Attach: at})
		if err != nil {
			r.t.Fatal(err)
		}
		n += len(result.Programs)
	}
	return n
}

func (r *testBalancer) cgroupFD() int {
	r.t.Helper()
	fd, err := unix.Open(r.cgroup, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { unix.Close(fd) })
	return fd
}

const hooks = 9

// TestSwitched: programs are detached when they are not wanted any more, with their counters, and can be attached
// again.
func TestSwitched(t *testing.T) {
	r := newTestBalancer(t)
	s := service(false, lb.TCP, lb.RoundRobin)
	if n := r.attached(); n != 0 {
		t.Fatalf("%d programs are attached before", n)
	}
	r.apply(s)
	c, _, err := r.open(families[0], lb.TCP, true)
	if n := r.attached(); err != nil || n != hooks {
		t.Fatalf("%d programs are attached, %v", n, err)
	}
	r.state.Local = ""
	r.in(func() error { return r.datapath.Apply(r.state) })
	if n, now := r.attached(), r.counters(); n != 0 || now.Local != nil || now.Services[s.Key()].Active != 0 {
		t.Errorf("%d programs are attached, %+v", n, now.Services)
	}
	c.close()
	r.apply(s)
	if _, _, err := r.open(families[0], lb.TCP, true); err != nil || r.attached() != hooks {
		t.Errorf("%d programs are attached, %v", r.attached(), err)
	}
	if active := r.counters().Services[s.Key()].Active; active != 1 {
		t.Errorf("%d are active", active)
	}
	r.in(r.datapath.Close)
	if n := r.attached(); n != 0 {
		t.Errorf("%d programs are attached after the end", n)
	}
}

// below makes a control group below the tests' own.
func (r *testBalancer) below() string {
	r.t.Helper()
	dir := filepath.Join(r.cgroup, "below")
	if err := os.Mkdir(dir, 0o755); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		r.enter(r.cgroup) // a group with a process cannot be removed
		if err := os.Remove(dir); err != nil {
			r.t.Error(err)
		}
	})
	return dir
}

// enter moves the test's process to a control group: sockets that it opens from now on belong to that.
func (r *testBalancer) enter(cgroup string) {
	r.t.Helper()
	if err := os.WriteFile(filepath.Join(cgroup, "cgroup.procs"), []byte("0"), 0); err != nil {
		r.t.Fatal(err)
	}
}

// expectSockets compares the numbers of connections of a service, and of remembered sockets.
func (r *testBalancer) expectSockets(when string, s lb.RoutedService, want uint64) {
	r.t.Helper()
	now := r.counters()
	if active := now.Services[s.Key()].Active; now.Local == nil || uint64(active) != want || now.Local.Sockets != want {
		r.t.Errorf("%s: %d are active, and %+v, want %d", when, active, now.Local, want)
	}
}

// TestAnotherGroup: a socket does not count any more once its control group is not served, for no program would notice
// its end; it counts on where the next group contains its own.
func TestAnotherGroup(t *testing.T) {
	r := newTestBalancer(t)
	s, below := service(false, lb.TCP, lb.RoundRobin), r.below()
	switchTo := func(cgroup string) {
		t.Helper()
		r.state.Local = cgroup
		r.in(func() error { return r.datapath.Apply(r.state) })
	}
	open := func() *client {
		t.Helper()
		c, _, err := r.open(families[0], lb.TCP, true)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	r.apply(s)
	outside := open()
	r.expectSockets("before", s, 1)
	switchTo(below)
	r.expectSockets("in a group that does not contain the socket's", s, 0)
	if n := r.attached(); n != 0 {
		t.Errorf("%d programs are still attached to the previous group", n)
	}
	outside.close()
	r.expectSockets("after its end", s, 0)
	r.enter(below)
	inside := open()
	r.expectSockets("a socket of the new group", s, 1)
	switchTo(r.cgroup)
	r.expectSockets("in the group above", s, 1)
	if want := netip.AddrPortFrom(vip4, port); inside.peer() != want {
		t.Errorf("its peer is %s, want %s", inside.peer(), want)
	}
	inside.close()
	r.expectSockets("after the end of that", s, 0)
}

// TestKept: attached programs go on without their process, and with the next one; sockets from before keep their
// backends, and are counted off when they are closed.
func TestKept(t *testing.T) {
	r := newTestBalancer(t)
	r.in(r.datapath.Close)
	dir := t.TempDir()
	t.Cleanup(func() {
		if store, err := pins.Find(dir, "test"); err == nil {
			_ = store.Remove()
		}
	})
	open := func() (err error) {
		options := r.options()
		store, err := pins.Open(dir, "test")
		if err != nil {
			return err
		}
		options.Keep = &keeper.Location{Store: store, Snapshot: filepath.Join(dir, "snapshot"), Cookie: 7}
		r.datapath, err = datapath.Open(options)
		return err
	}
	r.in(open)
	s := service(false, lb.TCP, lb.RoundRobin)
	r.apply(s, service(false, lb.UDP, lb.RoundRobin))
	before, _, err := r.open(families[0], lb.TCP, true)
	if err != nil {
		t.Fatal(err)
	}
	udp, word, err := r.open(families[2], lb.UDP, false)
	if err != nil {
		t.Fatal(err)
	}
	r.in(r.datapath.Release)
	between, _, err := r.open(families[0], lb.TCP, true)
	if n := r.attached(); n != hooks || err != nil {
		t.Fatalf("without a process: %d programs are attached, %v", n, err)
	}
	r.in(open)
	if !r.datapath.Adopted() {
		t.Errorf("it was not taken over: %s", strings.Join(r.datapath.Notes(), "; "))
	}
	r.in(func() error { return r.datapath.Apply(r.state) })
	want := netip.AddrPortFrom(vip4, port)
	if before.peer() != want || between.peer() != want {
		t.Errorf("their peers are %s and %s", before.peer(), between.peer())
	}
	if again, _, err := udp.query(); again != word {
		t.Errorf("datagrams go to %q, %v, and went to %q", again, err, word)
	}
	if n := r.attached(); n != hooks || r.counters().Services[s.Key()].Active != 2 || r.event("served") != 3 {
		t.Errorf("%d programs are attached, %+v", n, r.counters())
	}
	before.close()
	between.close()
	if active := r.counters().Services[s.Key()].Active; active != 0 {
		t.Errorf("%d are active", active)
	}
	r.in(r.datapath.Release)
	store, err := pins.Find(dir, "test")
	if err != nil {
		t.Fatal(err)
	}
	r.in(func() error {
		return keeper.Detach(&keeper.Location{Store: store, Snapshot: filepath.Join(dir, "snapshot"), Cookie: 7}, nil)
	})
	if n := r.attached(); n != 0 {
		t.Errorf("%d programs are attached after they were detached", n)
	}
	if _, _, err := r.open(families[0], lb.TCP, true); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("after that: %v", err)
	}
}
