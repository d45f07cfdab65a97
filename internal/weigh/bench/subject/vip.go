// SPDX-License-Identifier: Apache-2.0

package subject

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/tools/agent"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// vipHolders are web servers that have the VIP, as direct server return needs it.
type vipHolders []vipHolder

type vipHolder struct {
	host *lab.Host
	// One of them holds it: the agent in this process, or its own on a machine.
	agent   *agent.Agent
	program *program
}

// dscpPoint is the code point that stands for the VIP in mode dscp.
const dscpPoint = 1

// holdVIP prepares every web server as `jeoul agent` does for a mode. If it
// fails, what it returns is still to be released.
func holdVIP(l *lab.Lab, mode lb.Mode) (holders vipHolders, err error) {
	if l.Far() {
		return holdFar(l, mode)
	}
	for _, server := range l.Servers {
		options := agent.Options{VIPs: []netip.Addr{l.VIP4}, Modes: []lb.Mode{mode},
			Dir: filepath.Join(server.Dir, "state")}
		if mode == lb.DSCP {
			options.Marks = []agent.Mark{{Point: dscpPoint, VIP: l.VIP4}}
		}
		var a *agent.Agent
		err := server.Do(func() (err error) {
			a, err = agent.Start(options)
			return err
		})
		if err != nil {
			return holders, fmt.Errorf("preparing %s for direct server return: %w", server.Name, err)
		}
		holders = append(holders, vipHolder{host: server, agent: a})
	}
	return holders, nil
}

// release takes the VIP off again.
func (v vipHolders) release() error {
	errs := v.stopPrograms()
	for _, holder := range v {
		if holder.agent == nil {
			continue
		}
		err := holder.host.Do(holder.agent.Close)
		if err != nil && !errors.Is(err, lab.ErrClosed) {
			errs = append(errs, fmt.Errorf("taking back direct server return on %s: %w", holder.host.Name, err))
		}
	}
	return errors.Join(errs...)
}

// changeAddress applies change to addr as a host address of the host's device.
func changeAddress(host *lab.Host, addr netip.Addr, change func(netlink.Link, *netlink.Addr) error) error {
	err := host.Do(func() error {
		link, err := netlink.LinkByName(host.Interface)
		if err != nil {
			return err
		}
		return change(link,
			&netlink.Addr{IPNet: &net.IPNet{IP: addr.AsSlice(), Mask: net.CIDRMask(addr.BitLen(), addr.BitLen())}})
	})
	if err != nil {
		return fmt.Errorf("changing the VIP %s on %s of %s: %w", addr, host.Interface, host.Name, err)
	}
	return nil
}

// ownVIP gives the balancer the VIP, or takes it back; that it is gone already
// is no error.
func ownVIP(l *lab.Lab, on bool) error {
	if l.Far() {
		return l.Balancer.Hold(l.VIP4, on)
	}
	if on {
		return changeAddress(l.Balancer, l.VIP4, netlink.AddrReplace)
	}
	err := changeAddress(l.Balancer, l.VIP4, netlink.AddrDel)
	if errors.Is(err, unix.EADDRNOTAVAIL) {
		return nil
	}
	return err
}
