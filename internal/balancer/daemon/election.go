// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/config"
	"github.com/jeoul/jeoul/internal/balancer/control"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/balancer/vrrp"
	"github.com/jeoul/jeoul/internal/host/iface"
)

// election is VRRP's, as the controller sees it.
type election struct{ *vrrp.Elector }

// newElection returns an election in which this balancer takes no part before the controller says so; left are the
// addresses that the previous process has left on the interface.
func newElection(cfg *config.Config, left []netip.Addr, log *slog.Logger) election {
	first := vrrp.Desired{}
	if cfg.VRRP.ID != 0 {
		first = vrrp.Desired{Settings: settingsOf(cfg.VRRP, cfg.VRRP.Priority), Interface: cfg.VRRP.Interface,
			Out: "the balancer starts"}
		if first.Interface == "" {
			first.Interface = cfg.Interfaces[0]
		}
	}
	watch := func(name string) (vrrp.Links, error) { return iface.Watch(name) }
	keepVIPs := slices.ContainsFunc(cfg.Services, func(s lb.Service) bool { return slices.Contains(left, s.VIP) })
	return election{vrrp.New(vrrp.Options{Log: log, Watch: watch, KeepVIPs: keepVIPs}, first)}
}

func settingsOf(v lb.VRRP, priority uint8) vrrp.Settings {
	return vrrp.Settings{VRID: v.ID, Priority: priority, Interval: v.Interval,
		Preempt: v.Preempt, PreemptDelay: v.PreemptDelay, AnnounceInterval: v.AnnounceInterval}
}

// announceTimeout is for how long packets are served after another balancer was heard that has taken the VIPs over: it
// announces them to the neighbours only then, which takes a busy one a while.
const announceTimeout = time.Second

// runElection participates in the election until ctx ends, and returns when no more packets need to be served here.
// Members are sent the last flows before packets go to them, and those that have begun until they did; outlives says
// that the data plane can go on without a process.
func runElection(ctx context.Context, shared election, routers *routers, member *member, outlives bool) error {
	elected, end := context.WithCancel(context.WithoutCancel(ctx))
	context.AfterFunc(ctx, func() {
		member.flush(elected)
		end()
	})
	succeeded := shared.Run(elected)
	if outlives && errors.Is(context.Cause(ctx), control.ErrLeaving) {
		return nil
	}
	err := routers.stop()
	if succeeded {
		<-time.After(announceTimeout)
	}
	member.flush(context.WithoutCancel(ctx))
	return err
}

// SetDesired says how this balancer takes part.
func (e election) SetDesired(w ops.Election) {
	if w.VRRP.ID == 0 {
		e.Elector.SetDesired(vrrp.Desired{})
		return
	}
	e.Elector.SetDesired(vrrp.Desired{Settings: settingsOf(w.VRRP, w.Priority), Interface: w.Interface, VIPs: w.VIPs,
		Out: w.Out})
}

// FillStatus fills in the state of the election.
func (e election) FillStatus(to *ops.VRRP) {
	s := e.Status()
	to.State, to.Since, to.Why, to.Priority, to.Both = string(s.State), s.Since, s.Cause, s.Priority, s.BothActive
	to.Sent, to.Received, to.Rejected, to.Ignored = s.Sent, s.Received, s.Rejected, s.Ignored
	to.Changes, to.Conflicts, to.Announcements = s.Changes, s.Conflicts, e.Announcements()
	to.Reason, to.Problem = s.Reason, s.Problem
	for _, f := range s.OtherRouters {
		to.Foreign = append(to.Foreign, ops.VRRPForeign{
			Address: f.Address, VIPs: f.VIPs, Priority: f.Priority, Heard: f.Heard, Reason: f.String()})
	}
	if s.Peer.IsValid() {
		to.Peer = &ops.VRRPPeer{Address: s.Peer, Priority: s.PeerPriority, IntervalSeconds: s.PeerInterval.Seconds(),
			Heard: s.Heard}
	}
}
