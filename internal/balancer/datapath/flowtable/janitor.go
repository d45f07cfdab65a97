// SPDX-License-Identifier: Apache-2.0

package flowtable

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

// MaxTimeout bounds a timeout: the data plane's clock counts milliseconds in 32 bits, of which half are the past.
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
		ms[state] = Milliseconds(timeout)
	}
	return ms
}

// Milliseconds returns a timeout in milliseconds, at most MaxTimeout.
func Milliseconds(d time.Duration) uint32 { return uint32(min(d, MaxTimeout).Milliseconds()) }

// The janitor does a little often: a step is short, however many flows there are.
const (
	StepEvery = 200 * time.Millisecond
	// maxStep is how far a step moves the clock at most. Time in which the process was held up does not count as
	// silence of flows.
	maxStep = time.Second
	// NewcomersEvery and flowsEvery are how long a walk over a table takes: unproven
	// flows come and go.
	NewcomersEvery = time.Second
	flowsEvery     = 5 * time.Second
	returnsEvery   = 30 * time.Second
)

// Janitor advances the clock that packets read, forgets flows that have been silent for too long, or
// whose backend or service has left, and counts the others. It has a lock of its own:
// time passes while a configuration is being made.
type Janitor struct {
	mu    sync.Mutex
	Input JanitorInput
	Rules Rules
	// Monotonic is the clock that steps go by.
	Monotonic func() time.Duration
	// time is the clock's time, and began the time at which this process took over the flows of another, or went on
	// after it was held up; 0: neither.
	time, began time.Duration
	// clockGaps are the gaps in which the clock stood still.
	clockGaps ClockGaps
	// stepped is when the last step was; stepping says that there was one.
	stepped  time.Duration
	Stepping bool
	// The walks over the two tables.
	flows, Newcomers round
	// nextReturn is the bucket of the returns that is looked at next.
	nextReturn int
	Drift      drift
	// frozen: flows are being moved to other tables, and nothing is forgotten.
	frozen bool
	// hasPenalties: some backends have a penalty, because they have refused connections.
	hasPenalties bool
	// Uncounted: active flows were counted in other memory; the next input counts them again.
	Uncounted bool
	// lastDecay is when their penalties were last made less.
	lastDecay time.Duration
}

// JanitorInput has the parts of the data plane's memory and of the configuration that the janitor works on.
type JanitorInput struct {
	// Head is that of the memory in use.
	Head             *objects.XDPHead
	Flows, Newcomers *Table
	// Returns is nil where no service is of full NAT.
	Returns  *ReturnTable
	Backends []Backend
	Services []Service
	// Groups are how long the clients of each are remembered, in milliseconds, by id.
	Groups map[uint32]uint32
	Loads  []objects.XDPBackendLoad
	Turns  []objects.XDPTurn
	// Sockets is the map of the backends that sockets of this host have; nil where there is none.
	Sockets *ebpf.Map
	// Own is Rules.own.
	Own [2][]bool
}

// NewJanitor returns a janitor without tables: Use gives it some.
func NewJanitor(timeouts lb.Timeouts) *Janitor {
	return &Janitor{
		Rules:     Rules{timeouts: timeoutsByState(timeouts.WithDefaults())},
		Monotonic: Monotonic,
		time:      maxStep,
		flows:     round{duration: flowsEvery},
		Newcomers: round{duration: NewcomersEvery},
	}
}

// SetInput gives the janitor the input after a change. When it returns, only packets still read or write the previous
// memory. Active flows are counted again where they were counted by other rules, or in other memory: those of services
// that begin or cease to be tracked, and all where flows were copied while packets went on.
func (j *Janitor) SetInput(input JanitorInput) {
	j.mu.Lock()
	defer j.mu.Unlock()
	recount := j.compare(input)
	if input.Flows != j.Input.Flows {
		j.flows.next = 0
	}
	if input.Newcomers != j.Input.Newcomers {
		j.Newcomers.next = 0
	}
	if input.Returns != j.Input.Returns {
		j.nextReturn = 0
	}
	j.Input, j.frozen, j.hasPenalties = input, false, true
	j.wake()
	j.Rules.backends, j.Rules.services, j.Rules.groups = input.Backends, input.Services, input.Groups
	j.Rules.Loads, j.Rules.Turns, j.Rules.pooled, j.Rules.own = input.Loads, input.Turns,
		input.Returns != nil, input.Own
	j.publishClock()
	if len(recount) > 0 {
		j.recount(recount)
	}
	j.Uncounted = false
}

// compare returns the services whose active flows are to be counted again in the next input, and tells that of those
// that are gone whether they were tracked.
func (j *Janitor) compare(next JanitorInput) map[uint32]bool {
	recount := map[uint32]bool{}
	moved := next.Flows != j.Input.Flows || next.Newcomers != j.Input.Newcomers ||
		unsafe.SliceData(next.Loads) != unsafe.SliceData(j.Input.Loads) ||
		unsafe.SliceData(next.Turns) != unsafe.SliceData(j.Input.Turns)
	for id := range next.Services {
		if j.Uncounted && next.Services[id].Tracked {
			recount[uint32(id)] = true
		}
		if id >= len(j.Rules.services) {
			continue
		}
		was, is := j.Rules.services[id], &next.Services[id]
		switch {
		case !is.Present:
			is.Tracked = was.Tracked
		case was.Present && (was.Tracked != is.Tracked || moved && is.Tracked):
			recount[uint32(id)] = true
		}
	}
	return recount
}

// Leave makes the janitor release all memory.
func (j *Janitor) Leave() { j.SetInput(JanitorInput{}) }

