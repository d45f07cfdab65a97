// SPDX-License-Identifier: Apache-2.0

package hostnet_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/host/hostnet"
	"github.com/jeoul/jeoul/internal/host/namespace"
	"github.com/jeoul/jeoul/internal/host/netdump"
	"github.com/jeoul/jeoul/internal/test/testenv"
)

var (
	vip4 = netip.MustParseAddr("198.18.0.100")
	vip6 = netip.MustParseAddr("2001:2::100")
	vip  = hostnet.AddressOptions{ScopeHost: true, Deprecated: true, NoDAD: true}
)

const (
	ignore   = "net.ipv4.conf.all.arp_ignore"
	announce = "net.ipv4.conf.all.arp_announce"
)

// childDir makes the test binary a process that changes its host's network settings, with its journal in that
// directory, and waits to be killed.
const childDir = "JEOUL_TEST_HOSTNET_CHILD"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		if err := child(dir); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if dir := os.Getenv(batchDir); dir != "" {
		fmt.Fprintln(os.Stderr, batchChild(dir))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func child(dir string) error {
	c, err := hostnet.Open(dir, "test")
	if err != nil {
		return err
	}
	if err := change(c); err != nil {
		return err
	}
	fmt.Println("changed")
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

func change(c *hostnet.Changes) error {
	return errors.Join(
		c.SetSysctl(ignore, "1"),
		c.SetSysctl(ignore, "2"),
		c.SetSysctl(announce, "2"),
		c.AddAddress("lo", vip4, vip),
		c.AddAddress("lo", vip6, vip))
}

// settings are the kernel's settings that the tests change.
type settings struct {
	Ignore, Announce string
	Addresses        []string
}

var untouched = settings{Ignore: "0", Announce: "0", Addresses: []string{"127.0.0.1/8 scope 254", "::1/128 scope 254"}}

func readSettings(tb testing.TB, ns *namespace.Namespace) settings {
	tb.Helper()
	var s settings
	testenv.In(tb, ns, func() error {
		var err1, err2 error
		s.Ignore, err1 = testenv.Sysctl("net/ipv4/conf/all/arp_ignore")
		s.Announce, err2 = testenv.Sysctl("net/ipv4/conf/all/arp_announce")
		addrs, err3 := allAddresses()
		// The kernel ends duplicate address detection of thousands of addresses one by one, each under the lock that
		// all network namespaces of the machine share, and each change interrupts a dump.
		for end := time.Now().Add(time.Minute); errors.Is(err3, netlink.ErrDumpInterrupted) && time.Now().Before(end); {
			addrs, err3 = allAddresses()
		}
		for _, a := range addrs {
			text := fmt.Sprintf("%s scope %d", a.IPNet, a.Scope)
			if a.Flags&unix.IFA_F_DEPRECATED != 0 {
				text += " deprecated"
			}
			if a.Flags&unix.IFA_F_TENTATIVE != 0 {
				text += " tentative"
			}
			s.Addresses = append(s.Addresses, text)
		}
		return errors.Join(err1, err2, err3)
	})
	return s
}

func allAddresses() ([]netlink.Addr, error) {
	return netdump.Consistent(func() ([]netlink.Addr, error) { return netlink.AddrList(nil, netlink.FAMILY_ALL) })
}

func same(tb testing.TB, what string, want, got any) {
	tb.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		tb.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func open(tb testing.TB, ns *namespace.Namespace, dir string) *hostnet.Changes {
	tb.Helper()
	var c *hostnet.Changes
	testenv.In(tb, ns, func() (err error) {
		c, err = hostnet.Open(dir, "test")
		return err
	})
	tb.Cleanup(func() { c.Close() })
	return c
}

func texts(events []hostnet.Event) []string {
	var lines []string
	for _, e := range events {
		lines = append(lines, e.String())
	}
	return lines
}

func empty(tb testing.TB, dir string) {
	tb.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		tb.Fatal(err)
	}
	for _, e := range entries {
		tb.Errorf("%s is left in the state directory", e.Name())
	}
}

// TestChangesAreTakenBack makes all calls except Open from outside the namespace, as a laboratory does.
func TestChangesAreTakenBack(t *testing.T) {
	ns := testenv.Namespace(t)
	same(t, "before", untouched, readSettings(t, ns))
	dir := filepath.Join(t.TempDir(), "run", "jeoul")
	c := open(t, ns, dir)
	if err := change(c); err != nil {
		t.Fatal(err)
	}
	same(t, "changed", settings{Ignore: "2", Announce: "2", Addresses: []string{
		"127.0.0.1/8 scope 254", "198.18.0.100/32 scope 254", "::1/128 scope 254", "2001:2::100/128 scope 0 deprecated",
	}}, sorted(readSettings(t, ns)))
	same(t, "events", []string{
		"net.ipv4.conf.all.arp_ignore: 0 → 1",
		"net.ipv4.conf.all.arp_ignore: 1 → 2",
		"net.ipv4.conf.all.arp_announce: 0 → 2",
		"198.18.0.100/32 on lo: absent → present",
		"2001:2::100/128 on lo: absent → present",
	}, texts(c.Events()))
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	same(t, "after", untouched, readSettings(t, ns))
	same(t, "events of Close", []string{
		"2001:2::100/128 on lo: present → absent",
		"198.18.0.100/32 on lo: present → absent",
		"net.ipv4.conf.all.arp_announce: 2 → 0",
		"net.ipv4.conf.all.arp_ignore: 2 → 1",
		"net.ipv4.conf.all.arp_ignore: 1 → 0",
	}, texts(c.Events()))
	empty(t, dir)
	if err := c.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
	if err := c.SetSysctl(ignore, "1"); err == nil {
		t.Error("SetSysctl after Close is not an error")
	}
}

// sorted puts ::1 before the other IPv6 addresses, which are in the kernel's order.
func sorted(s settings) settings {
	for i, a := range s.Addresses {
		if strings.HasPrefix(a, "::1/") {
			s.Addresses = append(s.Addresses[:i], s.Addresses[i+1:]...)
			break
		}
	}
	s.Addresses = append(s.Addresses, "")
	copy(s.Addresses[3:], s.Addresses[2:])
	s.Addresses[2] = "::1/128 scope 254"
	return s
}

func TestKilledOwnersChangesAreTakenBack(t *testing.T) {
	ns := testenv.Namespace(t)
	dir := t.TempDir()
	kill(t, ns, dir)
	if got := readSettings(t, ns); got.Ignore != "2" || len(got.Addresses) != 4 {
		t.Fatalf("the child changed nothing: %+v", got)
	}
	c := open(t, ns, dir)
	same(t, "after the next Open", untouched, readSettings(t, ns))
	same(t, "events", []string{
		"2001:2::100/128 on lo: present → absent (left by a process that died)",
		"198.18.0.100/32 on lo: present → absent (left by a process that died)",
		"net.ipv4.conf.all.arp_announce: 2 → 0 (left by a process that died)",
		"net.ipv4.conf.all.arp_ignore: 2 → 1 (left by a process that died)",
		"net.ipv4.conf.all.arp_ignore: 1 → 0 (left by a process that died)",
	}, texts(c.Events()))
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	empty(t, dir)
}

// kill starts a child that makes changes in ns, checks that no other process can then do so under its name, and kills
// the child.
func kill(t *testing.T, ns *namespace.Namespace, dir string) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), childDir+"="+dir)
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
		if line != "changed\n" {
			err = errors.Join(err, fmt.Errorf("the child says: %s", line))
		}
		_, busy := hostnet.Open(dir, "test")
		if !errors.Is(busy, hostnet.ErrBusy) || !strings.Contains(busy.Error(), fmt.Sprint(cmd.Process.Pid)) {
			err = errors.Join(err, fmt.Errorf("Open beside the child: %w", busy))
		}
		err = errors.Join(err, cmd.Process.Kill())
		cmd.Wait()
		return err
	})
}

