// SPDX-License-Identifier: Apache-2.0

package hostnet_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/host/hostnet"
	"github.com/jeoul/jeoul/internal/host/netdump"
	"github.com/jeoul/jeoul/internal/test/testenv"
	"github.com/jeoul/jeoul/internal/test/testkill"
)

// TestKilledAtEachStep kills a process at each step of its changes to a host's network: each write of the journal, each
// address, sysctl, feature and qdisc. The next process undoes all or continues. Afterwards the settings are those
// before the first process, and no file is left.
//
// Some steps of each story are selected at random. With JEOUL_TEST_EVERY_STEP=1 (`make test-kills`) all are.
func TestKilledAtEachStep(t *testing.T) {
	testenv.Root(t)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for _, s := range killStories {
		t.Run(s.name, func(t *testing.T) {
			w := &killWalk{router: newRouter(t), killStory: s, dir: t.TempDir()}
			w.before = w.state()
			steps := w.kill(-1, false)
			if len(steps) == 0 {
				t.Fatal("it has no step")
			}
			for _, n := range testkill.Some(random, len(steps), 2) {
				for _, inherits := range []bool{false, true} {
					if w.kill(n, inherits); t.Failed() {
						t.Fatalf("killed after these of %d steps, and inherited: %v:\n%s", len(steps), inherits,
							strings.Join(steps[:n], "\n"))
					}
				}
			}
		})
	}
}

// killStory is a process that is killed while it makes changes.
type killStory struct {
	name string
	// left makes the changes of the process before, if any.
	left func(*hostnet.Changes) error
	// open opens the changes, and does makes some. Both have steps.
	open func(dir, name string, with ...hostnet.Option) (*hostnet.Changes, error)
	does func(*hostnet.Changes) error
}

var killStories = []killStory{
	{"a start", nil, hostnet.Open, makeChanges},
	{"a stop", makeChanges, hostnet.Adopt, (*hostnet.Changes).Close},
	{"a reload", makeChanges, hostnet.Adopt, moveLink},
	{"a start that takes back", makeChanges, hostnet.Open, func(*hostnet.Changes) error { return nil }},
}

// makeChanges makes changes of every kind.
func makeChanges(c *hostnet.Changes) error {
	return errors.Join(
		c.SetSysctl(ignore, "1"), c.SetSysctl(ignore, "2"),
		c.AddAddresses("eth0.5", []netip.Addr{vip4, vip6}, vip),
		c.DisableFeature("eth0.5", parse, "for a test"),
		c.EnableForwarding([]string{"eth0.5", "eth1"}, true, true),
		c.EnsureClsact("eth1", func(ours bool) error {
			if !ours {
				return errors.New("there is a clsact")
			}
			return addFilter("eth1")
		}))
}

// moveLink moves the addresses and settings to another link.
func moveLink(c *hostnet.Changes) error {
	return errors.Join(
		c.AddAddresses("eth1", []netip.Addr{vip4}, vip),
		c.RetainAddresses("eth1", []netip.Addr{vip4}),
		c.RestoreFeature("eth0.5", parse, "for a test"),
		c.EnableForwarding([]string{"eth1"}, true, false))
}

// killWalk kills the processes of a story.
type killWalk struct {
	*router
	killStory
	dir string
	// before is the state before all of them.
	before map[string]string
}

// state returns all settings that may change.
func (w *killWalk) state() map[string]string {
	all := w.sysctls()
	testenv.In(w.t, w.host, func() error {
		for _, name := range []string{"lo", "eth0.5", "eth1"} {
			link, err := netlink.LinkByName(name)
			if err != nil {
				return err
			}
			addresses, err1 := netdump.Consistent(func() ([]netlink.Addr, error) {
				return netlink.AddrList(link, netlink.FAMILY_ALL)
			})
			qdiscs, err2 := netdump.Consistent(func() ([]netlink.Qdisc, error) {
				return netlink.QdiscList(link)
			})
			if err := errors.Join(err1, err2); err != nil {
				return err
			}
			for _, a := range addresses {
				// Duplicate address detection of the link's own addresses ends in the meantime.
				all[name+" "+a.IPNet.String()] = "there"
			}
			for _, q := range qdiscs {
				all[name+" "+q.Type()] = "there"
			}
		}
		all["eth0.5 features"] = strings.Join(featuresOf(w.t, "eth0.5"), " ")
		return nil
	})
	return all
}

