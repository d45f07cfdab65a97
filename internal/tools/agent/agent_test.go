// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"

	"github.com/jeoul/jeoul/internal/host/hostnet"
	"github.com/jeoul/jeoul/internal/host/namespace"
	"github.com/jeoul/jeoul/internal/host/netdump"
	"github.com/jeoul/jeoul/internal/test/testenv"
	"github.com/jeoul/jeoul/internal/tools/agent"
)

var (
	vip4 = netip.MustParseAddr("198.18.0.100")
	vip6 = netip.MustParseAddr("2001:2::100")
)

// childDir makes the test binary an agent with its journal in that directory, which waits to be killed.
const childDir = "JEOUL_TEST_AGENT_CHILD"

// childHook makes the process an agent for all modes, attached by that hook.
const childHook = "JEOUL_TEST_AGENT_HOOK"

func TestMain(m *testing.M) {
	dir := os.Getenv(childDir)
	if dir == "" {
		os.Exit(m.Run())
	}
	opt := agent.Options{VIPs: []netip.Addr{vip4, vip6}, Dir: dir}
	if hook := os.Getenv(childHook); hook != "" {
		opt = everything(dir, agent.Hook(hook))
	}
	if _, err := agent.Start(opt); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("ready")
	io.Copy(io.Discard, os.Stdin)
}

func start(tb testing.TB, ns *namespace.Namespace, dir string, vips ...netip.Addr) (*agent.Agent, error) {
	tb.Helper()
	var a *agent.Agent
	err := ns.Do(func() (err error) {
		a, err = agent.Start(agent.Options{VIPs: vips, Dir: dir})
		return err
	})
	if err == nil {
		tb.Cleanup(func() { a.Close() })
	}
	return a, err
}

func TestBadVIPs(t *testing.T) {
	ns := testenv.Namespace(t)
	testenv.Veth(t,
		testenv.End{Namespace: ns, Name: "eth0", Addresses: []netip.Prefix{netip.MustParsePrefix("198.18.2.1/16"),
			netip.MustParsePrefix("2001:2::2:1/64")}},
		testenv.End{Namespace: ns, Name: "eth1"})
	before := look(t, ns)
	for text, want := range map[string]error{
		"0.0.0.0":          agent.ErrBadVIP,
		"::":               agent.ErrBadVIP,
		"127.0.0.1":        agent.ErrBadVIP,
		"::1":              agent.ErrBadVIP,
		"::ffff:127.0.0.1": agent.ErrBadVIP,
		"224.0.0.1":        agent.ErrBadVIP,
		"ff02::1":          agent.ErrBadVIP,
		"255.255.255.255":  agent.ErrBadVIP,
		"fe80::1":          agent.ErrBadVIP,
		"fe80::1%eth0":     agent.ErrBadVIP,
		"198.18.2.1":       agent.ErrElsewhere,
		"2001:2::2:1":      agent.ErrElsewhere,
	} {
		_, err := start(t, ns, t.TempDir(), vip4, vip6, netip.MustParseAddr(text))
		if !errors.Is(err, want) {
			t.Errorf("%s: %v, not %v", text, err, want)
		}
		if diff := cmp.Diff(before, look(t, ns)); diff != "" {
			t.Errorf("%s changed the host:\n%s", text, diff)
		}
	}
	if _, err := start(t, ns, t.TempDir()); err == nil {
		t.Error("no VIP was accepted")
	}
	if _, err := start(t, ns, t.TempDir(), netip.Addr{}); !errors.Is(err, agent.ErrBadVIP) {
		t.Errorf("the zero address: %v", err)
	}
}

// look returns the settings that an agent may change: sysctls, and the addresses with their link's index and their
// scope.
func look(tb testing.TB, ns *namespace.Namespace) map[string]string {
	tb.Helper()
	seen := map[string]string{}
	testenv.In(tb, ns, func() error {
		var failed error
		for _, name := range []string{"all/arp_ignore", "lo/arp_ignore", "all/arp_announce", "lo/arp_announce",
			"all/rp_filter"} {
			value, err := testenv.Sysctl("net/ipv4/conf/" + name)
			seen[name], failed = value, errors.Join(failed, err)
		}
		addrs, err := netdump.Consistent(func() ([]netlink.Addr, error) {
			return netlink.AddrList(nil, netlink.FAMILY_ALL)
		})
		for _, a := range addrs {
			seen[a.IPNet.String()] = fmt.Sprintf("link %d scope %d", a.LinkIndex, a.Scope)
		}
		return errors.Join(failed, err)
	})
	return seen
}

// prepared returns the state before Start with the changes of Start.
func prepared(before map[string]string) map[string]string {
	after := maps.Clone(before)
	maps.Copy(after, map[string]string{
		"all/arp_ignore": "1", "lo/arp_ignore": "1", "all/arp_announce": "2", "lo/arp_announce": "2",
		"198.18.0.100/32": "link 1 scope 254", "2001:2::100/128": "link 1 scope 0",
	})
	return after
}

