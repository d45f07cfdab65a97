// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// MaxTimeout bounds a timeout: the data plane's clock counts milliseconds in 32 bits,
// and half of what it counts is the past.
const MaxTimeout = 20 * 24 * time.Hour

// timeoutsByState returns timeouts by enum flow_state, in milliseconds.
func timeoutsByState(t lb.Timeouts) (ms [256]uint32) {
	for state, timeout := range map[objects.XDPFlowState]time.Duration{
		objects.XDPFlowStateFLOW_OPENING:      t.Opening,
		objects.XDPFlowStateFLOW_SEEN:         t.Opening,
		objects.XDPFlowStateFLOW_AFFINITY_NEW: t.Opening,
		objects.XDPFlowStateFLOW_FIRST:        t.First,
		objects.XDPFlowStateFLOW_ESTABLISHED:  t.Established,
		objects.XDPFlowStateFLOW_CONTESTED:    t.Established,
		objects.XDPFlowStateFLOW_UDP:          t.UDP,
		objects.XDPFlowStateFLOW_CLIENT_FIN:   t.Fin,
		objects.XDPFlowStateFLOW_BACKEND_FIN:  t.Fin,
		objects.XDPFlowStateFLOW_CLOSED:       t.Closed,
		objects.XDPFlowStateFLOW_REFUSED:      t.Closed,
		objects.XDPFlowStateFLOW_TIME_WAIT:    t.Closed,
	} {
		ms[state] = milliseconds(timeout)
	}
	return ms
}

func milliseconds(d time.Duration) uint32 { return uint32(min(d, MaxTimeout).Milliseconds()) }

// The janitor does a little often: what it does in one step is short, however many
// flows there are.
const (
	stepEvery = 200 * time.Millisecond
	// longestStep is how far a step moves the clock at most. What a process that was
	// held up did not see was not silence.
	longestStep = time.Second
	// newcomersEvery and flowsEvery are how long a walk over a table takes: unproven
	// flows come and go.
	newcomersEvery = time.Second
	flowsEvery     = 5 * time.Second
	returnsEvery   = 30 * time.Second
)

// janitor tells packets the time, forgets flows that have been silent for too long, or
// whose backend or service has left, and counts the others. It has a lock of its own:
// time passes while a configuration is being made.
type janitor struct {
	mu    sync.Mutex
	scene flowScene
	rules flowRules
	// monotonic is the clock that steps go by.
	monotonic func() time.Duration
	// time is what the clock shows, and began what it showed when this process went on with the flows of another, or after it was held up; 0: neither.
	time, began time.Duration
	// stood is when the clock stood still.
	stood pauses
	// stepped is when the last step was; stepping says that there was one.
	stepped  time.Duration
	stepping bool
	// The walks over the two tables.
	flows, newcomers round
	// nextReturn is the bucket of the returns that is looked at next.
	nextReturn int
	drift      drift
	// frozen: flows are being moved to other tables, and nothing is forgotten.
	frozen bool
	// penalised: backends have refused connections, and it weighs on them.
	penalised bool
	// uncounted: what is active has been counted in other memory; the next scene counts it anew.
	uncounted bool
	// relieved is when their penalties were last made less.
	relieved time.Duration
}

// flowScene is where the janitor works: what of the data plane's memory and of the
// configuration it must know.
type flowScene struct {
	// head is that of the memory in use.
	head             *objects.XDPHead
	flows, newcomers *flowTable
	// returns is nil where no service is of full NAT.
	returns  *returnTable
	backends []flowBackend
	services []flowService
	// groups are how long the clients of each are remembered, in milliseconds, by id.
	groups map[uint32]uint32
	loads  []objects.XDPBackendLoad
	turns  []objects.XDPTurn
	// sockets are what sockets of this host have of it; nil where there are none.
	sockets *ebpf.Map
	// others are as in flowRules.
	own [2][]bool
}

func newJanitor(timeouts lb.Timeouts) *janitor {
	return &janitor{
		rules:     flowRules{timeouts: timeoutsByState(timeouts.WithDefaults())},
		monotonic: monotonic,
		time:      longestStep,
		flows:     round{lasts: flowsEvery},
		newcomers: round{lasts: newcomersEvery},
	}
}

// use tells the janitor of a change. When it returns, only packets still read or write
// the memory of before. What is active is counted anew where it was counted by other
// rules, or in other memory: of services that begin or cease to be tracked, and of all
// where something was copied while packets went on.
func (j *janitor) use(scene flowScene) {
	j.mu.Lock()
	defer j.mu.Unlock()
	anew := j.compare(scene)
	if scene.flows != j.scene.flows {
		j.flows.next = 0
	}
	if scene.newcomers != j.scene.newcomers {
		j.newcomers.next = 0
	}
	if scene.returns != j.scene.returns {
		j.nextReturn = 0
	}
	j.scene, j.frozen, j.penalised = scene, false, true
	j.wake()
	j.rules.backends, j.rules.services, j.rules.groups = scene.backends, scene.services, scene.groups
	j.rules.loads, j.rules.turns, j.rules.pooled, j.rules.own = scene.loads, scene.turns, scene.returns != nil, scene.own
	j.show()
	if len(anew) > 0 {
		j.recount(anew)
	}
	j.uncounted = false
}

