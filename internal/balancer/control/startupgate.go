// SPDX-License-Identifier: Apache-2.0

package control

import (
	"fmt"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/control/loop"
	"github.com/jeoul/jeoul/internal/balancer/control/view"
)

// startupGate leaves the VIPs to others until a balancer that starts beside them knows the flows that they remember,
// and its health checks' verdicts, so that its first table is theirs.
type startupGate struct {
	*core
	routes *routes
	// flows and verdicts: the gate waits for the other members' flows, or for the first verdicts.
	flows, verdicts bool
	// joining says why the VIPs are left to others yet; empty if they are not.
	joining      string
	verdictsTask *loop.Task
}

const (
	// verdictsBound is for how long the first verdicts are waited for: a backend that fails by the default check
	// has its own after at most three intervals and timeouts, 9 s.
	verdictsBound = 10 * time.Second

	notJoined = "the flows that other members remember are not known yet"
	notJudged = "the health checks have no verdict on all backends yet"
)

// why names the reason for which the gate is shut; "" if it is open.
func (g *startupGate) why() string {
	switch {
	case g.flows:
		return notJoined
	case g.verdicts:
		return notJudged
	}
	return ""
}

// awaitFlows has this balancer leave the VIPs to others until it knows the flows that they remember. A data plane that
// is taken over, to which packets come all the time, goes on: its flows and verdicts are known.
func (g *startupGate) awaitFlows() {
	if g.flows = g.opt.Joined != nil && !g.opt.TakesOver; g.opt.Joined != nil {
		g.loop.On(g.opt.Joined, func() {
			g.flows = false
			g.proceed()
		})
	}
}

// packetsWentElsewhere says whether packets went to other balancers while there was no process: no speaker announces
// the VIPs any more, or another balancer has taken them.
func (g *startupGate) packetsWentElsewhere(first *view.View) bool {
	if first.Config.VRRP.ID != 0 {
		return g.opt.Election != nil && first.Passive
	}
	return g.opt.Routes != nil && first.Config.BGP.On() && len(g.routes.left) == 0
}

// begin returns why the first view's VIPs are to be left to others yet. Where packets went to others since the previous
// process ended, nothing is known here of the flows that began there, nor of backends that have died, as when the
// balancer had never been.
func (g *startupGate) begin(first *view.View) string {
	if g.opt.TakesOver && g.opt.Routes != nil {
		g.routes.left = g.opt.Routes.Found()
	}
	elsewhere := g.opt.TakesOver && g.packetsWentElsewhere(first)
	if elsewhere {
		g.flows = g.opt.Joined != nil
	}
	g.verdicts = (elsewhere || !g.opt.TakesOver && first.BesideOthers()) && first.Unjudged() != ""
	g.joining = g.why()
	return g.joining
}

// boundVerdicts bounds how long first verdicts are waited for. The checks go by the data plane, so its loading does not
// count.
func (g *startupGate) boundVerdicts() {
	if g.verdicts {
		g.verdictsTask.In(verdictsBound)
	}
	if g.joining != "" && g.view.ByAddress() {
		g.opt.Log.Info(fmt.Sprintf("the VIPs come onto %s later: %s", g.view.Links[0].Name, g.joining))
	}
}

// proceed takes the VIPs if there is nothing more to wait for.
func (g *startupGate) proceed() {
	if g.joining = g.why(); g.joining == "" {
		g.requestEarly()
	}
	g.scheduleNow()
}

// noteVerdicts goes on once the data plane has the first verdict on each backend. So no transition begins by it.
func (g *startupGate) noteVerdicts() {
	if g.verdicts && g.view.Unjudged() == "" {
		g.endVerdictWait()
	}
}

// giveUpVerdicts takes the VIPs without the verdicts that have not come in time: their backends count as healthy.
func (g *startupGate) giveUpVerdicts() {
	if backend := g.view.Unjudged(); backend != "" {
		g.opt.Log.Warn(fmt.Sprintf("the VIPs are taken without a verdict on %s, for which its health checks had %v: "+
			"clients may be sent to it although it does not serve", backend, verdictsBound))
	}
	g.endVerdictWait()
}

// endVerdictWait waits for no verdict any more.
func (g *startupGate) endVerdictWait() {
	g.verdicts = false
	g.verdictsTask.Off()
	g.proceed()
}
