// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"slices"
	"time"

	"github.com/jeoul/jeoul/internal/weigh/bench"
	"github.com/jeoul/jeoul/internal/weigh/wire"
)

// Bounds of a packet-level load.
const (
	wireMaxRate   = 100_000_000
	wireMaxSteps  = 1000
	wireMaxTime   = 10 * time.Minute
	wireMaxBytes  = 1 << 30
	wireMaxTries  = 20
	wireMaxBursts = 100
	// wirePorts is the number of source ports that an address has for connections.
	wirePorts = 1<<16 - 1024
)

func (kind) Check(l bench.Load, form bench.Form, at bench.Path, fail bench.FailFunc) {
	l.CheckRepeats(at, fail)
	if l.Requests != 0 || l.RequestsEach != 0 || l.MinRequests != 0 || l.Pinned || l.Offloads {
		fail(at, "a packet-level load takes no requests, requests_each, min_requests, pinned or offloads")
	}
	if n := len(l.Concurrency); n > 1 ||
		n == 1 && settingsOf(l) != nil && l.Concurrency[0] != settingsOf(l).connections() {
		fail(at.To("concurrency"), "how many connections there are says wire, in connections or in its ladder")
	}
	if slices.ContainsFunc(form.Loads, func(other bench.Load) bool { return other.Kind != l.Kind }) {
		fail(at.To("kind"),
			"the laboratory of packet-level loads is not that of others; give them a suite of their own")
	}
	if form.Lab.Clients > wire.MaxPorts || form.Lab.Servers > wire.MaxPorts {
		fail(at, "the tester has at most %d ports of each side: set clients and servers in lab to 1 to %d",
			wire.MaxPorts, wire.MaxPorts)
	}
	if settingsOf(l) == nil {
		fail(at.To("wire"), "missing; say at least what the load is, one of %v", wireKinds())
		return
	}
	c := wireCheck{*settingsOf(l), at.To("wire"), fail}
	c.rates(at)
	c.amount(l, form)
	c.details()
}

// wireCheck checks the parts of a packet-level load.
type wireCheck struct {
	Wire
	at   bench.Path
	fail bench.FailFunc
}

// between reports a value that is out of range.
func (c wireCheck) between(value, least, most int, field ...any) {
	if value < least || value > most {
		c.fail(c.at.To(field...), "%d is not possible; use %d to %d", value, least, most)
	}
}

// rateSettings returns how many of the settings for the offered rate are set.
func (w Wire) rateSettings() (n int) {
	for _, set := range []bool{w.Rate != 0, w.Ladder != nil, w.Search != nil} {
		if set {
			n++
		}
	}
	return n
}

// rates checks the offered rates.
func (c wireCheck) rates(at bench.Path) {
	if !slices.Contains(wireKinds(), c.Load) {
		c.fail(c.at.To("load"), "%q is not possible; use one of %v", c.Load, wireKinds())
	}
	if c.rateSettings() > 1 {
		c.fail(c.at, "give at most one of rate, ladder and search; none of them offers as much as the tester can")
	}
	c.between(c.Rate, 0, wireMaxRate, "rate")
	if ladder := c.Ladder; ladder != nil {
		c.ladder(*ladder)
	}
	if search := c.Search; search != nil {
		c.between(search.From, 1, wireMaxRate, "search", "from")
		c.between(search.To, search.From+1, wireMaxRate, "search", "to")
		if search.Loss < 0 || search.Loss >= 1 {
			c.fail(c.at.To("search", "loss"),
				"%g is not possible; use a share of what is offered, from 0 to less than 1", search.Loss)
		}
		if search.Resolution < 0 || search.Resolution >= 1 {
			c.fail(c.at.To("search", "resolution"), "%g is not possible; use a share of the rate, such as 0.01",
				search.Resolution)
		}
	}
	if f := c.SYNFlood; f != nil {
		c.between(f.Rate, 0, wireMaxRate, "syn_flood", "rate")
		if c.Load != wire.Setup && c.Load != wire.Session {
			c.fail(c.at.To("syn_flood"), "goes beside %s and %s, not %s", wire.Setup, wire.Session, c.Load)
		}
	}
}

