// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"strings"

	"github.com/jeoul/jeoul/internal/weigh/bench/subject"
	"github.com/jeoul/jeoul/internal/weigh/bench/subject/subjects"
)

// A form may run its servers as containers on the balancer's host, behind a bridge there. The generators of a load run
// on clients beyond that host, or on the host itself.

// Notes on containers.
const (
	containersNote = "servers are containers of the balancer's host: each has a veth into a bridge there, and its default route by that"
	localNote      = "under a load from the balancer's host, generators and balancer share it: what the balancer costs cannot be told from them. " +
		"The host's CPU time has both, with the kernel's work for the bridge and the containers' links; what it has beyond that of direct is the balancer's"
)

// checkContainers reports settings that cannot be combined with containers, or with generators on the host of the
// containers.
func (f Form) checkContainers(at Path, fail FailFunc) {
	if f.Lab.Containers && len(f.Tune) > 0 {
		fail(at.To("tune"), "goes with servers on the segment, not with lab.containers")
	}
	for i, l := range f.Loads {
		l.checkFrom(f, at.To("loads", i), fail)
	}
}

func (l Load) checkFrom(f Form, at Path, fail FailFunc) {
	e, _ := findExperiment(l.Kind)
	_, carried := e.(besideContainers)
	switch {
	case l.From != "" && l.From != fromClients && l.From != fromBalancer:
		fail(at.To("from"), "%q is not possible; use %s or %s", l.From, fromClients, fromBalancer)
	case l.local() && !f.Lab.Containers:
		fail(at.To("from"), "clients on the balancer's host need servers behind it: set lab.containers to true")
	case f.Lab.Containers && !carried:
		fail(at.To("kind"), "%s needs servers on the segment; with lab.containers use %s",
			l.Kind, besideContainersNames())
	case f.Lab.Containers && l.generator() != nil:
		fail(at.To("generator"), "%s goes with servers on the segment, not with lab.containers", l.generator().Name)
	case f.Lab.Containers:
		for j, s := range f.Subjects {
			known, ok := subjects.Find(s.Name)
			if !ok {
				continue // Subject.check reports it
			}
			if reason := subject.BesideContainers(known, l.local()); reason != "" {
				fail(at.To("from"), "subjects[%d], %s: %s", j, s.Name, reason)
			}
		}
	}
}

// from returns the value of the parameter "from"; empty if the lab has no containers.
func (p Point) from() string {
	switch {
	case !p.Form.Lab.Containers:
		return ""
	case p.Local():
		return fromBalancer
	}
	return fromClients
}

// besideContainersNames lists the kinds of loads that can run beside containers, as "a, b or c".
func besideContainersNames() string {
	var names []string
	for _, e := range registered {
		if _, ok := e.(besideContainers); ok {
			names = append(names, e.Name())
		}
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " or " + names[last]
}
