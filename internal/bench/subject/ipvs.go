// SPDX-License-Identifier: Apache-2.0

package subject

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"regexp"

	moby "github.com/moby/ipvs"
	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/bench/probe"
	"github.com/jeoul/jeoul/internal/lab"
	"github.com/jeoul/jeoul/internal/lb"
	"github.com/jeoul/jeoul/internal/sysctl"
)

// ipvs is the kernel's own balancer (Linux Virtual Server), round robin, in one of
// its three ways to reach servers (ipvsadm(8), PACKET-FORWARDING-METHOD).
type ipvs struct {
	// way ends the subject's name.
	way ipvsWay
}

type ipvsWay string

const (
	// ipvsDirect rewrites MAC addresses; the servers have the VIP and answer clients.
	ipvsDirect ipvsWay = "dr"
	// ipvsMasquerade rewrites addresses; the servers' replies come back through it.
	ipvsMasquerade ipvsWay = "nat"
	// ipvsTunnel wraps packets in IPIP; the servers unwrap them, have the VIP and
	// answer clients.
	ipvsTunnel ipvsWay = "tun"
)

// ipvsWays are the three, with what the kernel calls them.
var ipvsWays = map[ipvsWay]struct {
	flags uint32
	note  string
}{
	ipvsDirect:     {moby.ConnectionFlagDirectRoute, "IPVS, direct routing, rr; the servers have the VIP and answer clients"},
	ipvsMasquerade: {moby.ConnectionFlagMasq, "IPVS, masquerading, rr; the servers' way to the clients is through the balancer"},
	ipvsTunnel:     {moby.ConnectionFlagTunnel, "IPVS, IPIP tunnels, rr; the servers unwrap (ipip), have the VIP and answer clients"},
}

func (s ipvs) Name() string  { return "ipvs-" + string(s.way) }
func (ipvs) Params() []Param { return nil }
func (ipvs) HTTPOnly() bool  { return false }

// Obstacle is none: it needs no descriptor a connection.
func (ipvs) Obstacle(Params, int, probe.Limits) string { return "" }

var ipvsVersion = regexp.MustCompile(`IP Virtual Server version (\S+)`)

// Versions loads the kernel's module if it has to. Its error wraps
// probe.ErrNotInstalled where this kernel has none.
func (ipvs) Versions(ctx context.Context) (map[string]string, error) {
	told, err := readIPVS()
	if errors.Is(err, os.ErrNotExist) {
		// What went wrong with it shows in the next line.
		_ = exec.CommandContext(ctx, "modprobe", "ip_vs").Run()
		told, err = readIPVS()
	}
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("IPVS is %w: this kernel has no module ip_vs. "+
			"Run the suite on Debian's kernel with `--lab vm`, or on a kernel that has it", probe.ErrNotInstalled)
	}
	if err != nil {
		return nil, fmt.Errorf("asking the kernel for its version of IPVS: %w", err)
	}
	version := ipvsVersion.FindSubmatch(told)
	if version == nil {
		return nil, fmt.Errorf("asking the kernel for its version of IPVS: it answered %.60q", told)
	}
	return map[string]string{"ipvs": string(version[1])}, nil
}

// readIPVS returns the kernel's table of services, whose first line has the version.
func readIPVS() ([]byte, error) { return os.ReadFile("/proc/thread-self/net/ip_vs") }

func (s ipvs) Start(ctx context.Context, setup Setup, _ Params) (Running, error) {
	running := &runningIPVS{way: s.way, setup: setup}
	err := running.prepare()
	if err == nil {
		err = running.undo.on(running.balance)
	}
	if err != nil {
		return nil, errors.Join(err, running.Stop(context.WithoutCancel(ctx)))
	}
	return running, nil
}

type runningIPVS struct {
	way   ipvsWay
	setup Setup
	vips  vipHolders
	undo  undo
}

