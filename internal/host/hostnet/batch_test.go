// SPDX-License-Identifier: Apache-2.0

package hostnet_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/host/hostnet"
	"github.com/jeoul/jeoul/internal/host/namespace"
	"github.com/jeoul/jeoul/internal/test/testenv"
)

// batchDir makes the test binary a process that adds the addresses of many to its host, with its journal in that
// directory.
const batchDir = "JEOUL_TEST_HOSTNET_BATCH"

func batchChild(dir string) error {
	c, err := hostnet.Open(dir, "test")
	if err != nil {
		return err
	}
	if err := c.AddAddresses("lo", many(), vip); err != nil {
		return err
	}
	fmt.Println("done")
	select {} // until it is killed
}

// many returns 5,000 addresses of both families.
func many() []netip.Addr {
	var addrs []netip.Addr
	four, six := netip.MustParseAddr("198.18.1.0"), netip.MustParseAddr("2001:2::1:0")
	for range 2500 {
		addrs = append(addrs, four, six)
		four, six = four.Next(), six.Next()
	}
	return addrs
}

// manyOf returns the number of addresses of many in the namespace.
func manyOf(tb testing.TB, ns *namespace.Namespace) int {
	tb.Helper()
	wanted := map[netip.Addr]bool{}
	for _, addr := range many() {
		wanted[addr] = true
	}
	n := 0
	for _, text := range readSettings(tb, ns).Addresses {
		prefix, _, _ := strings.Cut(text, " ")
		if wanted[netip.MustParsePrefix(prefix).Addr()] {
			n++
		}
	}
	return n
}

// put adds an address to lo as another program does, without duplicate address detection.
func put(addr netip.Addr) error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	a := &netlink.Addr{IPNet: netlink.NewIPNet(addr.AsSlice())}
	if addr.Is6() {
		a.Flags = unix.IFA_F_NODAD
	}
	return netlink.AddrAdd(lo, a)
}

// writes counts the replacements of the journal in dir, by the renames that the kernel reports.
type writes int

func watchWrites(tb testing.TB, dir string) writes {
	tb.Helper()
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { unix.Close(fd) })
	if _, err := unix.InotifyAddWatch(fd, dir, unix.IN_MOVED_TO); err != nil {
		tb.Fatal(err)
	}
	return writes(fd)
}

// count returns the number of writes since the last call.
func (w writes) count(tb testing.TB) (n int) {
	tb.Helper()
	buffer := make([]byte, 1<<16)
	for {
		size, err := unix.Read(int(w), buffer)
		if errors.Is(err, unix.EAGAIN) {
			return n
		}
		if err != nil {
			tb.Fatal(err)
		}
		for rest := buffer[:size]; len(rest) > 0; n++ {
			var event unix.InotifyEvent
			if err := binary.Read(bytes.NewReader(rest), binary.NativeEndian, &event); err != nil {
				tb.Fatal(err)
			}
			if event.Mask&unix.IN_Q_OVERFLOW != 0 {
				return math.MaxInt
			}
			rest = rest[unix.SizeofInotifyEvent+event.Len:]
		}
	}
}

// TestManyAddresses: the journal is written before the first address is added and after the last is removed, no matter
// how many there are.
func TestManyAddresses(t *testing.T) {
	ns := testenv.Namespace(t)
	dir := t.TempDir()
	c := open(t, ns, dir)
	addrs := many()
	testenv.In(t, ns, func() error { return put(addrs[7]) })
	w := watchWrites(t, dir)
	if err := c.AddAddresses("lo", slices.Concat(addrs, addrs[:1]), vip); err != nil {
		t.Fatal(err)
	}
	same(t, "addresses", len(addrs), manyOf(t, ns))
	same(t, "events", len(addrs), len(c.Events())) // one event for the address that is kept
	same(t, "writes to add", 1, w.count(t))
	if err := c.AddAddresses("lo", addrs, vip); err != nil {
		t.Fatal(err)
	}
	same(t, "writes where nothing is to be done", 0, w.count(t))
	if err := c.RemoveAddresses("lo", addrs[:1000]); err != nil {
		t.Fatal(err)
	}
	same(t, "addresses left", len(addrs)-1000+1, manyOf(t, ns))
	same(t, "writes to remove", 1, w.count(t))
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	same(t, "addresses after Close", 1, manyOf(t, ns))
	same(t, "writes to close", 0, w.count(t))
	empty(t, dir)
}

