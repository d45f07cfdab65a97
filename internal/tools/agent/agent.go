// SPDX-License-Identifier: Apache-2.0

// Package agent prepares a backend host for direct server return. The host must accept packets for a VIP and answer
// clients from it, but must not announce the VIP on the network, which is the balancer's task. Where packets arrive in
// a tunnel, or with the VIP replaced, an eBPF program at the ingress restores them.
//
// # IPv4
//
// The VIP goes on lo as a /32. That alone makes the kernel accept packets for it. But Linux answers ARP requests for
// any of its addresses on any interface, so two sysctls suppress ARP for the VIP. For both, the kernel takes the
// greater of the value for "all" and the value for the interface in question, so setting "all" covers every present and
// future interface:
//
//   - arp_ignore=1: answer only for addresses of the interface that the request
//     arrived on. Otherwise backends would answer for the VIP in competition
//     with the balancer, and clients would use the fastest answer.
//   - arp_announce=2: send requests with the best address of the interface as
//     the sender. Otherwise a reply from the VIP whose next hop must be resolved
//     first causes an ARP request with the VIP as its sender, and every host that
//     receives it takes the backend for the VIP's owner.
//
// The host scope keeps the VIP from being selected as the source address of packets that the host itself originates.
//
// # IPv6
//
// The VIP goes on lo as a /128 and needs no sysctl. The kernel looks a neighbour solicitation's target up among the
// addresses of the interface that the solicitation arrived on (and among proxy entries, which the agent does not make).
// It joins the solicited-node group only on the interface of an address, and solicits only with source addresses of the
// outgoing interface. An address of lo takes part in none of this. The address is added without duplicate address
// detection (every other backend and the balancer have it too) and with a preferred lifetime of 0, so that it is not
// selected as a source.
//
// # Packets
//
// A TC program decapsulates IPIP and GUE, and restores the VIP that a DSCP code point stands for (bpf/agent/tc.bpf.c).
// It is TC and not XDP because TC works with every driver, sees packets with the VLAN tag removed, and accepts GSO
// packets. It runs before the kernel's own tunnels, and takes only packets whose outer destination is an address of
// this host, which it follows, and whose inner destination is a VIP. It needs no route, device or module. A second
// program, at the egress, lowers the MSS that SYN-ACKs offer.
package agent

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"

	"github.com/jeoul/jeoul/internal/host/hostnet"
	"github.com/jeoul/jeoul/internal/host/namespace"
	"github.com/jeoul/jeoul/internal/host/netdump"
)

// Agent is a prepared backend host.
type Agent struct {
	opt     Options
	ns      *namespace.Namespace
	changes *hostnet.Changes
	pace    pace
	// The following fields are nil where no mode needs a program.
	program  *program
	follower *follower

	mu       sync.Mutex
	attached []*attached
	last     []Count // the program's counts at the time it was closed
	closed   bool
}

// Start prepares the host whose network namespace the calling thread is in, or changes nothing and returns an error:
// ErrBadVIP, ErrBadMark, ErrBadMode, ErrElsewhere, ErrNoInterface, ErrUnsupported, or one of hostnet's. The changes of
// an agent that was killed are undone first.
func Start(opt Options) (*Agent, error) {
	opt, err := opt.checked()
	if err != nil {
		return nil, err
	}
	if err := checkLoopback(); err != nil {
		return nil, err
	}
	changes, err := hostnet.Open(opt.Dir, name)
	if err != nil {
		return nil, fmt.Errorf("start the agent: %w", err)
	}
	a := &Agent{opt: opt, changes: changes, pace: defaultPace}
	if err := a.start(opt); err != nil {
		return nil, errors.Join(err, a.Close())
	}
	return a, nil
}

