// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"math/big"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/maglev"
	"github.com/jeoul/jeoul/internal/text/yamlfile"
)

const (
	// slotsPerBackend is how many slots a backend needs on average for a fair
	// share: below that, rounding alone moves shares by a per cent ("M > 100 × N",
	// NSDI 2016, section 3.4).
	slotsPerBackend = 100
	// slotsForLightest is how many the share of the lightest should come to: with
	// fewer, rounding moves it by more than a tenth.
	slotsForLightest = 10
	// maxTurns is how many turns a round of wrr has at most.
	maxTurns = 1<<17 - 1
)

// checkScheduler checks the scheduler of a service against the settings that it goes by.
func (p *parser) checkScheduler(i int) {
	s := &p.cfg.Services[i]
	if !p.Bad(ServiceField(i, "scheduler")) {
		p.checkHash(i)
	}
	p.checkTakers(i)
	p.checkWeights(i)
	if s.Mode.Proxied() { // it has no table
		return
	}
	field := ServiceField(i, "table_size")
	if own := p.Written(field); !own {
		field, s.TableSize = "", p.cfg.TableSize
		if written := p.Written("table_size"); written {
			field = "table_size"
		}
	}
	if !p.Bad(field) {
		p.checkTable(i, field)
	}
}

// checkHash refuses the key with schedulers that do not hash.
func (p *parser) checkHash(i int) {
	s, field := p.cfg.Services[i], ServiceField(i, "hash")
	switch {
	case s.Hash == "" || s.Scheduler == lb.Maglev:
	case s.Scheduler == lb.SourceHash:
		p.Fail(field, "the scheduler %s always goes by the source; remove the line, or use %s to go by the flow",
			s.Scheduler, lb.Maglev)
	default:
		p.Fail(field, "the scheduler %s does not go by a hash; remove the line, or use %s", s.Scheduler, lb.Maglev)
	}
}

// checkTakers refuses a service of which no backend takes new flows.
func (p *parser) checkTakers(i int) {
	if p.cfg.Services[i].MayBeEmpty() {
		return
	}
	if field := ServiceField(i, "backends"); len(p.cfg.Services[i].Backends) == 0 && p.Written(field) && !p.Bad(field) {
		p.Fail(field, "empty; add at least one backend, or write allow_empty: true beside it")
		return
	}
	drained, idle := 0, 0
	for j, b := range p.cfg.Services[i].Backends {
		switch {
		case b.TakesFlows() || p.hasProblem(i, j, "weight") || p.hasProblem(i, j, "drain"):
			return
		case b.Draining:
			drained++
		default:
			idle++
		}
	}
	why, remedy := "every backend is drained or has weight 0", "let one take them again"
	switch {
	case drained+idle == 0: // reported before
		return
	case drained == 0:
		why, remedy = "every backend has weight 0", "give one a weight of 1 or more"
	case idle == 0:
		why, remedy = "every backend is drained", "end the drain of one"
	}
	p.Fail(ServiceField(i, "backends"),
		"%s, so no backend would take new connections; %s, add another, or remove the service", why, remedy)
}

// checkWeights warns of weights without effect. Services of Kubernetes have the header of a node's endpoints with every
// scheduler, for its 0.
func (p *parser) checkWeights(i int) {
	s := p.cfg.Services[i]
	if s.Scheduler.Weighted() {
		return
	}
	for k, c := range s.Checks.List {
		if c.HTTP != nil && c.HTTP.WeightHeader != "" && c.HTTP.WeightHeader != lb.EndpointWeightHeader {
			p.warn(yamlfile.Join(p.cfg.CheckField(i, k), "weight_header"), "reports weights, but the scheduler %s %s",
				s.Scheduler, insteadOfWeights[s.Scheduler])
		}
	}
	first := uint16(0)
	for j, b := range s.Backends {
		switch {
		case b.Weight == 0:
		case first == 0:
			first = b.Weight
		case b.Weight != first:
			p.warn(BackendField(i, j, "weight"), "differs from the others, but the scheduler %s %s", s.Scheduler,
				insteadOfWeights[s.Scheduler])
			return
		}
	}
}

