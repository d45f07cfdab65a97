// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/host/namespace"
	"github.com/jeoul/jeoul/internal/host/netdump"
	"github.com/jeoul/jeoul/internal/test/testenv"
	"github.com/jeoul/jeoul/internal/tools/agent"
)

// watched is an agent that watches a host.
type watched struct {
	t     *testing.T
	ns    *namespace.Namespace
	outer *namespace.Namespace
	agent *agent.Agent
	dir   string
	nics  int

	mu       sync.Mutex
	log      strings.Builder
	problems []string
}

func (w *watched) Write(line []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.log.Write(line)
}

// nic makes an Ethernet interface that is up.
func (w *watched) nic(name string) {
	w.t.Helper()
	w.nics++
	testenv.Veth(w.t, testenv.End{Namespace: w.ns, Name: name},
		testenv.End{Namespace: w.outer, Name: fmt.Sprintf("peer%d", w.nics)})
}

// watch starts an agent on a host with eth0, and makes it watch until the test ends.
func watch(t *testing.T, opt agent.Options) *watched {
	t.Helper()
	w := &watched{t: t, ns: testenv.Namespace(t), outer: testenv.Namespace(t), dir: opt.Dir}
	w.nic("eth0")
	testenv.In(t, w.ns, func() (err error) {
		w.agent, err = agent.Start(opt)
		return err
	})
	w.agent.LookOften()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.agent.Watch(ctx, slog.New(slog.NewTextHandler(w, nil)), func(problems []string) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.problems = problems
		})
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
		if err := w.agent.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

func (w *watched) in(do func() error) {
	w.t.Helper()
	testenv.In(w.t, w.ns, do)
}

// on runs f with an interface of the host.
func (w *watched) on(name string, f func(netlink.Link) error) {
	w.t.Helper()
	w.in(func() error {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		return f(link)
	})
}

func (w *watched) eventually(what string, is func() bool) {
	w.t.Helper()
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.t.Failed() {
			w.t.Logf("problems %q, log:\n%s", w.problems, w.log.String())
		}
	}()
	testenv.Eventually(w.t, testenv.WaitLimit, what, is)
}

// said waits for a line in the log, and then clears the log.
func (w *watched) said(what string) {
	w.t.Helper()
	w.eventually("the log has "+what, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		has := strings.Contains(w.log.String(), what)
		if has {
			w.log.Reset()
		}
		return has
	})
}

// expectProblem waits until there is exactly one problem, which contains what, or none if what is empty.
func (w *watched) expectProblem(what string) {
	w.t.Helper()
	w.eventually("the problem "+what, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return what == "" && len(w.problems) == 0 || what != "" && len(w.problems) == 1 &&
			strings.Contains(w.problems[0], what)
	})
}

// attachedTo waits until the programs are attached to these interfaces and no others.
func (w *watched) attachedTo(hook agent.Hook, names ...string) {
	w.t.Helper()
	var want []string
	for _, name := range names {
		want = append(want, hookedBy(hook, name, "egress", "ingress")...)
	}
	w.eventually("attached to "+strings.Join(names, ", "), func() bool { return slices.Equal(want, hooked(w.t, w.ns)) })
	w.eventually("that is reported", func() bool {
		var on []string
		for _, at := range w.agent.Attachments() {
			if !slices.Contains(on, at.Interface) {
				on = append(on, at.Interface)
			}
		}
		slices.Sort(on)
		return slices.Equal(on, names)
	})
}

func rename(link netlink.Link, to string) error {
	return errors.Join(netlink.LinkSetDown(link), netlink.LinkSetName(link, to), netlink.LinkSetUp(link))
}

