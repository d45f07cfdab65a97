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

// VIPHolders are web servers that have the VIP, as direct server return requires.
type VIPHolders []vipHolder

type vipHolder struct {
	host *lab.Host
	// Either agent, which runs in this process, or program, the agent on a machine, is set.
	agent   *agent.Agent
	program *Program
}

// DSCPPoint is the DSCP code point of the VIP in mode dscp.
const DSCPPoint = 1

// HoldVIP prepares every web server for a mode, as `jeoul agent` does. The caller must release the holders even if
// HoldVIP fails.
func HoldVIP(l *lab.Lab, mode lb.Mode) (holders VIPHolders, err error) {
	if l.Remote() {
		return holdRemote(l, mode)
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

// Release removes the VIP.
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

// holdRemote prepares machines as HoldVIP prepares hosts, with the program of the agent.
func holdRemote(l *lab.Lab, mode lb.Mode) (holders VIPHolders, err error) {
	ctx := context.Background() // every step has its own time limit
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

// stopPrograms concurrently stops the agents that are programs.
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

// changeAddress calls change with a device of the host, and addr as a host address.
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

// OwnVIP adds the VIP to the balancer, or removes it. It is no error if the VIP is gone already.
func OwnVIP(l *lab.Lab, on bool) error {
	if l.Remote() {
		return l.Balancer.SetAddress(l.VIP4, on)
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

// OwnVIPOnLo adds the VIP to the device lo of a host. It ends with the host.
func OwnVIPOnLo(host *lab.Host, vip netip.Addr) error {
	return changeAddress(host, "lo", vip, netlink.AddrReplace)
}
