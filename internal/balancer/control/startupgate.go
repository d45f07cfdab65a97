// SPDX-License-Identifier: Apache-2.0

package control

import (
	"fmt"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/control/loop"
	"github.com/jeoul/jeoul/internal/balancer/control/view"
)

// startupGate delays taking the VIPs when the balancer starts beside others, until it has received their flows and has
// the first verdicts of its health checks, so that its first table equals theirs.
type startupGate struct {
	*core
	routes *routes
	// awaitingFlows and awaitingVerdicts: the gate waits for the other members' flows, or for the first verdicts.
	awaitingFlows, awaitingVerdicts bool
	// joining is why the VIPs are still left to others; empty if they are not.
	joining      string
	verdictsTask *loop.Task
}

const (
	// verdictsBound bounds the wait for the first verdicts: a backend that fails the default check has its verdict
	// after at most three intervals and timeouts, 9 s.
	verdictsBound = 10 * time.Second

	awaitsFlows    = "the flows of the other members are not known yet"
	awaitsVerdicts = "the health checks have no verdict on all backends yet"
)

// reason returns why the gate is closed; "" if it is open.
func (g *startupGate) reason() string {
	switch {
	case g.awaitingFlows:
		return awaitsFlows
	case g.awaitingVerdicts:
		return awaitsVerdicts
	}
	return ""
}

// awaitFlows closes the gate until this balancer has received the other members' flows. A data plane that is taken over
// still receives packets, so it goes on: its flows and verdicts are known.
func (g *startupGate) awaitFlows() {
	if g.awaitingFlows = g.opt.Joined != nil && !g.opt.TakesOver; g.opt.Joined != nil {
		g.loop.OnSignal(g.opt.Joined, func() {
			g.awaitingFlows = false
			g.proceed()
		})
	}
}

// packetsWentElsewhere reports whether packets went to other balancers while there was no process: no speaker announces
// the VIPs any more, or another balancer holds them.
func (g *startupGate) packetsWentElsewhere(first *view.View) bool {
	if first.Config.VRRP.ID != 0 {
		return g.opt.Election != nil && first.Passive
	}
	return g.opt.Routes != nil && first.Config.BGP.On() && len(g.routes.previous) == 0
}

// start returns why the first view's VIPs are left to others; "" if they are not. If packets went to other balancers
// since the previous process ended, this one knows neither the flows that began there nor the backends that have failed
// since, as if it had never run.
func (g *startupGate) start(first *view.View) string {
	if g.opt.TakesOver && g.opt.Routes != nil {
		g.routes.previous = g.opt.Routes.PreviouslyAnnounced()
	}
	elsewhere := g.opt.TakesOver && g.packetsWentElsewhere(first)
	if elsewhere {
		g.awaitingFlows = g.opt.Joined != nil
	}
	g.awaitingVerdicts = (elsewhere || !g.opt.TakesOver && first.SharesVIPs()) && first.BackendWithoutVerdict() != ""
	g.joining = g.reason()
	return g.joining
}

// boundVerdictWait bounds the wait for the first verdicts. It is called once the data plane is loaded, because checks
// go through it.
func (g *startupGate) boundVerdictWait() {
	if g.awaitingVerdicts {
		g.verdictsTask.Schedule(verdictsBound)
	}
	if g.joining != "" && g.view.ByAddress() {
		g.opt.Log.Info(fmt.Sprintf("the VIPs come onto %s later: %s", g.view.Links[0].Name, g.joining))
	}
}

// proceed opens the gate if there is nothing left to wait for.
func (g *startupGate) proceed() {
	if g.joining = g.reason(); g.joining == "" {
		g.requestEarly()
	}
	g.scheduleNow()
}

// checkVerdicts ends the wait for verdicts once the data plane has the first verdict on each backend: none of these
// verdicts begins a transition then.
func (g *startupGate) checkVerdicts() {
	if g.awaitingVerdicts && g.view.BackendWithoutVerdict() == "" {
		g.endVerdictWait()
	}
}

// expireVerdictWait ends the wait for verdicts after verdictsBound: backends without a verdict count as healthy.
func (g *startupGate) expireVerdictWait() {
	if backend := g.view.BackendWithoutVerdict(); backend != "" {
		g.opt.Log.Warn(fmt.Sprintf("the VIPs are taken without a verdict on %s, for which its health checks had %v: "+
			"clients may be sent to it although it does not serve", backend, verdictsBound))
	}
	g.endVerdictWait()
}

// endVerdictWait ends the wait for verdicts.
func (g *startupGate) endVerdictWait() {
	g.awaitingVerdicts = false
	g.verdictsTask.Cancel()
	g.proceed()
}
