// SPDX-License-Identifier: Apache-2.0

package direct

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/weigh/bench/probe"
	"github.com/jeoul/jeoul/internal/weigh/bench/subject"
	"github.com/jeoul/jeoul/internal/weigh/lab/topology"
)

// bare is the upper bound for every balancer at its hook: a program that gives a packet the MAC address of a server and
// sends it back out, and does nothing else. Its packets take the same hops as with direct server return by MAC address.
type bare struct{ hook lb.Hook }

// Name returns the plain name for XDP, whose program is the upper bound for all balancers.
func (b bare) Name() string {
	if b.hook == lb.HookTC {
		return "bare-tc"
	}
	return "bare"
}

func (bare) Params() []subject.Param                             { return nil }
func (bare) Versions(context.Context) (map[string]string, error) { return nil, nil }
func (bare) SkipReason(subject.Params, int, probe.Limits) string { return "" }

func (bare) Can() subject.Abilities {
	return subject.Abilities{UDP: true, Packets: true, DirectReplies: true}
}

func (b bare) Start(ctx context.Context, setup subject.Setup, _ subject.Params) (subject.Running, error) {
	running := &runningBare{hook: b.hook, setup: setup}
	if err := running.start(); err != nil {
		return nil, errors.Join(err, running.Stop(context.WithoutCancel(ctx)))
	}
	return running, nil
}

type runningBare struct {
	hook  lb.Hook
	setup subject.Setup
	undo  subject.Undo
	// objects has the program and its constants; nil while it is not loaded.
	objects *ebpf.Collection
	link    link.Link
	vips    subject.VIPHolders
}

func (r *runningBare) start() (err error) {
	l := r.setup.Lab
	if len(r.setup.Services) != 1 {
		return fmt.Errorf("starting the bare forwarder: it has one service, not %d", len(r.setup.Services))
	}
	if r.hook == lb.HookXDP {
		if err := r.undo.On(l.AcceptXDP); err != nil {
			return err
		}
	}
	// The balancer's kernel answers for the VIP on the segment.
	if err := r.undo.On(func(on bool) error { return subject.OwnVIP(l, on) }); err != nil {
		return err
	}
	if r.vips, err = subject.HoldVIP(l, lb.L2DSR); err != nil {
		return err
	}
	if err := r.load(); err != nil {
		return fmt.Errorf("starting the bare forwarder: %w", err)
	}
	return l.Balancer.Do(r.attach)
}

// load loads the program with the service's addresses.
func (r *runningBare) load() error {
	load := loadWireBare
	if r.hook == lb.HookTC {
		load = loadBareTC
	}
	spec, err := load()
	if err != nil {
		return err
	}
	servers := r.setup.Services[0].Servers
	macs := make([]uint64, spec.Variables["servers"].Size()/8)
	if len(servers) > len(macs) {
		return fmt.Errorf("%d servers; it has room for %d", len(servers), len(macs))
	}
	for i, server := range servers {
		macs[i] = topology.MACWord(server.MAC)
	}
	vip := r.setup.VIP(0)
	address := vip.Addr().As4()
	for name, value := range map[string]any{
		"vip":  binary.NativeEndian.Uint32(address[:]),
		"port": binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, vip.Port())),
		"own":  topology.MACWord(r.setup.Lab.Balancer.MAC), "servers": macs, "server_count": uint32(len(servers)),
	} {
		if err := spec.Variables[name].Set(value); err != nil {
			return fmt.Errorf("setting %s: %w", name, err)
		}
	}
	r.objects, err = ebpf.NewCollection(spec)
	return err
}

// attach attaches the program to the balancer's device. It must run inside the balancer.
func (r *runningBare) attach() error {
	device, err := netlink.LinkByName(r.setup.Lab.Balancer.Interface)
	if err != nil {
		return fmt.Errorf("attaching the bare forwarder: %w", err)
	}
	if r.hook == lb.HookTC {
		r.link, err = link.AttachTCX(link.TCXOptions{
			Program: r.objects.Programs[bareTCProgBareTc], Interface: device.Attrs().Index,
			Attach: ebpf.AttachTCXIngress,
		})
	} else {
		r.link, err = link.AttachXDP(link.XDPOptions{
			Program: r.objects.Programs[wireBareProgWireBare], Interface: device.Attrs().Index,
			Flags: link.XDPDriverMode,
		})
	}
	if err != nil {
		return fmt.Errorf("attaching the bare forwarder: %w", err)
	}
	return nil
}

func (r *runningBare) Target(i int) netip.AddrPort { return r.setup.VIP(i) }
func (*runningBare) Cores() float64                { return 0 }
func (*runningBare) Quiesce(context.Context) error { return nil }

func (r *runningBare) Notes() []string {
	return []string{"not a balancer but the limit for one: a program in " + strings.ToUpper(string(r.hook)) +
		" that rewrites MAC addresses, with no state, health, counters or configuration"}
}

func (r *runningBare) Stop(context.Context) error {
	var errs []error
	if r.link != nil {
		errs = append(errs, r.link.Close())
	}
	if r.objects != nil {
		r.objects.Close()
	}
	return errors.Join(append(errs, r.vips.Release(), r.undo.All())...)
}