// insteadOfWeights names, for the schedulers that have no use for weights, the criterion that they go by, and the
// remedy.
var insteadOfWeights = map[lb.Scheduler]string{
	lb.RoundRobin: fmt.Sprintf("gives each backend the same share (only 0 counts); use %s for weights",
		lb.WeightedRoundRobin),
	lb.LeastConnections: fmt.Sprintf("goes by the number of flows alone (only 0 counts); use %s for weights",
		lb.WeightedLeastConnections),
	lb.Failover: "goes by the order of the backends (only 0 counts); write them in the order in which they shall serve",
}

// checkTable checks the number of slots against the backends that share them; field is its field, "" if it is not
// written.
func (p *parser) checkTable(i int, field string) {
	s := p.cfg.Services[i]
	n, size := uint32(len(s.Backends)), s.TableSize
	if size == 0 {
		size = lb.DefaultTableSize(len(s.Backends))
	}
	if s.Scheduler.InOrder() {
		if field == ServiceField(i, "table_size") {
			p.warn(field, "the scheduler %s has no table, so this is not used", s.Scheduler)
		}
		return
	}
	if size < n {
		p.Fail(field, "%d slots cannot hold the %d backends of %s; use %d", size, n, ServiceField(i, ""),
			lb.DefaultTableSize(len(s.Backends)))
		return
	}
	if field == "" {
		field = ServiceField(i, "backends")
	}
	shares := sharesOf(s)
	switch {
	case !s.Scheduler.Weighted() || s.Scheduler == lb.WeightedLeastConnections:
		// slots are for flows that cannot be remembered
	case s.Scheduler == lb.WeightedRoundRobin:
		if shares.sum > maxTurns*shares.common {
			p.checkLightest(i, shares, maxTurns, "turns of a round", noRemedy)
		}
	case n*slotsPerBackend > size:
		p.warn(field,
			"%d slots are fewer than %d for each of the %d backends of %s, so their shares are uneven; use a larger prime, such as table_size: %d",
			size, slotsPerBackend, n, ServiceField(i, ""), nextPrime(n*slotsPerBackend))
	default:
		p.checkLightest(i, shares, uint64(size), "slots", shares.largerTable)
	}
}

// shares are sums of weights, which show whether a table can represent them.
type shares struct {
	// sum is the sum of the weights of the backends that take new flows, common their greatest common divisor, and
	// least the lightest, which is backend number lightest.
	sum, common, least uint64
	lightest           int
}

func sharesOf(s lb.Service) shares {
	var sh shares
	for j, b := range s.Backends {
		if !b.TakesFlows() {
			continue
		}
		weight := uint64(b.Weight)
		sh.sum, sh.common = sh.sum+weight, gcd(weight, sh.common)
		if sh.least == 0 || weight < sh.least {
			sh.least, sh.lightest = weight, j
		}
	}
	return sh
}

// checkLightest warns if rounding changes the share of the lightest backend much; room is the number of slots or turns.
func (p *parser) checkLightest(i int, sh shares, room uint64, word string, remedy func() string) {
	if sh.least == 0 || room*sh.least >= slotsForLightest*sh.sum {
		return
	}
	p.warn(BackendField(i, sh.lightest, "weight"),
		"%d of %d comes to %.2g of %d %s, so rounding decides the share; use weights that are closer to each other%s",
		sh.least, sh.sum, float64(room*sh.least)/float64(sh.sum), room, word, remedy())
}

func noRemedy() string { return "" }

// largerTable names a table in which the lightest would have enough slots, if there
// is one.
func (sh shares) largerTable() string {
	const farthest = 1024 // primes of this size lie closer together
	slots := (sh.sum*slotsForLightest + sh.least - 1) / max(sh.least, 1)
	if slots+farthest > maglev.MaxSize {
		return ""
	}
	return fmt.Sprintf(", or table_size: %d", nextPrime(uint32(slots)))
}

func gcd(a, b uint64) uint64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// nextPrime returns the smallest prime that is not below n. ProbablyPrime is exact
// below 2^64.
func nextPrime(n uint32) uint32 {
	for !new(big.Int).SetUint64(uint64(n)).ProbablyPrime(0) {
		n++
	}
	return n
}