func (c wireCheck) ladder(l WireLadder) {
	c.between(l.From, 1, wireMaxRate, "ladder", "from")
	c.between(l.To, l.From, wireMaxRate, "ladder", "to")
	c.between(l.Step, 1, wireMaxRate, "ladder", "step")
	if l.Step > 0 && (l.To-l.From)/l.Step >= wireMaxSteps {
		c.fail(c.at.To("ladder", "step"), "%d makes %d steps; at most %d are possible", l.Step, (l.To-l.From)/l.Step+1,
			wireMaxSteps)
	}
	c.between(l.Connections, 1, wire.MaxConnections, "ladder", "connections")
	if c.Load == wire.Capacity {
		c.fail(c.at.To("ladder"), "how many connections can be held is one figure; give connections and a rate")
	}
}

// amount checks the number of connections and the duration.
func (c wireCheck) amount(l bench.Load, form bench.Form) {
	if l.Duration < 0 || l.Duration > wireMaxTime {
		c.fail(c.at[:len(c.at)-1].To("duration"), "%v is not possible; use up to %v", l.Duration, wireMaxTime)
	}
	switch {
	case c.Ladder != nil && (l.Duration != 0 || c.Connections != 0):
		c.fail(c.at, "the steps of a ladder end after its connections; it takes no duration and no connections beside it")
	case c.Ladder == nil && (l.Duration != 0) == (c.Connections != 0):
		c.fail(c.at, "give one of connections, here, and duration, of the load, which says when a step ends")
	case c.Load == wire.Capacity && c.Connections == 0:
		c.fail(c.at.To("connections"), "missing; say how many are to be held")
	}
	c.between(c.Connections, 0, wire.MaxConnections, "connections")
	most := form.Lab.Clients * wireAddresses * wirePorts
	if n := c.connections(); n > most {
		c.fail(c.at.To("connections"), "%d connections; %d clients have %d addresses and ports to come from", n,
			form.Lab.Clients, most)
	}
}

// details checks the other settings.
func (c wireCheck) details() {
	for _, of := range []struct {
		name  string
		value time.Duration
	}{{"warm_up", c.WarmUp}, {"settle", c.Settle}, {"hold", c.Hold}, {"timeout", c.Timeout}, {"pause", c.Pause}} {
		if of.value < 0 || of.value > wireMaxTime {
			c.fail(c.at.To(of.name), "%v is not possible; use up to %v", of.value, wireMaxTime)
		}
	}
	c.between(c.Outstanding, 0, wire.MaxConnections, "outstanding")
	c.between(c.Tries, 0, wireMaxTries, "tries")
	c.between(c.Bursts, 0, wireMaxBursts, "bursts")
	if c.Bursts > 1 && (c.rateSettings() > 0 || c.Load == wire.Capacity) {
		c.fail(c.at.To("bursts"),
			"the fastest of %d is looked for where as much as possible is offered: leave rate, ladder and search out, and do not hold", c.Bursts)
	}
	if c.Pause != 0 && c.Bursts < 2 {
		c.fail(c.at.To("pause"), "%v between bursts, of which there is one; set bursts too", c.Pause)
	}
	c.between(c.Response, 0, wireMaxBytes, "response")
	// A request is one segment: 1500 bytes less the headers of IP and TCP.
	c.between(c.Request, 0, 1460, "request")
	c.only(c.Hold != 0, "hold", wire.Capacity)
	c.only(c.Request != 0, "request", wire.Session, wire.Capacity)
	c.only(c.Response != 0, "response", wire.Session, wire.Capacity)
	c.only(c.Frame != 0, "frame", wire.UDP)
	c.only(c.Question != "", "question", wire.DNS)
	if c.Frame != 0 {
		c.between(c.Frame, 60, 1514, "frame")
	}
}

// only reports a field that is set and that only loads of the given kinds may have.
func (c wireCheck) only(set bool, name string, kinds ...wire.Kind) {
	if set && !slices.Contains(kinds, c.Load) {
		c.fail(c.at.To(name), "goes with %v, not with %s", kinds, c.Load)
	}
}
