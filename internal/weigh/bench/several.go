// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"slices"
	"time"

	"github.com/jeoul/jeoul/internal/weigh/bench/router"
	"github.com/jeoul/jeoul/internal/weigh/bench/subject"
	"github.com/jeoul/jeoul/internal/weigh/bench/subject/subjects"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

const (
	// paramRouter is set if the router is not the default, and paramBFD if the router and the balancers use BFD.
	paramBalancers, paramRouter, paramBFD = "balancers", "router", "bfd_ms"
	// minBFD and maxBFD bound the interval of BFD packets, as a balancer's configuration does.
	minBFD, maxBFD = 10 * time.Millisecond, 10 * time.Second
	// severalNote describes a laboratory of several balancers.
	severalNote = "before each event in which a balancer leaves all connections are closed, and others opened; a router (%s) sends what is for the VIP over several balancers by a hash of addresses and ports (net.ipv4.fib_multipath_hash_policy 1, plain next hops), over a link to each of its own; " +
		"the events of balancers are about one of them, and a change is done when the router's kernel has one way less, or more"
)

// checkBalancers reports settings that cannot be combined with several balancers.
func (f Form) checkBalancers(at Path, fail FailFunc) {
	if n := f.Lab.Balancers; n != 0 && (n < 2 || n > lab.MaxBalancers) {
		fail(at.To("lab", "balancers"), "%d is not possible; use 2 to %d, or leave it out", n, lab.MaxBalancers)
	}
	for i, l := range f.Loads {
		e, _ := findExperiment(l.Kind)
		if of, ok := e.(besideOthers); f.Lab.Balancers > 0 && (!ok || !of.BesideOthers(l)) {
			fail(at.To("loads", i, "kind"), "with lab.balancers use change, without numbered_per_second and proxies")
		}
	}
	f.checkRouter(at, fail)
	if f.Lab.Balancers == 0 {
		if f.Lab.Members {
			fail(at.To("lab", "members"), "there is one balancer; set lab.balancers")
		}
		f.checkOneBalancer(at, fail)
		return
	}
	if f.Lab.Containers {
		fail(at.To("lab", "containers"), "goes with one balancer, not with lab.balancers")
	}
	for i, s := range f.Subjects {
		if known, ok := subjects.Find(s.Name); ok {
			if reason := subject.BesideOthers(known); reason != "" {
				fail(at.To("subjects", i, "name"), "%s cannot be one of several balancers: %s", s.Name, reason)
			}
		}
	}
}

// checkOneBalancer reports parameters that need several balancers.
func (f Form) checkOneBalancer(at Path, fail FailFunc) {
	for i, s := range f.Subjects {
		known, ok := subjects.Find(s.Name)
		if !ok {
			continue
		}
		for _, param := range known.Params() {
			if param.Several && len(s.Params[param.Name]) > 0 {
				fail(at.To("subjects", i, "params", param.Name), "it is of several balancers; set lab.balancers")
			}
		}
	}
}

// checkRouter reports settings of a router if there is none.
func (f Form) checkRouter(at Path, fail FailFunc) {
	if f.Lab.Balancers == 0 && (f.Lab.Router != "" || f.Lab.BFD != 0) {
		fail(at.To("lab"), "router and bfd are of the router before several balancers; set lab.balancers")
	}
	if !slices.Contains(router.Kinds, f.Lab.router()) {
		fail(at.To("lab", "router"), "%q is not possible; use one of %v", f.Lab.Router, router.Kinds)
	}
	if d := f.Lab.BFD; d != 0 && (d < minBFD || d > maxBFD || d%time.Millisecond != 0) {
		fail(at.To("lab", "bfd"), "%v is not possible; use whole milliseconds, %v to %v, or leave it out", d,
			minBFD, maxBFD)
	}
}

// RouterSkipReason returns the reason why the form's router cannot run; empty if it can, or if there is none.
func (f Form) RouterSkipReason() string {
	if f.Lab.Balancers == 0 {
		return ""
	}
	return f.Lab.router().SkipReason()
}

// severalParams returns the parameters that distinguish results of several balancers.
func (s Size) severalParams() map[string]any {
	params := map[string]any{paramBalancers: s.Balancers}
	if s.Router != "" {
		params[paramRouter] = string(s.Router)
	}
	if s.BFD > 0 {
		params[paramBFD] = int(s.BFD.Milliseconds())
	}
	return params
}
