// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os/exec"

	moby "github.com/moby/ipvs"

	"github.com/jeoul/jeoul/internal/weigh/bench/probe"
	"github.com/jeoul/jeoul/internal/weigh/bench/subject"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// ipvs is the kernel's own balancer (Linux Virtual Server) with round robin, in one of its three forwarding methods
// (ipvsadm(8), PACKET-FORWARDING-METHOD).
type ipvs struct {
	// method is the forwarding method. The subject's name ends in it.
	method ipvsMethod
}

func (s ipvs) Name() string { return "ipvs-" + string(s.method) }

func (s ipvs) Can() subject.Abilities {
	own := subject.Abilities{UDP: true, Packets: true, Changes: true, DirectReplies: s.method != ipvsMasquerade,
		Others: func() string {
			if s.method != ipvsDirect {
				return "replies and tunnels take a way of their own: use ipvs-" + string(ipvsDirect)
			}
			return ""
		}}
	if s.method != ipvsTunnel {
		own.Machines = subject.Anywhere[*lab.Lab]
	}
	return own
}

// paramUpper and paramLower are the thresholds of each server (ipvsadm(8), -x and -y). A server with as many
// connections as the upper threshold gets no new ones, until it has fewer than the lower threshold.
const (
	paramUpper = "upper"
	paramLower = "lower"
)

func (ipvs) Params() []subject.Param {
	return []subject.Param{
		{Name: subject.ParamScheduler, Optional: true,
			Check: subject.OneOf(moby.RoundRobin, ipvsMaglev, moby.SourceHashing)},
		{Name: paramSync, Check: subject.OneOf(syncNames()...), Optional: true, Several: true},
		{Name: paramUpper, Check: subject.Positive(math.MaxInt32), Optional: true},
		{Name: paramLower, Check: subject.Positive(math.MaxInt32), Optional: true},
	}
}

// schedulerOf returns the kernel's name of the scheduler: round robin, if params have none.
func schedulerOf(params subject.Params) string {
	scheduler, _ := params[subject.ParamScheduler].(string)
	return cmp.Or(scheduler, moby.RoundRobin)
}

// threshold returns a threshold of params; 0 if it is omitted, which means no threshold to IPVS.
func threshold(params subject.Params, name string) uint32 {
	number, _ := params[name].(int)
	return uint32(number)
}

// SkipReason names thresholds that the kernel rejects, and a missing ipvsadm. IPVS needs no file descriptors for
// connections.
func (ipvs) SkipReason(params subject.Params, _ int, _ probe.Limits) string {
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

// Versions loads the kernel's module if necessary. Its error wraps probe.ErrNotInstalled if this kernel has none.
func (ipvs) Versions(ctx context.Context) (map[string]string, error) {
	version, err := kernelIPVS(ctx)
	if err != nil {
		return nil, err
	}
	return map[string]string{"ipvs": version}, nil
}

// table returns the table of a set-up.
func (s ipvs) table(setup subject.Setup, params subject.Params) *ipvsTable {
	return &ipvsTable{
		Flags: ipvsMethods[s.method].flags, Upper: threshold(params, paramUpper), Lower: threshold(params, paramLower),
		Guarded: setup.Lab.Remote(), Services: scheduledBy(schedulerOf(params), ipvsServices(setup)),
	}
}

// scheduledBy returns services with a scheduler.
func scheduledBy(scheduler string, services []ipvsService) []ipvsService {
	for i := range services {
		services[i].Scheduler = scheduler
	}
	return services
}

func (s ipvs) Start(ctx context.Context, setup subject.Setup, params subject.Params) (subject.Running, error) {
	if setup.Lab.Router != nil {
		return s.startSeveral(ctx, setup, params)
	}
	running := &runningIPVS{method: s.method, setup: setup, scheduler: schedulerOf(params),
		table: s.table(setup, params)}
	err := running.prepare()
	if err == nil {
		err = running.undo.On(func(on bool) error { return running.table.set(setup.Lab, on) })
	}
	if err != nil {
		return nil, errors.Join(err, running.Stop(context.WithoutCancel(ctx)))
	}
	return running, nil
}