// compare returns the services whose active flows are to be counted anew in the next
// scene, and tells that of those that are gone whether they were tracked.
func (j *janitor) compare(next flowScene) map[uint32]bool {
	anew := map[uint32]bool{}
	moved := next.flows != j.scene.flows || next.newcomers != j.scene.newcomers ||
		unsafe.SliceData(next.loads) != unsafe.SliceData(j.scene.loads) ||
		unsafe.SliceData(next.turns) != unsafe.SliceData(j.scene.turns)
	for id := range next.services {
		if j.uncounted && next.services[id].tracked {
			anew[uint32(id)] = true
		}
		if id >= len(j.rules.services) {
			continue
		}
		was, is := j.rules.services[id], &next.services[id]
		switch {
		case !is.present:
			is.tracked = was.tracked
		case was.present && (was.tracked != is.tracked || moved && is.tracked):
			anew[uint32(id)] = true
		}
	}
	return anew
}

// leave makes the janitor let go of all memory.
func (j *janitor) leave() { j.use(flowScene{}) }

// freeze keeps what is remembered as it is, but for what packets do, until use.
func (j *janitor) freeze(frozen bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.frozen = frozen
}

// now is what the clock shows, in milliseconds: a generation's clock begins with it.
func (j *janitor) now() uint32 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.clock()
}

func (j *janitor) clock() uint32 { return uint32(j.time.Milliseconds()) }

// show tells packets the time.
func (j *janitor) show() {
	if j.scene.head != nil {
		atomic.StoreUint32(&j.scene.head.Clock, j.clock())
	}
}

// step does what is due at a time of the monotonic clock. It says whether both tables
// have been walked over once more.
func (j *janitor) step(now time.Duration) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.noteHeldUp(now)
	if j.stepping {
		j.time += min(max(now-j.stepped, 0), longestStep)
	}
	j.stepped, j.stepping = now, true
	j.show()
	if j.scene.head != nil {
		atomic.StoreUint64(&j.scene.head.Moved, uint64(now))
	}
	j.relieve()
	if j.scene.flows == nil || j.frozen {
		return false
	}
	if atomic.SwapUint32(&j.scene.head.Remembered, 0) != 0 {
		j.wake()
	}
	j.stepReturns(int(returnsEvery / stepEvery))
	j.newcomers.step(&j.rules, j.scene.newcomers, j.clock())
	if !j.flows.step(&j.rules, j.scene.flows, j.clock()) {
		return false
	}
	j.settle()
	return true
}

// wake has both tables walked over again: something may be in them.
func (j *janitor) wake() {
	j.flows.wake()
	j.newcomers.wake()
}

// stepReturns goes on with the returns, so that a round takes so many steps.
func (j *janitor) stepReturns(steps int) {
	if j.scene.returns == nil {
		return
	}
	all := len(j.scene.returns.buckets)
	end := min(j.nextReturn+(all+steps-1)/steps, all)
	j.scene.walkReturns(j.nextReturn, end)
	if j.nextReturn = end; end == all {
		j.nextReturn = 0
	}
}

// pass lets time pass, and walks over all tables at once.
func (j *janitor) pass(by time.Duration) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.time += by
	j.show()
	j.relieve()
	if j.scene.flows == nil {
		return
	}
	j.wake()
	j.newcomers.whole(&j.rules, j.scene.newcomers, j.clock())
	j.flows.whole(&j.rules, j.scene.flows, j.clock())
	j.nextReturn = 0
	j.stepReturns(1)
	j.settle()
}

// round is a walk over a table, a slice at each step.
type round struct {
	// lasts is how long one takes.
	lasts time.Duration
	// next is the bucket that it goes on with.
	next int
	// under is what this round has met so far, and last what the last whole one met.
	under, last flowTally
	// empty is how many whole rounds have met nothing, one after the other; woken says that
	// something was put into the table since this one began.
	empty int
	woken bool
}

// emptyRounds are those after which the janitor does not walk a table until something is put
// into it. One would do, were there not programs that have just been replaced: they note the
// flow that they are putting in where the janitor does not look any more.
const emptyRounds = 2

func (w *round) idle() bool { return w.empty >= emptyRounds }

func (w *round) wake() { w.empty, w.woken = 0, true }

// step goes on for a slice, and says whether that was the last one.
func (w *round) step(rules *flowRules, t *flowTable, clock uint32) bool {
	steps := int(w.lasts / stepEvery)
	return w.walk(rules, t, clock, (len(t.buckets)+steps-1)/steps)
}

// whole makes a whole round.
func (w *round) whole(rules *flowRules, t *flowTable, clock uint32) {
	w.next = 0
	w.walk(rules, t, clock, len(t.buckets))
}

func (w *round) walk(rules *flowRules, t *flowTable, clock uint32, buckets int) bool {
	if w.next == 0 {
		w.under.reset()
		w.woken = false
	}
	w.under.fit(rules)
	end := min(w.next+buckets, len(t.buckets))
	if !w.idle() {
		rules.walk(t, w.next, end, clock, &w.under)
	}
	if w.next = end; end < len(t.buckets) {
		return false
	}
	w.next = 0
	if w.woken || w.under.entries+w.under.expired > 0 {
		w.empty = 0
	} else {
		w.empty++
	}
	w.under, w.last = w.last, w.under
	return true
}

// flowsOf returns how many entries the last round has found by service id; services
// without any are not in it.
func (j *janitor) flowsOf() map[uint32]uint64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	of := map[uint32]uint64{}
	for _, tally := range []*flowTally{&j.flows.last, &j.newcomers.last} {
		for id, n := range tally.services {
			if n != 0 {
				of[uint32(id)] += uint64(n.entries())
			}
		}
	}
	return of
}

// monotonic is the clock that the data plane notes times by.
func monotonic() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return 0
	}
	return time.Duration(now.Nano())
}

// timeouts are how long entries may be silent, by state, in milliseconds. They are not changed.
func (j *janitor) timeouts() *[256]uint32 { return &j.rules.timeouts }
