// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/safchain/ethtool"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/host/netdump"
	"github.com/jeoul/jeoul/internal/test/testenv"
	"github.com/jeoul/jeoul/internal/weigh/lab/claim"
	"github.com/jeoul/jeoul/internal/weigh/lab/netdev"
	"github.com/jeoul/jeoul/internal/weigh/lab/netns"
)

// newLab builds a lab of two clients and two servers that ends with the test.
func newLab(t *testing.T) *Lab {
	t.Helper()
	testenv.Root(t)
	l, err := New(t.Context(), Spec{Clients: 2, Servers: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

// waitTimeout bounds waits on a busy machine for events that normally take moments.
var waitTimeout = testenv.WaitLimit

// eventually polls until f is true, for [waitTimeout] at most.
func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	testenv.Eventually(t, waitTimeout, what, f)
}

// listen opens a TCP listener on a host; it is closed with the test.
func listen(t *testing.T, h *Host, addr netip.Addr) (l net.Listener) {
	t.Helper()
	err := h.Do(func() (err error) {
		l, err = net.Listen("tcp", netip.AddrPortFrom(addr, 80).String())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// dial connects from a host; the connection is closed with the test.
func dial(t *testing.T, h *Host, to net.Addr) (c net.Conn) {
	t.Helper()
	err := h.Do(func() (err error) {
		c, err = net.DialTimeout("tcp", to.String(), waitTimeout)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func TestHostsReachEachOther(t *testing.T) {
	l := newLab(t)
	pairs := [][2]*Host{
		{l.Clients[0], l.Balancer},
		{l.Clients[1], l.Servers[0]},
		{l.Balancer, l.Servers[1]},
		{l.Servers[0], l.Clients[0]},
	}
	for _, pair := range pairs {
		from, to := pair[0], pair[1]
		for _, addr := range []netip.Addr{to.IPv4, to.IPv6} {
			t.Run(from.Name+" to "+to.Name+" "+addr.String(), func(t *testing.T) {
				server := listen(t, to, addr)
				client := dial(t, from, server.Addr())
				accepted, err := server.Accept()
				if err != nil {
					t.Fatal(err)
				}
				defer accepted.Close()
				want := from.IPv4
				if addr.Is6() {
					want = from.IPv6
				}
				got := netip.MustParseAddrPort(accepted.RemoteAddr().String()).Addr()
				if got != want {
					t.Errorf("the connection came from %s, want %s", got, want)
				}
				client.Close()
			})
		}
	}
}

func TestIsolation(t *testing.T) {
	l := newLab(t)
	for _, h := range l.Hosts() {
		err := h.Do(func() error {
			for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
				routes, err := netdump.Consistent(func() ([]netlink.Route, error) {
					return netlink.RouteList(nil, family)
				})
				if err != nil {
					return err
				}
				for _, r := range routes {
					if r.Gw != nil || r.Dst == nil || r.Dst.IP.IsUnspecified() {
						t.Errorf("%s has a way out: %v", h.Name, r)
					}
				}
			}
			if h == l.Switch {
				return nil
			}
			_, err := net.DialTimeout("udp4", "192.0.2.1:9", time.Second)
			if !errors.Is(err, unix.ENETUNREACH) {
				t.Errorf("%s: dialling out gives %v, want %v", h.Name, err, unix.ENETUNREACH)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, h := range l.Hosts() {
		for _, device := range []string{h.Interface, h.Port} {
			if _, err := netlink.LinkByName(device); err == nil {
				t.Errorf("the machine sees device %s", device)
			}
		}
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		p := netip.MustParsePrefix(a.String())
		if netip.MustParsePrefix("198.18.0.0/15").Overlaps(p) || netip.MustParsePrefix("2001:2::/48").Overlaps(p) {
			t.Errorf("the machine has the address %s", p)
		}
	}
}

func TestSettings(t *testing.T) {
	l := newLab(t)
	devices := func(h *Host) []string {
		entries, err := os.ReadDir("/sys/class/net")
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return names
	}
	check := func(device string, txChecksum bool) error {
		e, err := ethtool.NewEthtool()
		if err != nil {
			return err
		}
		defer e.Close()
		features, err := e.Features(device)
		if err != nil {
			return err
		}
		got := map[string]bool{}
		want := map[string]bool{netdev.FeatureGRO: true, netdev.FeatureTxChecksum: txChecksum}
		for name, on := range features {
			_, wanted := want[name]
			segments := strings.HasPrefix(name, netdev.FeatureTSO) || name == netdev.FeatureUSO
			if segments || wanted {
				got[name] = on
			}
			if segments {
				want[name] = false
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("features of %s (-want +got):\n%s", device, diff)
		}
		return nil
	}
	for _, h := range l.Hosts()[1:] {
		t.Run(h.Name, func(t *testing.T) {
			err := h.Do(func() error {
				if diff := cmp.Diff(sorted(h.Interface, "lo"), sorted(devices(h)...)); diff != "" {
					t.Errorf("devices in /sys (-want +got):\n%s", diff)
				}
				routes, err := netdump.Consistent(func() ([]netlink.Route, error) {
					return netlink.RouteListFiltered(unix.AF_UNSPEC, &netlink.Route{Table: unix.RT_TABLE_MAIN},
						netlink.RT_FILTER_TABLE)
				})
				if err != nil {
					return err
				}
				congctl := map[string]string{}
				for _, r := range routes {
					if !r.Dst.IP.IsLinkLocalUnicast() {
						congctl[r.Dst.String()] = r.Congctl
					}
				}
				want := map[string]string{"198.18.0.0/16": netdev.CongestionControl, "2001:2::/64": netdev.CongestionControl}
				if diff := cmp.Diff(want, congctl); diff != "" {
					t.Errorf("congestion control by route (-want +got):\n%s", diff)
				}
				return check(h.Interface, false)
			})
			if err != nil {
				t.Error(err)
			}
			err = l.Switch.Do(func() error { return check(h.Port, h != l.Balancer) })
			if err != nil {
				t.Error(err)
			}
		})
	}
}

func TestOffload(t *testing.T) {
	l := newLab(t)
	// features returns TSO and checksum offload of a device.
	features := func(h *Host, device string) (got [2]bool) {
		t.Helper()
		err := h.Do(func() error {
			e, err := ethtool.NewEthtool()
			if err != nil {
				return err
			}
			defer e.Close()
			all, err := e.Features(device)
			got = [2]bool{all["tx-tcp-segmentation"], all[netdev.FeatureTxChecksum]}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	on, off, sums := [2]bool{true, true}, [2]bool{}, [2]bool{false, true}
	for _, step := range []struct {
		name                       string
		do                         func() error
		host, port, toBalancerPort [2]bool
	}{
		{"offload", func() error { return l.Offload(true) }, on, on, off},
		{"offload without XDP", func() error { return l.AcceptXDP(false) }, on, on, on},
		{"offload with XDP again", func() error { return l.AcceptXDP(true) }, on, on, off},
		{"none", func() error { return l.Offload(false) }, off, sums, off},
	} {
		if err := step.do(); err != nil {
			t.Fatal(err)
		}
		got := [][2]bool{features(l.Clients[0], l.Clients[0].Interface), features(l.Switch, l.Servers[0].Port),
			features(l.Switch, l.Balancer.Port)}
		if diff := cmp.Diff([][2]bool{step.host, step.port, step.toBalancerPort}, got); diff != "" {
			t.Errorf("%s: TSO and checksums of a client, a server's port and the balancer's port (-want +got):\n%s",
				step.name, diff)
		}
	}
}

func TestDetour(t *testing.T) {
	l := newLab(t)
	server := listen(t, l.Servers[0], l.Servers[0].IPv4)
	accepted := func() error {
		return l.Clients[0].Do(func() error {
			c, err := net.DialTimeout("tcp", server.Addr().String(), waitTimeout)
			if err != nil {
				return err
			}
			return c.Close()
		})
	}
	forwarded := func() uint64 {
		t.Helper()
		counters, err := l.Balancer.NetStat("IpForwDatagrams")
		if err != nil {
			t.Fatal(err)
		}
		return counters["IpForwDatagrams"]
	}
	for _, on := range []bool{true, false} {
		if err := errors.Join(l.Forward(on), l.DetourReplies(on), l.DetourRequests(on)); err != nil {
			t.Fatal(err)
		}
		before := forwarded()
		if err := accepted(); err != nil {
			t.Errorf("on %v: %v", on, err)
		}
		if got := forwarded() > before; got != on {
			t.Errorf("on %v: the balancer forwarded %v", on, got)
		}
	}
	if err := l.DetourReplies(false); err != nil {
		t.Errorf("taking back what is not there: %v", err)
	}
}

func sorted(s ...string) []string {
	slices.Sort(s)
	return s
}

func TestBadSpec(t *testing.T) {
	for _, spec := range []Spec{
		{Clients: 0, Servers: 1},
		{Clients: 1, Servers: 0},
		{Clients: 100, Servers: 1},
		{Clients: 1, Servers: -1},
		{Clients: 1, Servers: 1, Containers: true, Wire: true},
		{Clients: 1, Servers: 1, Containers: true, Attacker: true},
	} {
		l, err := New(t.Context(), spec)
		if l != nil || !errors.Is(err, ErrSpec) {
			t.Errorf("New(%+v) = %v, %v; want ErrSpec", spec, l, err)
		}
	}
}

// remains lists the remains of a lab.
func remains(t *testing.T, id, dir string) (left []string) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(netns.NamesDir, netns.NamePrefix(id)+"*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range append(names, dir, claim.Path(id)) {
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			left = append(left, path)
		}
	}
	if hasCgroup(t, id) {
		left = append(left, "cgroup "+claim.CgroupName(id))
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, netns.NamePrefix(id)) {
			left = append(left, "mount "+line)
		}
	}
	return left
}

func TestClose(t *testing.T) {
	l := newLab(t)
	h := l.Servers[0]
	started, err := h.Start(t.Context(), Command{Path: "sleep", Args: []string{"1000"}})
	if err != nil {
		t.Fatal(err)
	}
	daemon := startDaemon(t, h, "sleep 1000")
	if left := remains(t, l.ID, l.Dir); len(left) == 0 {
		t.Fatal("nothing is found of a live lab: this test cannot fail")
	}
	for range 2 {
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if left := remains(t, l.ID, l.Dir); len(left) > 0 {
		t.Errorf("left after Close: %q", left)
	}
	for _, pid := range []int{started.PID(), daemon} {
		if running(pid) {
			t.Errorf("process %d lives on after Close", pid)
		}
	}
	if err := h.Do(func() error { return nil }); !errors.Is(err, ErrClosed) {
		t.Errorf("Do after Close: %v, want %v", err, ErrClosed)
	}
	if _, err := h.Start(t.Context(), Command{Path: "true"}); !errors.Is(err, ErrClosed) {
		t.Errorf("Start after Close: %v, want %v", err, ErrClosed)
	}
}

func TestCloseKeepsCallersDirectory(t *testing.T) {
	testenv.Root(t)
	dir := filepath.Join(t.TempDir(), "work")
	l, err := New(t.Context(), Spec{Clients: 1, Servers: 1, Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	log := filepath.Join(l.Servers[0].Dir, "log")
	if err := os.WriteFile(log, nil, 0o644); err != nil {
		t.Error(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(log); err != nil {
		t.Errorf("Close took a file out of the caller's directory: %v", err)
	}
	if left := remains(t, l.ID, ""); len(left) > 0 {
		t.Errorf("left after Close: %q", left)
	}
}

// TestCloseReportsWhatItCannotRemove: a mount that prevents the removal of a directory is reported, and left to the
// next CleanStale.
func TestCloseReportsWhatItCannotRemove(t *testing.T) {
	testenv.Root(t)
	l, err := New(t.Context(), Spec{Clients: 1, Servers: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", l.Servers[0].Dir, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	err = l.Close()
	if unmountErr := unix.Unmount(l.Servers[0].Dir, unix.MNT_DETACH); unmountErr != nil {
		t.Error(unmountErr)
	}
	if err == nil || !strings.Contains(err.Error(), l.Servers[0].Dir) {
		t.Errorf("Close with a mount in its directory: %v; want an error that names %s", err, l.Servers[0].Dir)
	}
	if _, err := CleanStale(t.Context()); err != nil {
		t.Error(err)
	}
	if left := remains(t, l.ID, l.Dir); len(left) > 0 {
		t.Errorf("left after CleanStale: %q", left)
	}
}

// countdown is a context that ends after a number of calls of its Err.
type countdown struct {
	context.Context
	asks  int
	atEnd func()
}

func (c *countdown) Err() error {
	if c.asks--; c.asks >= 0 {
		return nil
	}
	if c.asks == -1 {
		c.atEnd()
	}
	return context.Canceled
}

func TestCancelledNewLeavesNothing(t *testing.T) {
	testenv.Root(t)
	for asks := range 8 {
		var ids []string
		ctx := &countdown{Context: t.Context(), asks: asks, atEnd: func() { ids = ownLabs(t) }}
		l, err := New(ctx, Spec{Clients: 2, Servers: 2})
		if err == nil {
			// The context is checked once for each lock of another lab and for each host of this one.
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if !errors.Is(err, context.Canceled) {
			t.Errorf("after %d: %v, want %v", asks, err, context.Canceled)
		}
		for _, id := range ids {
			if left := remains(t, id, filepath.Join(os.TempDir(), claim.DirName(id))); len(left) > 0 {
				t.Errorf("left after %d: %q", asks, left)
			}
		}
		if left := ownLabs(t); len(left) > 0 {
			t.Errorf("locks left after %d: %q", asks, left)
		}
	}
}

// ownLabs returns the IDs of the labs whose lock names this process.
func ownLabs(t *testing.T) (ids []string) {
	t.Helper()
	files, err := filepath.Glob(claim.Path("*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		var record claim.Record
		text, err := os.ReadFile(file)
		if err != nil || json.Unmarshal(text, &record) != nil || record.PID != os.Getpid() {
			continue // its owner may not have written it yet, or is gone
		}
		id, _, _ := strings.Cut(filepath.Base(file), ".")
		ids = append(ids, id)
	}
	return ids
}

// TestDo: Do passes on the way in which f ends: an error, or the end of its goroutine.
func TestDo(t *testing.T) {
	l := newLab(t)
	want := errors.New("from inside")
	if err := l.Balancer.Do(func() error { return want }); err != want {
		t.Errorf("Do returned %v, want %v", err, want)
	}
	nested := l.Balancer.Do(func() error {
		return l.Servers[0].Do(func() error {
			_, err := netlink.LinkByName(l.Servers[0].Interface)
			return err
		})
	})
	if nested != nil {
		t.Errorf("nested: %v", nested)
	}
	before, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan bool)
	go func() {
		defer close(ended)
		l.Balancer.Do(func() error {
			if dir, err := os.Getwd(); dir != before || err != nil {
				t.Errorf("working directory inside is %s (%v), want %s", dir, err, before)
			}
			runtime.Goexit() // as FailNow does
			return nil
		})
		ended <- false
	}()
	if _, survived := <-ended; survived {
		t.Error("the goroutine that called Do outlived its f's")
	}
}
