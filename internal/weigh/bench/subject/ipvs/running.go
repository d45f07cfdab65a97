// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	moby "github.com/moby/ipvs"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/weigh/bench/subject"
)

// ipvsMethod is a forwarding method of IPVS.
type ipvsMethod string

const (
	// ipvsDirect rewrites MAC addresses. The servers have the VIP and answer clients directly.
	ipvsDirect ipvsMethod = "dr"
	// ipvsMasquerade rewrites addresses. The servers' replies pass the balancer.
	ipvsMasquerade ipvsMethod = "nat"
	// ipvsTunnel encapsulates packets in IPIP. The servers decapsulate them, have the VIP and answer clients directly.
	ipvsTunnel ipvsMethod = "tun"
)

// ipvsComeAndGo describes how servers change.
const ipvsComeAndGo = "servers come and go in the kernel's table, one after the other; connections of a server that is taken out are forgotten (net.ipv4.vs.expire_nodest_conn)"

// ipvsMethods has the three methods, with their names in the kernel.
var ipvsMethods = map[ipvsMethod]struct {
	flags       uint32
	name, needs string
}{
	ipvsDirect: {moby.ConnectionFlagDirectRoute, "direct routing", "the servers have the VIP and answer clients"},
	ipvsMasquerade: {moby.ConnectionFlagMasq, "masquerading",
		"the servers' way to the clients is through the balancer"},
	ipvsTunnel: {moby.ConnectionFlagTunnel, "IPIP tunnels",
		"the servers unwrap (ipip), have the VIP and answer clients"},
}

// note describes the set-up, with the kernel's name of the scheduler.
func (m ipvsMethod) note(scheduler string) string {
	return fmt.Sprintf("IPVS, %s, %s; %s", ipvsMethods[m].name, scheduler, ipvsMethods[m].needs)
}

// runningIPVS is IPVS on the balancer.
type runningIPVS struct {
	method ipvsMethod
	setup  subject.Setup
	// scheduler is the kernel's name of the scheduler.
	scheduler string
	// table is the kernel's table on the one balancer; nil if there are several.
	table *ipvsTable
	vips  subject.VIPHolders
	undo  subject.Undo
}

// prepare sets the laboratory up for the forwarding method.
func (r *runningIPVS) prepare() (err error) {
	l := r.setup.Lab
	if r.method == ipvsMasquerade {
		return r.undo.Rewriting(l)
	}
	if err := r.undo.On(func(on bool) error { return subject.OwnVIP(l, on) }); err != nil {
		return err
	}
	if r.method == ipvsTunnel {
		for _, server := range l.Servers {
			if err := r.undo.On(func(on bool) error { return unwrap(server, on) }); err != nil {
				return err
			}
		}
	}
	// As for jeoul's direct server return: the VIP is on lo, and servers do not answer ARP for it.
	r.vips, err = subject.HoldVIP(l, lb.L2DSR)
	return err
}

func (r *runningIPVS) Target(i int) netip.AddrPort { return r.setup.VIP(i) }

func (*runningIPVS) Cores() float64                { return 0 }
func (*runningIPVS) Quiesce(context.Context) error { return nil }
func (r *runningIPVS) Notes() []string             { return []string{r.method.note(r.scheduler)} }

// Change changes the kernel's table.
func (r *runningIPVS) Change(_ context.Context, services []subject.Service) error {
	if r.setup.Lab.Remote() {
		return fmt.Errorf("%w: the table of a machine is made once", subject.ErrCannot)
	}
	r.setup = r.setup.With(services)
	return r.table.changeOn(r.setup.Lab.Balancer, ipvsServices(r.setup))
}

// Reload does nothing: IPVS reads no file.
func (*runningIPVS) Reload(context.Context) error { return nil }

// PIDs returns none: the kernel balances.
func (*runningIPVS) PIDs() []int { return nil }

func (*runningIPVS) ChangeMethod() string { return ipvsComeAndGo }

func (r *runningIPVS) Stop(context.Context) error {
	return errors.Join(r.undo.All(), r.vips.Release())
}
