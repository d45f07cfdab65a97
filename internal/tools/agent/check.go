// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/host/hostnet"
	"github.com/jeoul/jeoul/internal/host/netdump"
	"github.com/jeoul/jeoul/internal/host/sysctl"
)

// State is the result of a check.
type State string

// The states. Only Missing keeps a mode from being ready.
const (
	// Good is a condition that holds.
	Good State = "ok"
	// Doable is a condition that the agent will establish when it starts.
	Doable State = "will do"
	// Note is a remark for the operator.
	Note State = "note"
	// Missing is a condition that the operator must establish first. The text explains how.
	Missing State = "missing"
)

// Finding is the finding about one condition.
type Finding struct {
	What  string
	State State
	Text  string
}

// Readiness has the findings for a mode.
type Readiness struct {
	Mode     lb.Mode
	Findings []Finding
}

// Ready reports whether packets of the mode would be served once the agent runs.
func (r Readiness) Ready() bool {
	return !slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.State == Missing })
}

// Check reports, for each of the modes in opt or for all if there are none, whether the host whose network namespace
// the calling thread is in can be a backend. It changes nothing. Modes nat, fullnat and proxy are allowed. Errors:
// ErrBadVIP, ErrBadMark, ErrBadMode.
func Check(opt Options) ([]Readiness, error) {
	modes := opt.Modes
	if len(modes) == 0 {
		modes = lb.PacketModes
	}
	served := slices.DeleteFunc(slices.Clone(opt.Modes), func(m lb.Mode) bool { return !m.KeepsPort() })
	if len(opt.Marks) == 0 {
		served = slices.DeleteFunc(served, func(m lb.Mode) bool { return m.Marks() })
	}
	// Without a VIP there are no complete options, but the host can be checked.
	if len(opt.VIPs)+len(opt.Marks) > 0 {
		var err error
		opt.Modes = served
		if opt, err = opt.checked(); err != nil {
			return nil, err
		}
	}
	h, err := readHost(opt)
	if err != nil {
		return nil, err
	}
	var all []Readiness
	for _, mode := range modes {
		if !slices.Contains(lb.Modes, mode) {
			return nil, fmt.Errorf("check: %q %w", mode, ErrBadMode)
		}
		all = append(all, Readiness{mode, h.findings(mode)})
	}
	return all, nil
}

// host is the host's state for the checks, read once.
type host struct {
	opt        Options
	links      []netlink.Link
	addresses  []netlink.Addr
	routes     []netlink.Route // default routes
	interfaces []netlink.Link  // interfaces for the program
	choice     error           // reason why there are none
	running    bool            // an agent has prepared this host
	unseen     error           // reason why running is not known
}

func readHost(opt Options) (*host, error) {
	h := &host{opt: opt}
	var err1, err2, err3 error
	h.links, err1 = netdump.Links()
	h.addresses, err2 = netdump.Consistent(func() ([]netlink.Addr, error) {
		return netlink.AddrList(nil, netlink.FAMILY_ALL)
	})
	routes, err3 := netdump.Consistent(func() ([]netlink.Route, error) {
		return netlink.RouteList(nil, netlink.FAMILY_ALL)
	})
	if err := errors.Join(err1, err2, err3); err != nil {
		return nil, fmt.Errorf("look at this host's network: %w", err)
	}
	for _, r := range routes {
		if ones := prefixLength(r); ones == 0 {
			h.routes = append(h.routes, r)
		}
	}
	h.interfaces, h.choice = chooseInterfaces(opt.Interfaces, h.links)
	h.running, h.unseen = hostnet.Running(opt.Dir, name)
	return h, nil
}

func prefixLength(r netlink.Route) int {
	if r.Dst == nil {
		return 0
	}
	ones, _ := r.Dst.Mask.Size()
	return ones
}

// findings checks the requirements of a mode.
func (h *host) findings(mode lb.Mode) []Finding {
	switch mode {
	case lb.FullNAT, lb.ModeProxy:
		return []Finding{{"host", Good,
			"needs nothing: requests come from the balancer's own addresses, and answers go there"}}
	case lb.NAT:
		return h.returnPath()
	}
	found := append(checkCapabilities(), h.agent()...)
	if !mode.NeedsNeighbours() {
		found = append(found, h.kernel(mode)...)
		found = append(found, h.programs()...)
	}
	if mode.Marks() {
		found = append(found, h.marks()...)
	}
	found = append(found, h.vips()...)
	found = append(found, h.checkARPSysctls()...)
	found = append(found, h.reversePath()...)
	if mode.Tunnels() {
		found = append(found, h.families()...)
		found = append(found, h.otherReceivers(mode)...)
		found = append(found, h.checkMTU(mode)...)
	}
	return found
}