// prepare makes the laboratory ready for the way.
func (r *runningIPVS) prepare() (err error) {
	l := r.setup.Lab
	if r.way == ipvsMasquerade {
		return r.undo.rewriting(l)
	}
	if err := r.undo.on(func(on bool) error { return ownVIP(l, on) }); err != nil {
		return err
	}
	if r.way == ipvsTunnel {
		for _, server := range l.Servers {
			if err := r.undo.on(func(on bool) error { return unwrap(server, on) }); err != nil {
				return err
			}
		}
	}
	// As for our own direct server return: the VIP on lo, and silence about it.
	r.vips, err = holdVIP(l, lb.L2DSR)
	return err
}

// forgetConnections has the kernel forget a destination's connections when that is
// removed (Documentation/networking/ipvs-sysctl.rst): the next trial would meet them.
const forgetConnections = "net.ipv4.vs.expire_nodest_conn"

// balance makes the services, or takes them away.
func (r *runningIPVS) balance(on bool) error {
	err := r.setup.Lab.Balancer.Do(func() error {
		// The library tells its warnings to this logger, and not in its errors; what
		// goes wrong shows in those.
		logrus.SetOutput(io.Discard)
		kernel, err := moby.New("")
		if err != nil {
			return err
		}
		defer kernel.Close()
		if !on {
			return r.remove(kernel)
		}
		if err := sysctl.Write(forgetConnections, "1"); err != nil {
			return err
		}
		return r.add(kernel)
	})
	if err != nil {
		return fmt.Errorf("setting the services of IPVS: %w", err)
	}
	return nil
}

// eachService calls do with each port as IPVS has it.
func (r *runningIPVS) eachService(do func(service *moby.Service, of Service) error) error {
	for i, of := range r.setup.Services {
		for _, protocol := range of.protocols() {
			service := &moby.Service{
				Address: net.IP(r.setup.vip(i).Addr().AsSlice()), Port: of.Port, Protocol: uint16(protocol),
				AddressFamily: unix.AF_INET, Netmask: 0xffff_ffff, SchedName: moby.RoundRobin,
			}
			if err := do(service, of); err != nil {
				return fmt.Errorf("%s port %d: %w", protocol, of.Port, err)
			}
		}
	}
	return nil
}

func (r *runningIPVS) destination(of Service, server *lab.Host) *moby.Destination {
	return &moby.Destination{
		Address: net.IP(server.IPv4.AsSlice()), Port: of.Port, AddressFamily: unix.AF_INET,
		Weight: of.Weight(server), ConnectionFlags: ipvsWays[r.way].flags,
	}
}

func (r *runningIPVS) add(kernel *moby.Handle) error {
	return r.eachService(func(service *moby.Service, of Service) error {
		if err := kernel.NewService(service); err != nil {
			return err
		}
		for _, server := range of.Servers {
			if err := kernel.NewDestination(service, r.destination(of, server)); err != nil {
				return fmt.Errorf("%s: %w", server.Name, err)
			}
		}
		return nil
	})
}

// remove takes the destinations away before their services, which is when the
// kernel forgets their connections. What was never made is none to take away.
func (r *runningIPVS) remove(kernel *moby.Handle) error {
	return r.eachService(func(service *moby.Service, of Service) error {
		if !kernel.IsServicePresent(service) {
			return nil
		}
		var errs []error
		for _, server := range of.Servers {
			err := kernel.DelDestination(service, r.destination(of, server))
			if !errors.Is(err, unix.ENOENT) {
				errs = append(errs, err)
			}
		}
		return errors.Join(append(errs, kernel.DelService(service))...)
	})
}

func (r *runningIPVS) Target(i int) netip.AddrPort { return r.setup.vip(i) }

func (*runningIPVS) Cores() float64                { return 0 }
func (*runningIPVS) Quiesce(context.Context) error { return nil }
func (r *runningIPVS) Notes() []string             { return []string{ipvsWays[r.way].note} }

func (r *runningIPVS) Stop(context.Context) error {
	return errors.Join(r.undo.all(), r.vips.release())
}
