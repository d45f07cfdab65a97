// SPDX-License-Identifier: Apache-2.0

package subject

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"sync"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/tools/agent"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// VIPHolders are web servers that have the VIP, as direct server return needs it.
type VIPHolders []vipHolder

type vipHolder struct {
	host *lab.Host
	// One of them holds it: the agent in this process, or its own on a machine.
	agent   *agent.Agent
	program *Program
}

// DSCPPoint is the code point that stands for the VIP in mode dscp.
const DSCPPoint = 1

// HoldVIP prepares every web server as `jeoul agent` does for a mode. If it
// fails, what it returns is still to be released.
func HoldVIP(l *lab.Lab, mode lb.Mode) (holders VIPHolders, err error) {
	if l.Far() {
		return holdFar(l, mode)
	}
	for _, server := range l.Servers {
		options := agent.Options{VIPs: []netip.Addr{l.VIP4}, Modes: []lb.Mode{mode},
			Dir: filepath.Join(server.Dir, "state")}
		if mode == lb.DSCP {
			options.Marks = []agent.Mark{{Point: DSCPPoint, VIP: l.VIP4}}
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

// Release takes the VIP off again.
func (v VIPHolders) Release() error {
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

// holdFar prepares machines as HoldVIP does hosts, by the agent's own program.
func holdFar(l *lab.Lab, mode lb.Mode) (holders VIPHolders, err error) {
	ctx := context.Background() // every step has its bound
	var mu sync.Mutex
	err = lab.Each(l.Servers, func(server *lab.Host) error {
		args := []string{"agent", "--mode", string(mode), "--interface", server.Interface, "--state-dir",
			filepath.Join(server.Dir, "state")}
		if mode == lb.DSCP {
			args = append(args, "--dscp", fmt.Sprintf("%d=%v", DSCPPoint, l.VIP4))
		} else {
			args = append(args, "--vip", l.VIP4.String())
		}
		ready := make(chan struct{})
		var once sync.Once
		p, err := StartWithLog(ctx, server, func(line string) {
			if strings.HasPrefix(line, "ready;") {
				once.Do(func() { close(ready) })
			}
		}, server.Executable(""), args...)
		if err != nil {
			return err
		}
		mu.Lock()
		holders = append(holders, vipHolder{host: server, program: p})
		mu.Unlock()
		return p.WaitUntil(ctx, func() error {
			select {
			case <-ready:
				return nil
			default:
				return errors.New("the agent is not ready")
			}
		})
	})
	if err != nil {
		err = fmt.Errorf("preparing the servers for direct server return: %w", err)
	}
	return holders, err
}

// stopPrograms ends the agents that are programs, all at once.
func (v VIPHolders) stopPrograms() []error {
	var all sync.WaitGroup
	errs := make([]error, len(v))
	for i, holder := range v {
		if holder.program != nil {
			all.Go(func() { errs[i] = holder.program.Stop(context.Background()) })
		}
	}
	all.Wait()
	return errs
}

// changeAddress applies change to addr as a host address of a device of the host.
func changeAddress(host *lab.Host, device string, addr netip.Addr,
	change func(netlink.Link, *netlink.Addr) error) error {
	err := host.Do(func() error {
		link, err := netlink.LinkByName(device)
		if err != nil {
			return err
		}
		return change(link,
			&netlink.Addr{IPNet: &net.IPNet{IP: addr.AsSlice(), Mask: net.CIDRMask(addr.BitLen(), addr.BitLen())}})
	})
	if err != nil {
		return fmt.Errorf("changing the VIP %s on %s of %s: %w", addr, device, host.Name, err)
	}
	return nil
}

// OwnVIP gives the balancer the VIP, or takes it back; that it is gone already
// is no error.
func OwnVIP(l *lab.Lab, on bool) error {
	if l.Far() {
		return l.Balancer.Hold(l.VIP4, on)
	}
	if on {
		return changeAddress(l.Balancer, l.Balancer.Interface, l.VIP4, netlink.AddrReplace)
	}
	err := changeAddress(l.Balancer, l.Balancer.Interface, l.VIP4, netlink.AddrDel)
	if errors.Is(err, unix.EADDRNOTAVAIL) {
		return nil
	}
	return err
}

// OwnVIPOnLo gives a host the VIP on its device lo. It goes with the host.
func OwnVIPOnLo(host *lab.Host, vip netip.Addr) error {
	return changeAddress(host, "lo", vip, netlink.AddrReplace)
}