func TestOthersWorkIsLeftAlone(t *testing.T) {
	ns := testenv.Namespace(t)
	testenv.In(t, ns, func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		addr, err := netlink.ParseAddr(vip4.String() + "/24")
		if err != nil {
			return err
		}
		return errors.Join(netlink.AddrAdd(lo, addr), testenv.WriteSysctl("net/ipv4/conf/all/arp_announce", "2"))
	})
	c := open(t, ns, t.TempDir())
	if err := change(c); err != nil {
		t.Fatal(err)
	}
	same(t, "events", []string{
		"net.ipv4.conf.all.arp_ignore: 0 → 1",
		"net.ipv4.conf.all.arp_ignore: 1 → 2",
		"net.ipv4.conf.all.arp_announce: 2, unchanged (has that value already)",
		"198.18.0.100/32 on lo: present, unchanged (jeoul did not put it there: it stays, also afterwards)",
		"2001:2::100/128 on lo: absent → present",
	}, texts(c.Events()))
	if err := c.RemoveAddress("lo", vip4); err != nil {
		t.Fatal(err)
	}
	testenv.In(t, ns, func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		addr, err := netlink.ParseAddr(vip6.String() + "/128")
		if err != nil {
			return err
		}
		return errors.Join(netlink.AddrDel(lo, addr), testenv.WriteSysctl("net/ipv4/conf/all/arp_ignore", "8"))
	})
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	same(t, "events of Close", []string{
		"net.ipv4.conf.all.arp_ignore: 8, unchanged (changed since jeoul set it from 1 to 2)",
	}, texts(c.Events()))
	same(t, "after", settings{Ignore: "8", Announce: "2", Addresses: []string{
		"127.0.0.1/8 scope 254", "198.18.0.100/24 scope 0", "::1/128 scope 254",
	}}, readSettings(t, ns))
}

