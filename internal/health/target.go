// SPDX-License-Identifier: Apache-2.0

package health

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"net/netip"
	"time"

	"github.com/jeoul/jeoul/internal/lb"
)

// spec is a check as configured; equal ones are one spec.
type spec struct {
	check lb.Check
	// ask is the part of the check that says what is asked, not when.
	ask uint64
}

// interner finds the spec of a check. Services usually share the parts that pointers of a check
// lead to: these are written out once.
type interner struct {
	seen map[lb.Check]*spec
	all  map[string]*spec
}

func newInterner(old map[*spec]struct{}) *interner {
	in := &interner{seen: map[lb.Check]*spec{}, all: map[string]*spec{}}
	for s := range old {
		in.all[write(s.check)] = s
	}
	return in
}

func (in *interner) spec(check lb.Check) *spec {
	if s := in.seen[check]; s != nil {
		return s
	}
	text := write(check)
	s := in.all[text]
	if s == nil {
		asked := check
		asked.Interval, asked.Fast, asked.Timeout, asked.Delay, asked.Jitter, asked.Rise, asked.Fall = 0, 0, 0, 0, 0, 0, 0
		s = &spec{check: check, ask: hash(write(asked))}
		in.all[text] = s
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
	// by says which way is taken with lb.ViaVIP, and is empty with lb.ViaAddress.
	by way
}

// way is the way to a backend by the VIP: that of a mode, or, where it is not known, of a service.
type way struct {
	service lb.ServiceKey
	mode    lb.Mode
}

// target is an endpoint that is asked, and what it answered.
type target struct {
	key      targetKey
	endpoint Endpoint
	watches  []*watch
	id       uint64 // equal after a restart, and whatever the schedule
	seen     uint64 // the last call of Watch that wanted it

	// due is when its turn is, counted from the engine's start, and next that with the jitter;
	// place is its place in the queue, -1 while it is asked.
	due     time.Duration
	next    time.Duration
	place   int
	spacing time.Duration
	gone    bool

	machine
	since  time.Time // when the state began
	last   time.Time
	took   time.Duration
	text   string
	reason string
	weight uint16
	drain  bool
}

// newTarget returns the key and the endpoint of a check of a backend.
func newTarget(wanted Wanted, s *spec) (targetKey, Endpoint) {
	key := targetKey{spec: s, backend: wanted.Backend.Address, port: s.check.Port}
	if key.port == 0 {
		key.port = wanted.Backend.Port
	}
	if key.port == 0 {
		key.port = wanted.Backend.Service.Port
	}
	if s.check.Via != lb.ViaVIP {
		return key, Endpoint{Via: lb.ViaAddress, Address: wanted.Backend.Address, Port: key.port}
	}
	if key.by.service = wanted.Backend.Service; wanted.Mode != "" {
		key.by = way{service: lb.ServiceKey{VIP: wanted.Backend.Service.VIP}, mode: wanted.Mode}
	}
	return key, Endpoint{Via: lb.ViaVIP, Backend: wanted.Backend, Address: wanted.Backend.Service.VIP, Port: key.port}
}

// identify returns what names the target over restarts and changes of its schedule.
func (k targetKey) identify() uint64 {
	return hash(fmt.Sprintf("%x %s %d %s %s", k.spec.ask, k.backend, k.port, k.by.service, k.by.mode))
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