// kill kills a process before its step n, or lets it end. The next process undoes its changes, or continues with them
// first.
func (w *killWalk) kill(n int, inherits bool) (steps []string) {
	w.t.Helper()
	if w.left != nil {
		testenv.In(w.t, w.host, func() error {
			c, err := hostnet.Open(w.dir, "test")
			if err != nil {
				return err
			}
			err = w.left(c)
			c.Detach()
			return err
		})
	}
	steps, killed, err := w.start().End(n)
	if err != nil || killed != (n >= 0) {
		w.t.Fatalf("the process: killed: %v, %v", killed, err)
	}
	testenv.In(w.t, w.host, func() error {
		open := hostnet.Open
		if inherits {
			open = hostnet.Adopt
		}
		c, err := open(w.dir, "test")
		if err == nil && inherits {
			err = moveLink(c)
		}
		if err == nil {
			// Filters are removed by the programs that attached them, and clsact with them.
			err = errors.Join(c.Close(), delFilter("eth1"))
		}
		return err
	})
	if diff := cmp.Diff(w.before, w.state()); diff != "" {
		w.t.Errorf("what is left (-want +got):\n%s", diff)
	}
	left, err := filepath.Glob(filepath.Join(w.dir, "*"))
	if err != nil || len(left) != 0 {
		w.t.Errorf("files that are left: %v, %v", left, err)
	}
	return steps
}

// storyEnv is set for the process to be killed: its story, and the directory of its journal.
const storyEnv = "JEOUL_TEST_KILL_STORY"

func (w *killWalk) start() (victim *testkill.Victim) {
	w.t.Helper()
	command := exec.Command("/proc/self/exe", "-test.run=^TestKillVictim$", "-test.timeout=10m")
	command.Env = append(os.Environ(), fmt.Sprintf("%s=%s|%s", storyEnv, w.name, w.dir))
	var output strings.Builder
	command.Stdout, command.Stderr = &output, &output
	testenv.In(w.t, w.host, func() (err error) { // in the namespace of the thread that starts it
		if victim, err = testkill.Start(command); err != nil {
			return fmt.Errorf("%w\n%s", err, output.String())
		}
		return nil
	})
	return victim
}

// TestKillVictim is the process that is killed.
func TestKillVictim(t *testing.T) {
	if !testkill.IsVictim() {
		t.Skip("runs as a process of TestKilledAtEachStep only")
	}
	name, dir, _ := strings.Cut(os.Getenv(storyEnv), "|")
	story := killStories[slices.IndexFunc(killStories, func(s killStory) bool { return s.name == name })]
	if err := errors.Join(testkill.Report(), testkill.Begin()); err != nil {
		t.Fatal(err)
	}
	c, err := story.open(dir, "test")
	if err != nil {
		t.Fatal(err)
	}
	if err := story.does(c); err != nil {
		t.Fatal(err)
	}
}

// addFilter attaches a program of a balancer to ingress.
func addFilter(name string) error {
	nic, err := net.InterfaceByName(name)
	if err != nil {
		return err
	}
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, -1), asm.Return()}})
	if err != nil {
		return err
	}
	defer program.Close()
	return netlink.FilterReplace(&netlink.BpfFilter{Fd: program.FD(), Name: "test", DirectAction: true,
		FilterAttrs: netlink.FilterAttrs{
			LinkIndex: nic.Index, Parent: netlink.HANDLE_MIN_INGRESS, Handle: 1, Priority: 1,
			Protocol: unix.ETH_P_ALL}})
}

// delFilter removes the filter, if it exists, together with clsact.
func delFilter(name string) error {
	nic, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	filters, err := netdump.Consistent(func() ([]netlink.Filter, error) {
		return netlink.FilterList(nic, netlink.HANDLE_MIN_INGRESS)
	})
	if err != nil || len(filters) == 0 {
		return err
	}
	return netlink.QdiscDel(&netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: nic.Attrs().Index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT}})
}