// TestAddressesAllOrNone: a batch adds all of its addresses or none, wherever it fails, and the journal forgets a
// failed one.
func TestAddressesAllOrNone(t *testing.T) {
	ns := testenv.Namespace(t)
	testenv.In(t, ns, func() error {
		return errors.Join(testenv.WriteSysctl("net/ipv6/conf/lo/disable_ipv6", "1"), put(vip4.Next().Next()))
	})
	before := readSettings(t, ns)
	c := open(t, ns, t.TempDir())
	// The kernel refuses the last one.
	batch := []netip.Addr{vip4, vip4.Next(), vip4.Next().Next(), vip6}
	err := c.AddAddresses("lo", batch, vip)
	if err == nil || !strings.Contains(err.Error(), vip6.String()) {
		t.Errorf("AddAddresses: %v", err)
	}
	same(t, "after", before, readSettings(t, ns))
	const why = " (not all could be put there)"
	same(t, "events", []string{
		"198.18.0.102/32 on lo: present, unchanged (jeoul did not put it there: it stays, also afterwards)",
		"198.18.0.100/32 on lo: absent → present",
		"198.18.0.101/32 on lo: absent → present",
		"198.18.0.101/32 on lo: present → absent" + why,
		"198.18.0.100/32 on lo: present → absent" + why,
	}, texts(c.Events()))
	// Now another program adds the address, although it was in the batch.
	testenv.In(t, ns, func() error { return put(vip4) })
	with := readSettings(t, ns)
	if err := errors.Join(c.RemoveAddresses("lo", batch), c.Close()); err != nil {
		t.Fatal(err)
	}
	same(t, "after Close", with, readSettings(t, ns))
}

// TestKilledWithinABatch: a process that is killed while it adds addresses leaves some of them. The next process
// removes these, and nothing else.
func TestKilledWithinABatch(t *testing.T) {
	ns := testenv.Namespace(t)
	addrs := many()
	foreign := []netip.Addr{addrs[1], addrs[4000], addrs[len(addrs)-1]}
	testenv.In(t, ns, func() error { return errors.Join(put(foreign[0]), put(foreign[1]), put(foreign[2])) })
	before := readSettings(t, ns)
	// On a busy machine, the batch may end before the test kills the process.
	for range 20 {
		dir := t.TempDir()
		killWithinBatch(t, ns, dir)
		n := manyOf(t, ns)
		c := open(t, ns, dir)
		same(t, "after the next Open", before, readSettings(t, ns))
		same(t, "events", n-len(foreign), len(c.Events()))
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		empty(t, dir)
		if n > len(foreign) && n < len(addrs) {
			return
		}
		t.Logf("killed with %d of the addresses there: once more", n)
	}
	t.Error("no process was killed within its batch")
}

// killWithinBatch starts a child that adds the addresses, and kills it when the first one exists.
func killWithinBatch(t *testing.T, ns *namespace.Namespace, dir string) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), batchDir+"="+dir)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	updates, done := make(chan netlink.AddrUpdate), make(chan struct{})
	defer func() {
		close(done)
		go func() {
			for range updates { // drain the channel
			}
		}()
	}()
	testenv.In(t, ns, func() error {
		err := netlink.AddrSubscribeWithOptions(updates, done, netlink.AddrSubscribeOptions{})
		if err != nil {
			return err
		}
		// The child must end before this thread does, because of Pdeathsig.
		if err := cmd.Start(); err != nil {
			return err
		}
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		select {
		case <-updates:
		case err := <-ended:
			return fmt.Errorf("the child ended by itself: %w", err)
		}
		err = cmd.Process.Kill()
		<-ended
		return err
	})
}