// Freeze stops the expiry of flows until Use; packets still change them.
func (j *Janitor) Freeze(frozen bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.frozen = frozen
}

// Now is the clock's time, in milliseconds: a generation's clock begins with it.
func (j *Janitor) Now() uint32 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.clock()
}

func (j *Janitor) clock() uint32 { return uint32(j.time.Milliseconds()) }

// publishClock writes the time into memory that packets read.
func (j *Janitor) publishClock() {
	if j.Input.Head != nil {
		atomic.StoreUint32(&j.Input.Head.Clock, j.clock())
	}
}

// Tick moves the clock by a step, and does nothing else that is due then.
func (j *Janitor) Tick() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.time += StepEvery
	j.publishClock()
}

// Step does the work that is due at a time of the monotonic clock. It reports whether both tables have been walked over
// once more.
func (j *Janitor) Step(now time.Duration) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.noteStall(now)
	if j.Stepping {
		j.time += min(max(now-j.stepped, 0), maxStep)
	}
	j.stepped, j.Stepping = now, true
	j.publishClock()
	if j.Input.Head != nil {
		atomic.StoreUint64(&j.Input.Head.Moved, uint64(now))
	}
	j.decayPenalties()
	if j.Input.Flows == nil || j.frozen {
		return false
	}
	if atomic.SwapUint32(&j.Input.Head.Remembered, 0) != 0 {
		j.wake()
	}
	j.stepReturns(int(returnsEvery / StepEvery))
	j.Newcomers.step(&j.Rules, j.Input.Newcomers, j.clock())
	if !j.flows.step(&j.Rules, j.Input.Flows, j.clock()) {
		return false
	}
	j.reconcileCounts()
	return true
}

// wake makes the janitor walk both tables again: there may be entries in them.
func (j *Janitor) wake() {
	j.flows.wake()
	j.Newcomers.wake()
}

// stepReturns goes on with the returns, so that a round takes so many steps.
func (j *Janitor) stepReturns(steps int) {
	if j.Input.Returns == nil {
		return
	}
	all := len(j.Input.Returns.Buckets)
	end := min(j.nextReturn+(all+steps-1)/steps, all)
	j.Input.walkReturns(j.nextReturn, end)
	if j.nextReturn = end; end == all {
		j.nextReturn = 0
	}
}

// Advance lets time pass, and walks over all tables at once.
func (j *Janitor) Advance(by time.Duration) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.time += by
	j.publishClock()
	j.decayPenalties()
	if j.Input.Flows == nil {
		return
	}
	j.wake()
	j.Newcomers.runWhole(&j.Rules, j.Input.Newcomers, j.clock())
	j.flows.runWhole(&j.Rules, j.Input.Flows, j.clock())
	j.nextReturn = 0
	j.stepReturns(1)
	j.reconcileCounts()
}

// round is a walk over a table, a slice at each step.
type round struct {
	// duration is how long one takes.
	duration time.Duration
	// next is the bucket that it goes on with.
	next int
	// current is the tally of this round so far, and Last that of the last whole one.
	current, Last Tally
	// empty counts the whole rounds in a row that have met no entry; woken says that an entry was made since this one
	// began.
	empty int
	woken bool
}

// emptyRounds is the number of rounds in a row without an entry after which the janitor does not walk a table until an
// entry is made. One would do, were there not programs that have just been replaced: they note the entries that they
// are making in memory that the janitor does not read any more.
const emptyRounds = 2

func (w *round) idle() bool { return w.empty >= emptyRounds }

func (w *round) wake() { w.empty, w.woken = 0, true }

// step goes on for a slice, and reports whether that was the last one.
func (w *round) step(rules *Rules, t *Table, clock uint32) bool {
	steps := int(w.duration / StepEvery)
	return w.walk(rules, t, clock, (len(t.Buckets)+steps-1)/steps)
}

// runWhole makes a whole round.
func (w *round) runWhole(rules *Rules, t *Table, clock uint32) {
	w.next = 0
	w.walk(rules, t, clock, len(t.Buckets))
}

func (w *round) walk(rules *Rules, t *Table, clock uint32, buckets int) bool {
	if w.next == 0 {
		w.current.reset()
		w.woken = false
	}
	w.current.resize(rules)
	end := min(w.next+buckets, len(t.Buckets))
	if !w.idle() {
		rules.walk(t, w.next, end, clock, &w.current)
	}
	if w.next = end; end < len(t.Buckets) {
		return false
	}
	w.next = 0
	if w.woken || w.current.entries+w.current.Expired > 0 {
		w.empty = 0
	} else {
		w.empty++
	}
	w.current, w.Last = w.Last, w.current
	return true
}

// FlowsOf returns how many entries the last round has found by service id; services
// without any are not in it.
func (j *Janitor) FlowsOf() map[uint32]uint64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	of := map[uint32]uint64{}
	for _, tally := range []*Tally{&j.flows.Last, &j.Newcomers.Last} {
		for id, n := range tally.services {
			if n != 0 {
				of[uint32(id)] += uint64(n.entries())
			}
		}
	}
	return of
}

// Monotonic is the clock that the data plane notes times by.
func Monotonic() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return 0
	}
	return time.Duration(now.Nano())
}

// MonotonicZero is when that clock was 0, by the clock that a person knows.
func MonotonicZero() time.Time { return time.Now().Round(0).Add(-Monotonic()) }

// Timeouts are how long entries may be silent, by state, in milliseconds. They are not changed.
func (j *Janitor) Timeouts() *[256]uint32 { return &j.Rules.timeouts }
