// SPDX-License-Identifier: Apache-2.0

package health

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"net/netip"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// spec is a check as configured; equal ones are one spec.
type spec struct {
	check lb.Check
	// requestHash is a hash of the check's request, without its times.
	requestHash uint64
}

// interner finds the spec of a check, and the way. Services usually share the parts that pointers
// of a check lead to: these are written out once. Backends of a service usually have the same list
// of checks: its specs are looked for once. It stays from one call of Amend to the next.
type interner struct {
	// list and its, and seen, are of one call: the checks and what they point to are the caller's.
	list  []lb.Check
	its   []*spec
	seen  map[lb.Check]*spec
	all   map[string]*spec
	paths map[checkPath]*checkPath
	// made counts the specs and paths that it was the first to meet: nothing may want them any more.
	made int
}

// mostIdle is how many specs and paths may be known beyond the number of targets that nothing wants any more.
const mostIdle = 1024

// newInterner returns an interner that knows the specs and paths of the targets.
func newInterner(targets map[targetKey]*target) *interner {
	in := &interner{seen: map[lb.Check]*spec{}, all: map[string]*spec{}, paths: map[checkPath]*checkPath{}}
	known := map[*spec]struct{}{}
	for key := range targets {
		if _, ok := known[key.spec]; !ok {
			known[key.spec] = struct{}{}
			in.all[write(key.spec.check)] = key.spec
		}
		if key.by != nil {
			in.paths[*key.by] = key.by
		}
	}
	return in
}

// forgetLists ends a call.
func (in *interner) forgetLists() {
	in.list, in.its = nil, nil
	clear(in.seen)
}

func (in *interner) path(w checkPath) *checkPath {
	known := in.paths[w]
	if known == nil {
		known = &w
		in.paths[w] = known
		in.made++
	}
	return known
}

// specs returns the specs of a list of checks.
func (in *interner) specs(list []lb.Check) []*spec {
	if len(list) == 0 {
		return nil
	}
	if len(in.list) == len(list) && &in.list[0] == &list[0] {
		return in.its
	}
	in.list, in.its = list, make([]*spec, len(list))
	for i, check := range list {
		in.its[i] = in.spec(check)
	}
	return in.its
}

func (in *interner) spec(check lb.Check) *spec {
	if s := in.seen[check]; s != nil {
		return s
	}
	text := write(check)
	s := in.all[text]
	if s == nil {
		asked := check
		asked.Interval, asked.Fast, asked.Timeout, asked.Delay, asked.Jitter, asked.Rise, asked.Fall = 0, 0,
			0, 0, 0, 0, 0
		s = &spec{check: check, requestHash: hash(write(asked))}
		in.all[text] = s
		in.made++
	}
	in.seen[check] = s
	return s
}

// write returns the check as text that is equal for equal checks.
func write(check lb.Check) string {
	text, err := json.Marshal(check)
	if err != nil { // cannot be: a check has neither channels nor cycles
		return fmt.Sprintf("%+v", check)
	}
	return string(text)
}

// targetKey is the identity of a target: whatever shares it shares its checks.
type targetKey struct {
	spec    *spec
	backend netip.Addr
	port    uint16
	// by is the path with lb.ViaVIP, and nil with lb.ViaAddress. Equal paths have one pointer.
	by *checkPath
}

// checkPath is the path to a backend by the VIP: that of a mode, or, where it is not known, of a service.
type checkPath struct {
	service lb.ServiceKey
	mode    lb.Mode
}

// target is an endpoint that is asked, with its check and its state.
type target struct {
	key     targetKey
	watches []*watch
	id      uint64 // equal after a restart, and whatever the schedule
	seen    uint64 // the last call of Watch or Amend that named it

	// due is when its turn is, counted from the engine's start, and next that with the jitter;
	// place is its place in the queue, -1 while it is asked.
	due           time.Duration
	next          time.Duration
	queueIndex    int
	ratedInterval time.Duration
	gone          bool
	// extra is the time that a check may take beyond its timeout: see evaluateSilence.
	extra time.Duration
	// uncheckedFor is for how long the endpoint was not asked before this process, until answers have borne its state
	// out, or changed it; 0: they have, or it was not for longer than the interval. confirmChecksLeft is how many
	// checks may still hurry for that.
	uncheckedFor      time.Duration
	confirmChecksLeft uint32

	machine
	since  time.Time // when the state began
	last   time.Time
	took   time.Duration
	text   string
	reason string
	selfReport
	// unannounced counts the failed checks in a row that were not Finishing.
	unannounced uint32
}