// agent reports whether an agent runs. A running agent has already done the work that otherwise the next one does.
func (h *host) agent() []Finding {
	switch {
	case h.unseen != nil:
		return []Finding{{"agent", Note, fmt.Sprintf("whether one runs cannot be seen: %v", h.unseen)}}
	case h.running:
		return []Finding{{"agent", Good, "runs, and puts back what is taken from it"}}
	}
	return []Finding{{"agent", Note, "does not run with the state directory " + cmp.Or(h.opt.Dir, hostnet.DefaultDir)}}
}

// agentCondition is a finding about a condition that the agent establishes. The condition is missing if an agent runs
// and has not established it.
func (h *host) agentCondition(what, text string) Finding {
	if h.running {
		return Finding{what, Missing,
			text + ", which the agent that runs has not done, or not for these options: see its log"}
	}
	return Finding{what, Doable, text}
}

// programs finds interfaces to which the programs of a running agent are not attached. It identifies the programs by
// name, because the check runs in another process than the agent.
func (h *host) programs() (found []Finding) {
	if !h.running {
		return nil
	}
	for _, l := range h.interfaces {
		there, err := runsOn(l)
		switch {
		case err != nil:
			found = append(found,
				Finding{"program", Note, fmt.Sprintf("whether it is attached to %s cannot be seen: %v",
					l.Attrs().Name, err)})
		case there:
			found = append(found, Finding{"program", Good, "is attached to " + l.Attrs().Name})
		default:
			found = append(found, h.agentCondition("program", "is to be attached to "+l.Attrs().Name))
		}
	}
	return found
}

// vips reports which interfaces have the VIPs.
func (h *host) vips() []Finding {
	if len(h.opt.VIPs) == 0 {
		return []Finding{{"vip", Missing, "none was named: --vip ADDRESS"}}
	}
	var found []Finding
	if lo := byName(h.links, loopback); lo == nil || !isUp(lo) {
		found = append(found, Finding{"lo", Missing, "is down, and accepts nothing: ip link set lo up"})
	}
	for _, vip := range h.opt.VIPs {
		found = append(found, h.vip(vip))
	}
	return found
}

func (h *host) vip(vip netip.Addr) Finding {
	on := holders(vip, h.addresses, h.links)
	for _, name := range on {
		if name != loopback {
			return Finding{"vip", Missing,
				fmt.Sprintf("%s is on %s, which answers for it on the network: ip address del %s dev %s", vip, name,
					vip, name)}
		}
	}
	if len(on) > 0 {
		return Finding{"vip", Good, fmt.Sprintf("%s is on lo", vip)}
	}
	return h.agentCondition("vip", fmt.Sprintf("%s is to be put on lo", vip))
}

// holders names the links that have an address.
func holders(addr netip.Addr, addresses []netlink.Addr, links []netlink.Link) []string {
	var names []string
	for _, a := range addresses {
		if ip, ok := netip.AddrFromSlice(a.IP); ok && ip.Unmap() == addr {
			if l := byIndex(links, a.LinkIndex); l != nil {
				names = append(names, l.Attrs().Name)
			}
		}
	}
	return names
}

func (h *host) has(is func(netip.Addr) bool) bool { return slices.ContainsFunc(h.opt.VIPs, is) }

// checkARPSysctls checks the sysctls that keep the host from answering ARP for a VIP.
func (h *host) checkARPSysctls() []Finding {
	if !h.has(netip.Addr.Is4) {
		return nil
	}
	var found []Finding
	for _, s := range arpSysctls {
		now, err := readNumber(s.name)
		switch {
		case err != nil:
			found = append(found, Finding{"arp", Missing, err.Error()})
		case s.enough(now):
			found = append(found, Finding{"arp", Good, fmt.Sprintf("%s is %d", s.name, now)})
		case !sysctl.Writable(s.name):
			found = append(found,
				Finding{"arp", Missing,
					fmt.Sprintf("%s is %d, and cannot be written here: on the host, sysctl -w %s=%s", s.name, now,
						s.name, s.value)})
		default:
			found = append(found, h.agentCondition("arp", fmt.Sprintf("%s: %d → %s", s.name, now, s.value)))
		}
	}
	return found
}