// TestSysctlSetAgain: a sysctl that another program has reset is set again, the journal does not grow, and Close
// restores the last value set by others.
func TestSysctlSetAgain(t *testing.T) {
	ns := testenv.Namespace(t)
	dir := t.TempDir()
	c := open(t, ns, dir)
	var size int
	for _, other := range []string{"", "0", "0", "1", "1"} {
		if other != "" {
			testenv.In(t, ns, func() error { return testenv.WriteSysctl("net/ipv4/conf/all/arp_announce", other) })
		}
		if err := c.SetSysctl(announce, "2"); err != nil {
			t.Fatal(err)
		}
		if got := readSettings(t, ns).Announce; got != "2" {
			t.Errorf("after %q it is %s", other, got)
		}
		all, err := filepath.Glob(filepath.Join(dir, "*"+hostnet.JournalSuffix))
		if err != nil || len(all) != 1 {
			t.Fatalf("journals %v, %v", all, err)
		}
		data, err := os.ReadFile(all[0])
		if err != nil {
			t.Fatal(err)
		}
		if n := len(data); size == 0 {
			size = n
		} else if n != size {
			t.Errorf("the journal grew from %d to %d bytes", size, n)
		}
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if got := readSettings(t, ns).Announce; got != "1" {
		t.Errorf("at the end it is %s, and the last value that was not ours is 1", got)
	}
}

func TestRemoveAddress(t *testing.T) {
	ns := testenv.Namespace(t)
	dir := t.TempDir()
	c := open(t, ns, dir)
	if err := change(c); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(c.AddAddress("lo", vip6, vip), c.RemoveAddress("lo", vip6),
		c.RemoveAddress("lo", vip6)); err != nil {
		t.Fatal(err)
	}
	if links, err := c.Links(vip4); err != nil || !cmp.Equal(links, []string{"lo"}) {
		t.Errorf("Links(%s) = %q, %v", vip4, links, err)
	}
	if links, err := c.Links(vip6); err != nil || links != nil {
		t.Errorf("Links(%s) = %q, %v", vip6, links, err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	same(t, "after", untouched, readSettings(t, ns))
}

// TestAddressAgain: an address that is added again after it was removed, or on a recreated link, is still one address.
func TestAddressAgain(t *testing.T) {
	ns := testenv.Namespace(t)
	ends := []testenv.End{{Namespace: ns, Name: "eth0"}, {Namespace: ns, Name: "eth1"}}
	c := open(t, ns, t.TempDir())
	for range 2 {
		testenv.Veth(t, ends[0], ends[1])
		eth0 := &netlink.Device{LinkAttrs: netlink.LinkAttrs{Name: "eth0"}}
		if err := c.AddAddress("eth0", vip4, hostnet.AddressOptions{}); err != nil {
			t.Fatal(err)
		}
		testenv.In(t, ns, func() error {
			return netlink.AddrDel(eth0, &netlink.Addr{IPNet: netlink.NewIPNet(vip4.AsSlice())})
		})
		if err := c.AddAddress("eth0", vip4, hostnet.AddressOptions{}); err != nil {
			t.Fatal(err)
		}
		if links, err := c.Links(vip4); err != nil || !cmp.Equal(links, []string{"eth0"}) {
			t.Fatalf("Links = %q, %v", links, err)
		}
		testenv.In(t, ns, func() error { return netlink.LinkDel(eth0) })
	}
	testenv.Veth(t, ends[0], ends[1])
	if err := errors.Join(c.AddAddress("eth0", vip4, hostnet.AddressOptions{}),
		c.RemoveAddress("eth0", vip4)); err != nil {
		t.Fatal(err)
	}
	if links, err := c.Links(vip4); err != nil || links != nil {
		t.Errorf("after RemoveAddress: Links = %q, %v", links, err)
	}
	// The address now belongs to another program.
	testenv.In(t, ns, func() error {
		eth0, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		return netlink.AddrAdd(eth0, &netlink.Addr{IPNet: netlink.NewIPNet(vip4.AsSlice())})
	})
	if links, err := c.Links(vip4); err != nil || !cmp.Equal(links, []string{"eth0"}) {
		t.Errorf("Links = %q, %v", links, err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	found := false
	for _, a := range readSettings(t, ns).Addresses {
		found = found || strings.HasPrefix(a, vip4.String())
	}
	if !found {
		t.Error("an address that is not ours was removed")
	}
}

func TestTwoNamespacesDoNotDisturbEachOther(t *testing.T) {
	a, b := testenv.Namespace(t), testenv.Namespace(t)
	dir := t.TempDir()
	ca, cb := open(t, a, dir), open(t, b, dir)
	if err := change(ca); err != nil {
		t.Fatal(err)
	}
	same(t, "b", untouched, readSettings(t, b))
	if err := errors.Join(change(cb), ca.Close()); err != nil {
		t.Fatal(err)
	}
	same(t, "a", untouched, readSettings(t, a))
	if got := readSettings(t, b); got.Ignore != "2" {
		t.Errorf("closing a changed b: %+v", got)
	}
}

func TestVanishedLink(t *testing.T) {
	ns := testenv.Namespace(t)
	testenv.Veth(t, testenv.End{Namespace: ns, Name: "eth0"}, testenv.End{Namespace: ns, Name: "eth1"})
	c := open(t, ns, t.TempDir())
	err := errors.Join(
		c.AddAddress("eth0", vip4, hostnet.AddressOptions{}),
		c.AddAddress("eth0", vip6, hostnet.AddressOptions{NoDAD: true}),
		c.SetSysctl("net.ipv4.conf.eth0.rp_filter", "2"))
	if err != nil {
		t.Fatal(err)
	}
	testenv.In(t, ns, func() error {
		return netlink.LinkDel(&netlink.Device{LinkAttrs: netlink.LinkAttrs{Name: "eth0"}})
	})
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestRefusals(t *testing.T) {
	ns := testenv.Namespace(t)
	testenv.In(t, ns, func() error {
		return testenv.WriteSysctl("net/ipv6/conf/lo/disable_ipv6", "1")
	})
	before := readSettings(t, ns)
	c := open(t, ns, t.TempDir())
	for _, tc := range []struct {
		name string
		err  error
		is   error
		text string
	}{
		{"no such link", c.AddAddress("nosuch0", vip4, vip), hostnet.ErrNoLink, "nosuch0"},
		{"no address", c.AddAddress("lo", netip.Addr{}, vip), nil, "not an address"},
		{"IPv6 off", c.AddAddress("lo", vip6, vip), nil, "disable_ipv6"},
		{"no such sysctl", c.SetSysctl("net.ipv4.conf.all.nosuch", "1"), fs.ErrNotExist, "nosuch"},
		{"another tree", c.SetSysctl("kernel.panic", "1"), nil, "net."},
		{"way out", c.SetSysctl("net.ipv4/../../kernel.panic", "1"), nil, "not a sysctl"},
		{"bad value", c.SetSysctl(ignore, "many"), nil, "invalid argument"},
		{"bad name", c.SetSysctl("net", "1"), nil, "net."},
	} {
		if tc.err == nil || (tc.is != nil && !errors.Is(tc.err, tc.is)) || !strings.Contains(tc.err.Error(), tc.text) {
			t.Errorf("%s: %v", tc.name, tc.err)
		}
	}
	same(t, "events", []string(nil), texts(c.Events()))
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	same(t, "after", before, readSettings(t, ns))
	if _, err := hostnet.Open(t.TempDir(), "../x"); err == nil {
		t.Error("a name that leaves the directory was accepted")
	}
}

// TestNoRights runs in a child process, which drops its rights permanently in the middle.
func TestNoRights(t *testing.T) {
	testenv.Root(t)
	if os.Getenv("JEOUL_TEST_NO_RIGHTS") == "" {
		cmd := exec.Command("/proc/self/exe", "-test.run=^TestNoRights$", "-test.v")
		cmd.Env = append(os.Environ(), "JEOUL_TEST_NO_RIGHTS=1")
		var out []byte
		var err error
		ns := testenv.Namespace(t)
		before := readSettings(t, ns)
		testenv.In(t, ns, func() error {
			out, err = cmd.CombinedOutput()
			return nil
		})
		same(t, "after", before, readSettings(t, ns))
		if err != nil || !strings.Contains(string(out), "--- PASS: TestNoRights") {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	closed, mine := t.TempDir(), t.TempDir()
	if err := errors.Join(os.Chmod(closed, 0o700), os.Chown(mine, 65534, 65534),
		os.Chmod(filepath.Dir(mine), 0o755)); err != nil {
		t.Fatal(err)
	}
	// Go's syscall package sets them for all threads.
	if err := syscall.Setresuid(65534, 65534, 0); err != nil {
		t.Fatal(err)
	}
	defer syscall.Setresuid(0, 0, 0)
	if _, err := hostnet.Open(filepath.Join(closed, "jeoul"), "test"); !errors.Is(err, hostnet.ErrNoRights) {
		t.Errorf("Open in a closed directory: %v", err)
	}
	c, err := hostnet.Open(mine, "test")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.AddAddress("lo", vip4, vip); !errors.Is(err, hostnet.ErrNoRights) {
		t.Errorf("AddAddress: %v", err)
	}
	if err := c.SetSysctl(ignore, "1"); !errors.Is(err, hostnet.ErrNoRights) {
		t.Errorf("SetSysctl: %v", err)
	}
}
