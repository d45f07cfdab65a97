// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/host/hostnet"
	"github.com/jeoul/jeoul/internal/host/namespace"
	"github.com/jeoul/jeoul/internal/host/netdump"
	"github.com/jeoul/jeoul/internal/test/testenv"
	"github.com/jeoul/jeoul/internal/tools/agent"
)

// hooked lists the programs at the ingress of each interface, and whether it has the queueing discipline.
func hooked(tb testing.TB, ns *namespace.Namespace) []string {
	tb.Helper()
	var found []string
	testenv.In(tb, ns, func() error {
		links, err := netdump.Links()
		if err != nil {
			return err
		}
		for _, l := range links {
			on, err := hookedTo(l)
			if err != nil {
				return err
			}
			found = append(found, on...)
		}
		return nil
	})
	slices.Sort(found)
	return found
}

func hookedTo(l netlink.Link) (found []string, err error) {
	name := l.Attrs().Name
	qdiscs, err := netdump.Consistent(func() ([]netlink.Qdisc, error) {
		return netlink.QdiscList(l)
	})
	if err != nil {
		return nil, err
	}
	for _, q := range qdiscs {
		if q.Type() == "clsact" {
			found = append(found, name+" clsact")
		}
	}
	for _, side := range []struct {
		name   string
		tcx    ebpf.AttachType
		parent uint32
	}{{"ingress", ebpf.AttachTCXIngress, netlink.HANDLE_MIN_INGRESS},
		{"egress", ebpf.AttachTCXEgress, netlink.HANDLE_MIN_EGRESS}} {
		if hasTCX() {
			tcx, err := link.QueryPrograms(link.QueryOptions{Target: l.Attrs().Index, Attach: side.tcx})
			if err != nil {
				return nil, err
			}
			for range tcx.Programs {
				found = append(found, fmt.Sprintf("%s %s tcx", name, side.name))
			}
		}
		filters, err := netdump.Consistent(func() ([]netlink.Filter, error) {
			return netlink.FilterList(l, side.parent)
		})
		if err != nil {
			return nil, err
		}
		for _, f := range filters {
			if b, ok := f.(*netlink.BpfFilter); ok {
				found = append(found, fmt.Sprintf("%s %s filter %s", name, side.name, b.Name))
			}
		}
	}
	return found, nil
}

// hookedBy returns the expected programs on an interface, by side, in alphabetical order.
func hookedBy(hook agent.Hook, name string, sides ...string) (want []string) {
	tcx := hook != agent.HookClsact && hasTCX()
	if !tcx {
		want = append(want, name+" clsact")
	}
	for _, side := range sides {
		if tcx {
			want = append(want, fmt.Sprintf("%s %s tcx", name, side))
		} else {
			want = append(want, fmt.Sprintf("%s %s filter jeoul_agent", name, side))
		}
	}
	return want
}

func TestAttachAndClose(t *testing.T) {
	for _, hook := range append(hooks(), agent.HookAuto) {
		s := newSegment(t)
		before := look(t, s.backend)
		a := s.startWith(everything(t.TempDir(), hook))
		same(t, string(hook), hookedBy(hook, "eth0", "egress", "ingress"), hooked(t, s.backend))
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
		same(t, "after", []string(nil), hooked(t, s.backend))
		same(t, "after", before, look(t, s.backend))
		// The counters can still be read, and a second Close does no harm.
		if counts, err := a.Counts(); err != nil || len(counts) == 0 {
			t.Errorf("Counts after Close: %d, %v", len(counts), err)
		}
		if err := a.Close(); err != nil {
			t.Errorf("Close again: %v", err)
		}
	}
}