func same(tb testing.TB, what string, want, got any) {
	tb.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		tb.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func lines(events []hostnet.Event) (text []string) {
	for _, e := range events {
		text = append(text, e.String())
	}
	return text
}

func TestStartAndClose(t *testing.T) {
	ns := testenv.Namespace(t)
	before := look(t, ns)
	a, err := start(t, ns, t.TempDir(), vip4, vip6, vip4)
	if err != nil {
		t.Fatal(err)
	}
	same(t, "prepared", prepared(before), look(t, ns))
	same(t, "events", []string{
		"net.ipv4.conf.all.arp_ignore: 0 → 1",
		"net.ipv4.conf.lo.arp_ignore: 0 → 1",
		"net.ipv4.conf.all.arp_announce: 0 → 2",
		"net.ipv4.conf.lo.arp_announce: 0 → 2",
		"198.18.0.100/32 on lo: absent → present",
		"2001:2::100/128 on lo: absent → present",
	}, lines(a.Events()))
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	same(t, "after", before, look(t, ns))
	if got := lines(a.Events()); len(got) != 6 || got[0] != "2001:2::100/128 on lo: present → absent" {
		t.Errorf("events of Close: %q", got)
	}
}

func TestIPv6AloneNeedsNoSysctl(t *testing.T) {
	ns := testenv.Namespace(t)
	want := look(t, ns)
	want["2001:2::100/128"] = "link 1 scope 0"
	if _, err := start(t, ns, t.TempDir(), vip6); err != nil {
		t.Fatal(err)
	}
	same(t, "prepared", want, look(t, ns))
}

func TestValuesThatServeAreKept(t *testing.T) {
	for level, want := range map[string]string{"1": "1", "2": "2", "3": "3", "8": "8", "4": "1", "7": "1"} {
		s := newSegment(t)
		testenv.In(t, s.backend, func() error { return testenv.WriteSysctl("net/ipv4/conf/all/arp_ignore", level) })
		before := look(t, s.backend)
		a, err := start(t, s.backend, t.TempDir(), vip4)
		if err != nil {
			t.Fatal(err)
		}
		if got := look(t, s.backend)["all/arp_ignore"]; got != want {
			t.Errorf("arp_ignore %s became %s, not %s", level, got, want)
		}
		// At level 8 the backend answers for no address at all, and the test would wait for ever.
		if level != "8" && s.answersARP(vip4) {
			t.Errorf("with arp_ignore %s before, the backend answers", level)
		}
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
		same(t, "after, with arp_ignore "+level, before, look(t, s.backend))
	}
}

func TestVIPThatWasThere(t *testing.T) {
	ns := testenv.Namespace(t)
	testenv.In(t, ns, func() error {
		return netlink.AddrAdd(&netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: 1}},
			&netlink.Addr{IPNet: netlink.NewIPNet(vip4.AsSlice())})
	})
	before := look(t, ns)
	a, err := start(t, ns, t.TempDir(), vip4)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(lines(a.Events()), "\n"); !strings.Contains(got,
		"198.18.0.100/32 on lo: present, unchanged") {
		t.Errorf("events: %s", got)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	same(t, "after", before, look(t, ns))
}

func TestLoopbackDown(t *testing.T) {
	ns := testenv.Namespace(t)
	testenv.In(t, ns, func() error {
		return netlink.LinkSetDown(&netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: 1}})
	})
	if _, err := start(t, ns, t.TempDir(), vip4); err == nil || !strings.Contains(err.Error(), "ip link set lo up") {
		t.Errorf("Start: %v", err)
	}
}

// TestKilled: the next agent after a killed one starts from the state before both.
func TestKilled(t *testing.T) {
	ns := testenv.Namespace(t)
	before := look(t, ns)
	dir := t.TempDir()
	kill(t, ns, dir, "")
	same(t, "after the kill", prepared(before), look(t, ns))

	want := maps.Clone(before)
	want["2001:2::100/128"] = "link 1 scope 0"
	a, err := start(t, ns, dir, vip6)
	if err != nil {
		t.Fatal(err)
	}
	same(t, "with the next agent", want, look(t, ns))
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	same(t, "after", before, look(t, ns))
}

// kill starts an agent as a child in ns, checks that a second one is rejected, and kills the child.
func kill(t *testing.T, ns *namespace.Namespace, dir string, hook agent.Hook) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), childDir+"="+dir, childHook+"="+string(hook))
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stdin, err1 := cmd.StdinPipe()
	stdout, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	testenv.In(t, ns, func() error {
		// The parent-death signal is tied to this thread, so the child must end before the thread does.
		if err := cmd.Start(); err != nil {
			return err
		}
		line, err := bufio.NewReader(stdout).ReadString('\n')
		if line != "ready\n" {
			err = errors.Join(err, fmt.Errorf("the child says: %s", line))
		}
		if _, busy := agent.Start(agent.Options{VIPs: []netip.Addr{vip4}, Dir: dir}); !errors.Is(busy,
			hostnet.ErrBusy) {
			err = errors.Join(err, fmt.Errorf("a second agent: %v", busy))
		}
		err = errors.Join(err, cmd.Process.Kill())
		cmd.Wait()
		return err
	})
}