// TestWatchPutsBack: VIPs and sysctls that another program removes are restored, and logged. The journal does not grow,
// and Close restores the host's own values.
func TestWatchPutsBack(t *testing.T) {
	w := watch(t, agent.Options{VIPs: []netip.Addr{vip4, vip6}, Dir: t.TempDir()})
	before := look(t, w.ns)
	journal := func() int64 {
		t.Helper()
		all, err := filepath.Glob(filepath.Join(w.dir, "*.journal"))
		if err != nil || len(all) != 1 {
			t.Fatalf("journals %v, %v", all, err)
		}
		info, err := os.Stat(all[0])
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	size := journal()
	for range 3 {
		for _, vip := range []netip.Addr{vip4, vip6} {
			w.on("lo", func(lo netlink.Link) error {
				return netlink.AddrDel(lo, &netlink.Addr{IPNet: netlink.NewIPNet(vip.AsSlice())})
			})
			w.said("put back: " + netip.PrefixFrom(vip, vip.BitLen()).String() + " on lo: absent → present")
		}
		for _, name := range []string{"arp_ignore", "arp_announce"} {
			w.in(func() error { return testenv.WriteSysctl("net/ipv4/conf/all/"+name, "0") })
			w.said("put back: net.ipv4.conf.all." + name + ": 0 → ")
		}
		same(t, "put back", before, look(t, w.ns))
	}
	w.expectProblem("")
	if now := journal(); now != size {
		t.Errorf("the journal has %d bytes, and had %d", now, size)
	}
}

// TestWatchReportsProblems: the agent reports problems that it cannot correct, until an administrator corrects them.
func TestWatchReportsProblems(t *testing.T) {
	w := watch(t, agent.Options{VIPs: []netip.Addr{vip4, vip6}, Dir: t.TempDir()})
	elsewhere := func(change func(netlink.Link, *netlink.Addr) error) {
		t.Helper()
		w.on("eth0", func(eth0 netlink.Link) error {
			return change(eth0, &netlink.Addr{IPNet: netlink.NewIPNet(vip4.AsSlice())})
		})
	}
	elsewhere(netlink.AddrAdd)
	w.expectProblem("198.18.0.100 is on eth0, which answers for it on the network: ip address del")
	elsewhere(netlink.AddrDel)
	w.expectProblem("")
	w.on("lo", netlink.LinkSetDown)
	w.expectProblem("interface lo is down")
	w.on("lo", netlink.LinkSetUp)
	w.expectProblem("")
	w.said("no longer: interface lo is down")
	w.eventually("the IPv6 VIP is back, which lo lost", func() bool { return vipsOnLo(t, w.ns) == 2 })
}

// vipsOnLo returns the number of VIPs on lo.
func vipsOnLo(t *testing.T, ns *namespace.Namespace) (n int) {
	t.Helper()
	testenv.In(t, ns, func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		list, err := netdump.Consistent(func() ([]netlink.Addr, error) {
			return netlink.AddrList(lo, netlink.FAMILY_ALL)
		})
		for _, a := range list {
			if a.IP.Equal(vip4.AsSlice()) || a.IP.Equal(vip6.AsSlice()) {
				n++
			}
		}
		return err
	})
	return n
}

// TestInterfaceDeletedDuringPass: an interface that is deleted after a pass has listed the interfaces is gone, and
// nothing else has taken its program off.
func TestInterfaceDeletedDuringPass(t *testing.T) {
	for _, hook := range hooks() {
		t.Run(string(hook), func(t *testing.T) {
			w := &watched{t: t, ns: testenv.Namespace(t), outer: testenv.Namespace(t), dir: t.TempDir()}
			w.nic("eth0")
			var links []netlink.Link
			testenv.In(t, w.ns, func() (err error) {
				if w.agent, err = agent.Start(everything(w.dir, hook)); err != nil {
					return err
				}
				links, err = netdump.Links()
				return err
			})
			defer func() {
				if err := w.agent.Close(); err != nil {
					t.Error(err)
				}
			}()
			w.on("eth0", netlink.LinkDel)
			if problems := w.agent.KeepPrograms(links, slog.New(slog.NewTextHandler(w, nil))); len(problems) > 0 {
				t.Errorf("problems %v", problems)
			}
			if log := w.log.String(); !strings.Contains(log, "interface eth0 is gone") || strings.Contains(log, "put back") {
				t.Errorf("log:\n%s\nwant that eth0 is gone, and nothing else", log)
			}
			if on := w.agent.Attachments(); len(on) > 0 {
				t.Errorf("attached to %v, want nothing", on)
			}
		})
	}
}