// TestKilledWithProgram: a killed agent leaves nothing with TCX links, and the next start removes a filter.
func TestKilledWithProgram(t *testing.T) {
	left := map[agent.Hook][]string{agent.HookTCX: nil, agent.HookClsact: hookedBy(agent.HookClsact, "eth0", "egress",
		"ingress")}
	for _, hook := range hooks() {
		want := left[hook]
		s, dir := newSegment(t), t.TempDir()
		before := look(t, s.backend)
		kill(t, s.backend, dir, hook)
		// The kernel removes a link after the process has ended completely.
		testenv.Eventually(t, testenv.WaitLimit, "what is left of a killed agent by "+string(hook),
			func() bool { return slices.Equal(hooked(t, s.backend), want) })
		a := s.startWith(agent.Options{VIPs: []netip.Addr{vip4}, Dir: dir})
		same(t, "with the next agent", []string(nil), hooked(t, s.backend))
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
		same(t, "after", before, look(t, s.backend))
	}
}

// TestOthersFilterStays: a filter of another program remains, and sees the packets after decapsulation.
func TestOthersFilterStays(t *testing.T) {
	s := newSegment(t)
	other := func() error {
		eth0, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		attrs := netlink.QdiscAttrs{LinkIndex: eth0.Attrs().Index, Handle: netlink.MakeHandle(0xffff, 0),
			Parent: netlink.HANDLE_CLSACT}
		p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "GPL", Instructions: passAll})
		if err != nil {
			return err
		}
		defer p.Close()
		return errors.Join(netlink.QdiscAdd(&netlink.GenericQdisc{QdiscAttrs: attrs, QdiscType: "clsact"}),
			netlink.FilterAdd(&netlink.BpfFilter{FilterAttrs: netlink.FilterAttrs{LinkIndex: attrs.LinkIndex,
				Parent: netlink.HANDLE_MIN_INGRESS, Protocol: unix.ETH_P_ALL}, Fd: p.FD(), Name: "other",
				DirectAction: true}))
	}
	testenv.In(t, s.backend, other)
	before := hooked(t, s.backend)
	same(t, "before", []string{"eth0 clsact", "eth0 ingress filter other"}, before)
	a := s.startWith(everything(t.TempDir(), agent.HookClsact))
	same(t, "with the agent", []string{"eth0 clsact", "eth0 egress filter jeoul_agent",
		"eth0 ingress filter jeoul_agent", "eth0 ingress filter other"}, hooked(t, s.backend))
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	same(t, "after", before, hooked(t, s.backend))
}