// reversePath finds strict reverse-path filtering on interfaces other than those of default routes to clients.
func (h *host) reversePath() []Finding {
	if !h.has(netip.Addr.Is4) {
		return nil
	}
	var found []Finding
	back := h.defaultLinks(netlink.FAMILY_V4)
	strict := false
	for _, l := range h.interfaces {
		level, err := reverseFilter(l.Attrs().Name)
		if err != nil || level != 1 {
			continue
		}
		strict = true
		state, text := Note, "clients whose way back is another interface are dropped without a word"
		if len(back) > 0 && !slices.Contains(back, l.Attrs().Name) {
			state, text = Missing,
				fmt.Sprintf("the default route leaves by %s: sysctl -w net.ipv4.conf.%s.rp_filter=2, unless all clients are reached by %s",
					strings.Join(back, ", "), l.Attrs().Name, l.Attrs().Name)
		}
		found = append(found, Finding{"rp_filter", state, fmt.Sprintf("strict on %s: %s", l.Attrs().Name, text)})
	}
	if !strict {
		found = append(found, Finding{"rp_filter", Good, "not strict where packets arrive"})
	}
	return found
}

// defaultLinks names the interfaces of the default routes.
func (h *host) defaultLinks(family int) []string {
	var names []string
	for _, r := range h.routes {
		if r.Family != family {
			continue
		}
		if l := byIndex(h.links, r.LinkIndex); l != nil && !slices.Contains(names, l.Attrs().Name) {
			names = append(names, l.Attrs().Name)
		}
	}
	return names
}

// returnPath shows the route of answers to clients. In mode nat they must go through the balancer, whose address only
// the operator knows.
func (h *host) returnPath() []Finding {
	var found []Finding
	for _, r := range h.routes {
		l := byIndex(h.links, r.LinkIndex)
		if l == nil || l.Attrs().Name == loopback {
			continue
		}
		text := "the default route leads to no gateway, but to " + l.Attrs().Name
		if r.Gw != nil {
			text = fmt.Sprintf("the default route leads to %s on %s", r.Gw, l.Attrs().Name)
		}
		found = append(found,
			Finding{"way back", Note, text + ": this must be an address of the balancer, or lead through it"})
	}
	if len(found) == 0 {
		return []Finding{{"way back", Missing,
			"no default route: answers to clients must go through the balancer: ip route add default via ADDRESS"}}
	}
	return found
}

// marks checks the code points of mode dscp.
func (h *host) marks() []Finding {
	if len(h.opt.Marks) == 0 {
		return []Finding{{"dscp", Missing,
			"no code point was given: --dscp N=VIP, as the balancer's configuration has it"}}
	}
	var found []Finding
	for _, m := range h.opt.Marks {
		f := Finding{"dscp", Good, m.String()}
		if use := commonUse[m.Point]; use != "" {
			f = Finding{"dscp", Note,
				fmt.Sprintf("%s: %s: to this host's own address those packets would be taken for the VIP's", m, use)}
		}
		found = append(found, f)
	}
	return found
}

// commonUse has code points that hosts commonly set without a balancer.
var commonUse = map[uint8]string{
	8:  "OpenSSH marks bulk sessions with it (CS1)",
	18: "OpenSSH marks interactive sessions with it (AF21)",
	46: "telephony and newer OpenSSH mark packets with it (EF)",
	48: "routers mark routing protocols with it (CS6)",
}

// families finds interfaces on which IPv6 is disabled, which also drops decapsulated packets.
func (h *host) families() []Finding {
	if !h.has(netip.Addr.Is6) {
		return nil
	}
	var found []Finding
	for _, l := range h.interfaces {
		name := l.Attrs().Name
		if off, err := readNumber("net/ipv6/conf/" + name + "/disable_ipv6"); err == nil && off != 0 {
			found = append(found,
				Finding{"ipv6", Missing,
					fmt.Sprintf("is switched off on %s, also for what comes out of a tunnel: sysctl -w net/ipv6/conf/%s/disable_ipv6=0", name, name)})
		}
	}
	return found
}

// checkMTU compares the MTUs with the length of tunnelled packets.
func (h *host) checkMTU(mode lb.Mode) []Finding {
	var found []Finding
	udp := 0
	if mode == lb.GUE {
		udp = 8
	}
	for _, l := range h.interfaces {
		mtu := l.Attrs().MTU
		found = append(found,
			Finding{"mtu", Note, fmt.Sprintf("%s: %d bytes: in a tunnel, packets of up to %d by IPv4 and %d by IPv6",
				l.Attrs().Name, mtu, mtu-20-udp, mtu-40-udp)})
	}
	return found
}