// setFinishing updates whether the target is finishing, and reports whether that has changed. As many other failures
// end it as make a verdict: the answer to one check may be lost.
func (t *target) setFinishing(answer Answer) bool {
	before := t.finishing
	if answer.Outcome == Passed || answer.Finishing {
		t.finishing, t.unannounced = answer.Finishing, 0
	} else if t.unannounced++; t.unannounced >= t.fall() {
		t.finishing = false
	}
	return t.finishing != before
}

// selfReport is a backend's report about itself, by its agent or in its answers.
type selfReport struct {
	// weight is the share of its weight that it asks for, in per cent, and reported the weight that it names instead of
	// the configured one.
	weight   uint16
	reported lb.ReportedWeight
	// drain: it asks for no new flow.
	drain bool
	// finishing: see Answer.Finishing.
	finishing bool
}

// key returns the target's key for a check of a backend.
func (in *interner) key(wanted *Wanted, check *spec) targetKey {
	key := targetKey{spec: check, backend: wanted.Backend.Address, port: check.check.Port}
	if key.port == 0 {
		key.port = wanted.Backend.Port
	}
	if key.port == 0 {
		key.port = wanted.Backend.Service.Port
	}
	switch {
	case check.check.Via != lb.ViaVIP:
	case wanted.Mode != "":
		key.by = in.path(checkPath{service: lb.ServiceKey{VIP: wanted.Backend.Service.VIP}, mode: wanted.Mode})
	default:
		key.by = in.path(checkPath{service: wanted.Backend.Service})
	}
	return key
}

// endpoint returns the destination of the check; by the VIP, backend is one of those that share it.
func (k targetKey) endpoint(backend lb.BackendKey) Endpoint {
	if k.by == nil {
		return Endpoint{Via: lb.ViaAddress, Address: k.backend, Port: k.port}
	}
	return Endpoint{Via: lb.ViaVIP, Backend: backend, Address: backend.Service.VIP, Port: k.port}
}

// endpoint returns the destination of the check. Of the backends that share the target one is as good as any.
func (t *target) endpoint() Endpoint { return t.key.endpoint(t.watches[0].backend) }

// identify returns a key of the target that outlives restarts and changes of its schedule.
func (k targetKey) identify() uint64 {
	text := fmt.Sprintf("%x %s %d", k.spec.requestHash, k.backend, k.port)
	if k.by != nil {
		text += fmt.Sprintf(" %s %s", k.by.service, k.by.mode)
	}
	return hash(text)
}

// slot returns the first time not before from at which the target is due: all of these are the
// interval apart, and where they begin is spread over the interval by the target's identity.
func (t *target) slot(from time.Duration) time.Duration {
	interval := t.key.spec.check.Interval
	phase := time.Duration(t.id % uint64(interval))
	if from <= phase {
		return phase
	}
	return phase + (from-phase+interval-1)/interval*interval
}

// rises and falls are at least 1.
func (t *target) rise() uint32 { return max(1, uint32(t.key.spec.check.Rise)) }
func (t *target) fall() uint32 { return max(1, uint32(t.key.spec.check.Fall)) }

// pace is the time from a check's start to the next one's.
func (t *target) pace() time.Duration {
	check := &t.key.spec.check
	if check.Fast > 0 && t.doubtful() {
		return min(check.Fast, check.Interval)
	}
	return check.Interval
}

// hash is FNV-1a with the finalizer of SplitMix64, without which similar texts lie close together.
func hash(text string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(text))
	x := h.Sum64()
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// watch is a backend that is watched, and the verdict that was given last.
type watch struct {
	backend lb.BackendKey
	targets []*target
	any     bool
	// seen is the last call of Watch or Amend that named it, and other the last one that had something else asked of it
	// or ended it; gone: it was ended.
	seen, other uint64
	gone        bool

	state State
	since time.Time
	selfReport
	// unconfirmed: see Verdict.Unconfirmed.
	unconfirmed bool
	// previous is the reason for the state when Watch asked for other checks: it stands for as long
	// as the state does and none of these gives it one.
	previous string
}

// targetState is the state of a target that is kept while it is not asked, or over a restart.
type targetState struct {
	State  State     `json:"state"`
	Since  time.Time `json:"since"`
	Last   time.Time `json:"last"`
	Text   string    `json:"answer,omitempty"`
	Reason string    `json:"reason,omitempty"`
	Weight uint16    `json:"weight"`
	Drain  bool      `json:"drain,omitempty"`
	// Reported is the weight that it named; absent: none.
	Reported lb.ReportedWeight `json:"reported_weight,omitzero"`
	// Finishing: see Answer.
	Finishing bool `json:"finishing,omitempty"`
	// Unasked is for how long it was not asked, where no conclusive answer has come since.
	Unasked time.Duration `json:"unasked_ns,omitempty"`
}
