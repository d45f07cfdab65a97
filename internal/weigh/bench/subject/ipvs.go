// SPDX-License-Identifier: Apache-2.0

package subject

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"os"
	"os/exec"
	"regexp"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/weigh/bench/probe"
	"github.com/jeoul/jeoul/internal/weigh/lab"
	moby "github.com/moby/ipvs"
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

// ipvsComeAndGo says how servers change.
const ipvsComeAndGo = "servers come and go in the kernel's table, one after the other; connections of a server that is taken out are forgotten (net.ipv4.vs.expire_nodest_conn)"

// ipvsWays are the three, with what the kernel calls them.
var ipvsWays = map[ipvsWay]struct {
	flags       uint32
	name, needs string
}{
	ipvsDirect: {moby.ConnectionFlagDirectRoute, "direct routing", "the servers have the VIP and answer clients"},
	ipvsMasquerade: {moby.ConnectionFlagMasq, "masquerading",
		"the servers' way to the clients is through the balancer"},
	ipvsTunnel: {moby.ConnectionFlagTunnel, "IPIP tunnels",
		"the servers unwrap (ipip), have the VIP and answer clients"},
}

// note says what is set up, by the kernel's name of the scheduler.
func (w ipvsWay) note(scheduler string) string {
	return fmt.Sprintf("IPVS, %s, %s; %s", ipvsWays[w].name, scheduler, ipvsWays[w].needs)
}

func (s ipvs) Name() string { return "ipvs-" + string(s.way) }
func (ipvs) HTTPOnly() bool { return false }

func (s ipvs) can() abilities {
	own := abilities{udp: true, packets: true, changes: true, others: func() string {
		if s.way != ipvsDirect {
			return "replies and tunnels take a way of their own: use ipvs-" + string(ipvsDirect)
		}
		return ""
	}}
	if s.way != ipvsTunnel {
		own.machines = anywhere[*lab.Lab]
	}
	return own
}

// paramUpper and paramLower are the thresholds of each server (ipvsadm(8), -x and -y): at
// so many connections it gets no new ones, until it has fewer than the lower.
const (
	paramUpper = "upper"
	paramLower = "lower"
)

func (ipvs) Params() []Param {
	return []Param{
		{Name: paramScheduler, Check: oneOf(moby.RoundRobin, ipvsMaglev, moby.SourceHashing), Optional: true},
		{Name: paramSync, Check: oneOf(syncNames()...), Optional: true, Several: true},
		{Name: paramUpper, Check: positive(math.MaxInt32), Optional: true},
		{Name: paramLower, Check: positive(math.MaxInt32), Optional: true},
	}
}

// ipvsMaglev is the kernel's name of its Maglev scheduler, which the library lacks.
const ipvsMaglev = "mh"

// schedulerOf is the kernel's name of the scheduler: round robin, where params have none.
func schedulerOf(params Params) string {
	scheduler, _ := params[paramScheduler].(string)
	return cmp.Or(scheduler, moby.RoundRobin)
}

// threshold is one of params, 0 where it is left out, which is none to IPVS.
func threshold(params Params, name string) uint32 {
	number, _ := params[name].(int)
	return uint32(number)
}

// Obstacle is what the kernel refuses. It needs no descriptor a connection.
func (ipvs) Obstacle(params Params, _ int, _ probe.Limits) string {
	upper, lower := threshold(params, paramUpper), threshold(params, paramLower)
	if lower > upper {
		return fmt.Sprintf("lower %d: it cannot be more than upper, which is %d", lower, upper)
	}
	if _, err := exec.LookPath(ipvsadmProgram); err != nil && syncOf(params).threshold != "" {
		return fmt.Sprintf(
			"sync %s: ipvsadm starts the kernel's sync daemon, and is not installed: run `make deps`, or install it from your distribution", syncOf(params).name)
	}
	return ""
}

var ipvsVersion = regexp.MustCompile(`IP Virtual Server version (\S+)`)

// Versions loads the kernel's module if it has to. Its error wraps
// probe.ErrNotInstalled where this kernel has none.
func (ipvs) Versions(ctx context.Context) (map[string]string, error) {
	version, err := kernelIPVS(ctx)
	if err != nil {
		return nil, err
	}
	return map[string]string{"ipvs": version}, nil
}

// kernelIPVS is the version of the kernel's IPVS.
func kernelIPVS(ctx context.Context) (string, error) {
	told, err := readIPVS()
	if errors.Is(err, os.ErrNotExist) {
		// What went wrong with it shows in the next line.
		_ = exec.CommandContext(ctx, "modprobe", "ip_vs").Run()
		told, err = readIPVS()
	}
	if errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("IPVS is %w: this kernel has no module ip_vs. "+
			"Run the suite on Debian's kernel with `--lab vm`, or on a kernel that has it", probe.ErrNotInstalled)
	}
	if err != nil {
		return "", fmt.Errorf("asking the kernel for its version of IPVS: %w", err)
	}
	version := ipvsVersion.FindSubmatch(told)
	if version == nil {
		return "", fmt.Errorf("asking the kernel for its version of IPVS: it answered %.60q", told)
	}
	return string(version[1]), nil
}

// readIPVS returns the kernel's table of services, whose first line has the version.
func readIPVS() ([]byte, error) { return os.ReadFile("/proc/thread-self/net/ip_vs") }

func (s ipvs) Start(ctx context.Context, setup Setup, params Params) (Running, error) {
	if setup.Lab.Router != nil {
		return s.startSeveral(ctx, setup, params)
	}
	running := &runningIPVS{way: s.way, setup: setup, scheduler: schedulerOf(params), table: s.table(setup, params)}
	err := running.prepare()
	if err == nil {
		err = running.undo.on(func(on bool) error { return running.table.set(setup.Lab, on) })
	}
	if err != nil {
		return nil, errors.Join(err, running.Stop(context.WithoutCancel(ctx)))
	}
	return running, nil
}

type runningIPVS struct {
	way   ipvsWay
	setup Setup
	// scheduler is the kernel's name.
	scheduler string
	// table is what the kernel has of the one balancer; nil of several.
	table *ipvsTable
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

func (r *runningIPVS) Target(i int) netip.AddrPort { return r.setup.vip(i) }

func (*runningIPVS) Cores() float64                { return 0 }
func (*runningIPVS) Quiesce(context.Context) error { return nil }
func (r *runningIPVS) Notes() []string             { return []string{r.way.note(r.scheduler)} }

// Change changes the kernel's table.
func (r *runningIPVS) Change(_ context.Context, services []Service) error {
	if r.setup.Lab.Far() {
		return fmt.Errorf("%w: the table of a machine is made once", ErrCannot)
	}
	r.setup = r.setup.with(services)
	return r.table.changeOn(r.setup.Lab.Balancer, ipvsServices(r.setup))
}

// Reload does nothing: there is no file that is read.
func (*runningIPVS) Reload(context.Context) error { return nil }

// PIDs are none: the kernel balances.
func (*runningIPVS) PIDs() []int { return nil }

func (*runningIPVS) Ways() string { return ipvsComeAndGo }

func (r *runningIPVS) Stop(context.Context) error {
	return errors.Join(r.undo.all(), r.vips.release())
}