// TestInterfaces: packets pass the program once: not on a bridge's port, whose packets pass the bridge, and not where
// they cannot arrive.
func TestInterfaces(t *testing.T) {
	ns, peer := testenv.Namespace(t), testenv.Namespace(t)
	for i := range 3 {
		testenv.Veth(t, testenv.End{Namespace: ns, Name: fmt.Sprintf("eth%d", i)},
			testenv.End{Namespace: peer, Name: fmt.Sprintf("eth%d", i)})
	}
	testenv.In(t, ns, func() error {
		bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}}
		below, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		return errors.Join(netlink.LinkAdd(bridge), netlink.LinkSetUp(bridge),
			netlink.LinkSetMaster(&netlink.Device{LinkAttrs: netlink.LinkAttrs{Name: "eth1"}}, bridge),
			netlink.LinkSetDown(&netlink.Device{LinkAttrs: netlink.LinkAttrs{Name: "eth2"}}),
			netlink.LinkAdd(&netlink.Macvlan{LinkAttrs: netlink.LinkAttrs{Name: "mv0",
				ParentIndex: below.Attrs().Index}, Mode: netlink.MACVLAN_MODE_BRIDGE}),
			netlink.LinkSetUp(&netlink.Device{LinkAttrs: netlink.LinkAttrs{Name: "mv0"}}))
	})
	for _, c := range []struct {
		asked []string
		want  []string
		err   error
	}{
		{nil, []string{"br0", "eth0"}, nil},
		{[]string{"eth2", "eth1", "eth2"}, []string{"eth1", "eth2"}, nil},
		{[]string{"eth0", "eth9"}, nil, hostnet.ErrNoLink},
	} {
		var a *agent.Agent
		err := ns.Do(func() (err error) {
			a, err = agent.Start(agent.Options{VIPs: []netip.Addr{vip4}, Modes: []lb.Mode{lb.IPIP}, Interfaces: c.asked,
				Dir: t.TempDir()})
			return err
		})
		if !errors.Is(err, c.err) {
			t.Errorf("%v: %v", c.asked, err)
		}
		var want []string
		for _, name := range c.want {
			want = append(want, hookedBy(agent.HookAuto, name, "ingress")...)
		}
		same(t, fmt.Sprintf("hooked, where %v was asked for", c.asked), want, hooked(t, ns))
		if err == nil {
			if err := a.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	empty := testenv.Namespace(t)
	testenv.In(t, empty, func() error {
		_, err := agent.Start(agent.Options{VIPs: []netip.Addr{vip4}, Modes: []lb.Mode{lb.GUE}, Dir: t.TempDir()})
		if !errors.Is(err, agent.ErrNoInterface) {
			t.Errorf("without an interface: %v", err)
		}
		return nil
	})
}

func TestBadOptions(t *testing.T) {
	ns := testenv.Namespace(t)
	before := look(t, ns)
	for _, c := range []struct {
		opt  agent.Options
		want error
	}{
		{agent.Options{Modes: []lb.Mode{lb.NAT}}, agent.ErrBadMode},
		{agent.Options{Modes: []lb.Mode{"vxlan"}}, agent.ErrBadMode},
		{agent.Options{Marks: []agent.Mark{{Point: 0, VIP: vip4}}}, agent.ErrBadMark},
		{agent.Options{Marks: []agent.Mark{{Point: 64, VIP: vip4}}}, agent.ErrBadMark},
		{agent.Options{Marks: []agent.Mark{{Point: 1, VIP: vip4}, {Point: 1, VIP: vip4.Next()}}}, agent.ErrBadMark},
		{agent.Options{Marks: []agent.Mark{{Point: 1, VIP: netip.MustParseAddr("127.0.0.1")}}}, agent.ErrBadVIP},
		{agent.Options{Modes: []lb.Mode{lb.DSCP}}, nil},
		{agent.Options{MSS: 535}, agent.ErrBadMSS},
		{agent.Options{MSS: 65496}, agent.ErrBadMSS},
	} {
		c.opt.VIPs = []netip.Addr{vip4}
		c.opt.Dir = t.TempDir()
		testenv.In(t, ns, func() error {
			a, err := agent.Start(c.opt)
			if err == nil {
				a.Close()
			}
			if err == nil || c.want != nil && !errors.Is(err, c.want) {
				t.Errorf("%+v: %v, not %v", c.opt, err, c.want)
			}
			return nil
		})
	}
	same(t, "after", before, look(t, ns))
}

// TestAddressesAreFollowed: an address that is added while the agent runs becomes a tunnel endpoint. One that is
// removed no longer is.
func TestAddressesAreFollowed(t *testing.T) {
	s := newSegment(t)
	a := s.startWith(everything(t.TempDir(), agent.HookAuto))
	moved := netip.MustParseAddr("198.18.2.77")
	w := tunnelPath{lb.IPIP, vip4, moved, s.peer4}
	change := func(f func(netlink.Link, *netlink.Addr) error) {
		testenv.In(t, s.backend, func() error {
			return f(&netlink.Device{LinkAttrs: netlink.LinkAttrs{Name: "eth0"}},
				&netlink.Addr{IPNet: netlink.NewIPNet(moved.AsSlice())})
		})
	}
	count := func(outcome string) (n uint64) {
		counts, err := a.Counts()
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range counts {
			if c.Mode == lb.IPIP && c.Outcome == outcome {
				n = c.Packets
			}
		}
		return n
	}
	ends := func(outcome string) {
		t.Helper()
		before := count(outcome)
		testenv.Eventually(t, testenv.WaitLimit, "tunnelled packets end as "+outcome, func() bool {
			s.sendDatagram(s.wire, w, 1)
			return count(outcome) > before
		})
	}
	ends("passed_not_local")
	change(netlink.AddrAdd)
	ends("accepted")
	change(netlink.AddrDel)
	ends("passed_not_local")
}