// start performs the steps that may fail for lack of rights or of an interface before it changes the host.
func (a *Agent) start(opt Options) (err error) {
	if a.ns, err = namespace.Current(); err != nil {
		return err
	}
	if !opt.needsProgram() {
		return prepare(a.changes, opt.VIPs)
	}
	links, err := netdump.Links()
	if err != nil {
		return fmt.Errorf("start the agent: list the interfaces: %w", err)
	}
	interfaces, err := chooseInterfaces(opt.Interfaces, links)
	if err != nil {
		return err
	}
	if a.program, err = load(opt); err != nil {
		return fmt.Errorf("start the agent: %w", err)
	}
	if err := prepare(a.changes, opt.VIPs); err != nil {
		return err
	}
	if a.follower, err = follow(opt.VIPs, a.program.addresses); err != nil {
		return fmt.Errorf("start the agent: %w", err)
	}
	for _, nic := range interfaces {
		if err := a.attach(nic, nic.Attrs().Name); err != nil {
			return err
		}
	}
	return nil
}

// checkLoopback returns an error if lo is down: the kernel would not accept
// packets for its IPv6 addresses.
func checkLoopback() error {
	lo, err := net.InterfaceByName(loopback)
	if err != nil {
		return fmt.Errorf("start the agent: look at interface %s: %w", loopback, err)
	}
	if lo.Flags&net.FlagUp == 0 {
		return fmt.Errorf("start the agent: interface %s is down, and accepts nothing: ip link set %s up",
			loopback, loopback)
	}
	return nil
}

// prepare suppresses ARP before it adds the addresses. In the other order, the host would answer a request that arrives
// in between.
func prepare(changes *hostnet.Changes, vips []netip.Addr) error {
	for _, vip := range vips {
		if err := checkElsewhere(changes, vip); err != nil {
			return err
		}
	}
	if slices.ContainsFunc(vips, netip.Addr.Is4) {
		if err := silenceARP(changes); err != nil {
			return err
		}
	}
	for _, vip := range vips {
		if err := changes.AddAddress(loopback, vip, vipOptions); err != nil {
			return err
		}
	}
	return nil
}

// vipOptions keep a VIP from being the source of packets that the host itself originates.
var vipOptions = hostnet.AddressOptions{ScopeHost: true, Deprecated: true, NoDAD: true}

func checkElsewhere(changes *hostnet.Changes, vip netip.Addr) error {
	links, err := changes.Links(vip)
	if err != nil {
		return err
	}
	for _, link := range links {
		if link != loopback {
			return fmt.Errorf(
				"start the agent: %s %w, %s, which answers for it on the network: take it off there (ip address del %s dev %s)",
				vip, ErrElsewhere, link, vip, link)
		}
	}
	return nil
}

// Events returns the changes to the host since the last call, in order.
func (a *Agent) Events() []hostnet.Event { return a.changes.Events() }

// Attachments lists the places where the programs run. It is empty in mode l2dsr without MSS.
func (a *Agent) Attachments() (at []Attachment) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, on := range a.attached {
		for _, s := range on.sides {
			at = append(at, Attachment{on.name, s.hook, s.egress})
		}
	}
	return at
}

// Counts returns the number of packets by outcome, or nothing if there is no program. After Close it returns the last
// counts.
func (a *Agent) Counts() ([]Count, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.program == nil {
		return a.last, nil
	}
	return readCounts(a.program.counts)
}

// Close undoes everything that Start did, the program first. It may be called from any thread. A second call does
// nothing.
func (a *Agent) Close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	var failed []error
	for _, on := range a.attached {
		failed = append(failed, on.closeLinks())
	}
	a.attached = nil
	if a.follower != nil {
		failed = append(failed, a.follower.close())
		a.follower = nil
	}
	// Removes the filters, and only then the VIPs.
	failed = append(failed, a.changes.Close())
	if a.program != nil {
		var err error
		a.last, err = readCounts(a.program.counts)
		failed = append(failed, err)
		a.program.close()
		a.program = nil
	}
	if !a.closed && a.ns != nil {
		a.ns.Close()
	}
	a.closed = true
	if err := errors.Join(failed...); err != nil {
		return fmt.Errorf("stop the agent: %w", err)
	}
	return nil
}