// TestWatchFollowsInterfaces: interfaces are added, deleted, added again, renamed, and made ports of a bridge, and
// another program detaches programs.
func TestWatchFollowsInterfaces(t *testing.T) {
	for _, hook := range hooks() {
		t.Run(string(hook), func(t *testing.T) {
			w := watch(t, everything(t.TempDir(), hook))
			w.attachedTo(hook, "eth0")
			w.on("eth0", netlink.LinkDel)
			w.said("interface eth0 is gone")
			w.expectProblem("no Ethernet interface is up")
			w.attachedTo(hook)
			w.nic("eth0")
			w.attachedTo(hook, "eth0")
			w.expectProblem("")
			w.nic("eth1")
			w.attachedTo(hook, "eth0", "eth1")
			w.on("eth1", netlink.LinkDel)
			w.attachedTo(hook, "eth0")
			w.on("eth0", func(link netlink.Link) error { return rename(link, "lan0") })
			w.attachedTo(hook, "lan0")
			w.on("lan0", netlink.LinkSetDown)
			w.attachedTo(hook, "lan0")
			w.on("lan0", netlink.LinkSetUp)
			if hook == agent.HookClsact {
				w.on("lan0", func(link netlink.Link) error {
					return netlink.QdiscDel(&netlink.GenericQdisc{QdiscType: "clsact",
						QdiscAttrs: netlink.QdiscAttrs{LinkIndex: link.Attrs().Index,
							Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT}})
				})
				w.said("something else has taken the eBPF program off lan0")
				w.attachedTo(hook, "lan0")
			}
			w.in(func() error {
				bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}}
				if err := netlink.LinkAdd(bridge); err != nil {
					return err
				}
				lan0, err := netlink.LinkByName("lan0")
				if err != nil {
					return err
				}
				return errors.Join(netlink.LinkSetMaster(lan0, bridge), netlink.LinkSetUp(bridge))
			})
			w.attachedTo(hook, "br0")
			w.expectProblem("")
		})
	}
}

// TestWatchOfNamedInterfaces: a renamed interface keeps the programs until another one has its name.
func TestWatchOfNamedInterfaces(t *testing.T) {
	for _, hook := range hooks() {
		t.Run(string(hook), func(t *testing.T) {
			opt := everything(t.TempDir(), hook)
			opt.Interfaces = []string{"eth0"}
			w := watch(t, opt)
			w.nic("eth1")
			w.on("eth0", func(link netlink.Link) error { return rename(link, "lan0") })
			w.expectProblem("interface eth0 has the name lan0 now")
			w.attachedTo(hook, "lan0")
			w.nic("eth0")
			w.attachedTo(hook, "eth0")
			w.expectProblem("")
			w.on("eth0", netlink.LinkDel)
			w.expectProblem("there is no Ethernet interface eth0: waiting for it")
			w.nic("eth0")
			w.attachedTo(hook, "eth0")
			w.expectProblem("")
		})
	}
}

// TestCheckBesideAgent: if an agent runs, an unmet condition that the agent should establish is missing. If none runs,
// the next agent will establish it.
func TestCheckBesideAgent(t *testing.T) {
	ns, outer := testenv.Namespace(t), testenv.Namespace(t)
	testenv.Veth(t, testenv.End{Namespace: ns, Name: "eth0"}, testenv.End{Namespace: outer, Name: "eth0"})
	opt := agent.Options{VIPs: []netip.Addr{vip4}, Modes: []lb.Mode{lb.IPIP}, Dir: t.TempDir()}
	check := func(when string, ready bool) (text string) {
		t.Helper()
		testenv.In(t, ns, func() error {
			all, err := agent.Check(opt)
			if err != nil {
				return err
			}
			for _, f := range all[0].Findings {
				text += f.What + " " + string(f.State) + ": " + f.Text + "\n"
			}
			if all[0].Ready() != ready {
				t.Errorf("%s: ready: %v\n%s", when, all[0].Ready(), text)
			}
			return nil
		})
		return text
	}
	if text := check("before", true); !strings.Contains(text, "agent note: does not run with the state directory "+
		opt.Dir) {
		t.Errorf("before:\n%s", text)
	}
	testenv.In(t, ns, func() error {
		a, err := agent.Start(opt)
		if err == nil {
			t.Cleanup(func() { a.Close() })
		}
		return err
	})
	if text := check("beside it", true); !strings.Contains(text, "agent ok: runs") ||
		!strings.Contains(text, "program ok: is attached to eth0") {
		t.Errorf("beside it:\n%s", text)
	}
	testenv.In(t, ns, func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		return errors.Join(netlink.AddrDel(lo, &netlink.Addr{IPNet: netlink.NewIPNet(vip4.AsSlice())}),
			testenv.WriteSysctl("net/ipv4/conf/all/arp_ignore", "0"))
	})
	text := check("with things taken away", false)
	for _, want := range []string{"vip missing: 198.18.0.100 is to be put on lo, which the agent",
		"arp missing: net.ipv4.conf.all.arp_ignore: 0 → 1, which the agent"} {
		if !strings.Contains(text, want) {
			t.Errorf("not in the findings: %s\n%s", want, text)
		}
	}
}
