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

// The janitor works in short, frequent steps, however many flows there are.
const (
	StepEvery = 200 * time.Millisecond
	// maxStep is how far a step advances the clock at most: flows do not count as idle while the process stalls.
	maxStep = time.Second
	// NewcomersEvery and flowsEvery are how long a walk over a table takes: unproven flows are short-lived.
	NewcomersEvery = time.Second
	flowsEvery     = 5 * time.Second
	returnsEvery   = 30 * time.Second
)

// Janitor advances the clock that packets read, expires flows that were idle for too long or whose backend or service
// was removed, and counts the others. It has its own lock, so that flows expire while a configuration is compiled.
type Janitor struct {
	mu    sync.Mutex
	Input JanitorInput
	Rules Rules
	// Monotonic is the clock of the steps.
	Monotonic func() time.Duration
	// tallySockets counts the entries of Input.Sockets, and sockets is the last result.
	tallySockets func(known *ebpf.Map) (socketTally, error)
	sockets      socketTally
	// time is the clock's time, and began the time at which this process took over the flows of another, or continued
	// after a stall; 0: neither.
	time, began time.Duration
	// clockGaps are the times at which the clock was stopped.
	clockGaps ClockGaps
	// stepped is when the last step was; stepping says that there was one.
	stepped  time.Duration
	Stepping bool
	// The walks over the two tables.
	flows, Newcomers round
	// nextReturn is the next bucket of the walk over the return entries.
	nextReturn int
	Drift      drift
	// frozen: flows are being moved to other tables, and none expires.
	frozen bool
	// hasPenalties: some backends have a penalty, because they have refused connections.
	hasPenalties bool
	// Uncounted: active flows were counted in other memory; the next input counts them again.
	Uncounted bool
	// lastDecay is when penalties were last lowered.
	lastDecay time.Duration
}

// JanitorInput has the parts of the data plane's memory and of the configuration that the janitor works on.
type JanitorInput struct {
	// Head is the header of the memory in use.
	Head             *objects.XDPHead
	Flows, Newcomers *Table
	// Returns is nil where no service uses full NAT.
	Returns  *ReturnTable
	Backends []Backend
	Services []Service
	// Groups has for how long each group's clients are remembered, in milliseconds, by id.
	Groups map[uint32]uint32
	Loads  []objects.XDPBackendLoad
	Turns  []objects.XDPTurn
	// Sockets is the map of the backends that sockets of this host have; nil where there is none.
	Sockets *ebpf.Map
	// Own: see Rules.own.
	Own [2][]bool
}

// NewJanitor returns a janitor without tables: see SetInput.
func NewJanitor(timeouts lb.Timeouts) *Janitor {
	return &Janitor{
		Rules:        Rules{timeouts: timeoutsByState(timeouts.WithDefaults())},
		Monotonic:    Monotonic,
		tallySockets: TallySockets,
		time:         maxStep,
		flows:        round{duration: flowsEvery},
		Newcomers:    round{duration: NewcomersEvery},
	}
}

// SetInput gives the janitor the input after a change. When it returns, only packets still read or write the previous
// memory. Active flows are counted again where other rules or other memory applied before: those of services whose
// tracking begins or ends, and all where flows were copied while packets arrived.
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

// compare returns the services whose active flows are to be counted again with the next input, and copies into that
// whether removed services were tracked.
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
		old, current := j.Rules.services[id], &next.Services[id]
		switch {
		case !current.Present:
			current.Tracked = old.Tracked
		case old.Present && (old.Tracked != current.Tracked || moved && current.Tracked):
			recount[uint32(id)] = true
		}
	}
	return recount
}

// Stop makes the janitor release all memory.
func (j *Janitor) Stop() { j.SetInput(JanitorInput{}) }

// Freeze stops the expiry of flows until SetInput, or resumes it; packets still change flows.
func (j *Janitor) Freeze(frozen bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.frozen = frozen
}

// Now returns the clock's time, in milliseconds, at which the clock of a new generation starts.
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

// Tick advances the clock by a step, without the other work of a step.
func (j *Janitor) Tick() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.time += StepEvery
	j.publishClock()
}

// Step does the work that is due at a time of the monotonic clock. It reports whether a round over both tables is
// complete.
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

// stepReturns walks over the next return entries, such that a round takes that many steps.
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

// Advance advances the clock, and walks over all tables at once.
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
	j.Newcomers.runComplete(&j.Rules, j.Input.Newcomers, j.clock())
	j.flows.runComplete(&j.Rules, j.Input.Flows, j.clock())
	j.nextReturn = 0
	j.stepReturns(1)
	j.reconcileCounts()
}

// round is a walk over a table, a part at each step.
type round struct {
	// duration is how long a round takes.
	duration time.Duration
	// next is the next bucket.
	next int
	// current is the tally of this round so far, and Last that of the last complete round.
	current, Last Tally
	// empty counts the consecutive complete rounds that found no entry; woken says that an entry was created since this
	// round began.
	empty int
	woken bool
}

// emptyRounds is the number of consecutive rounds without an entry after which the janitor does not walk a table until
// an entry is created. One is not enough, because programs that were just replaced announce their last entries in
// memory that the janitor no longer reads.
const emptyRounds = 2

func (w *round) idle() bool { return w.empty >= emptyRounds }

func (w *round) wake() { w.empty, w.woken = 0, true }

// step walks over the next part, and reports whether it was the last one.
func (w *round) step(rules *Rules, t *Table, clock uint32) bool {
	steps := int(w.duration / StepEvery)
	return w.walk(rules, t, clock, (len(t.Buckets)+steps-1)/steps)
}

// runComplete runs a complete round.
func (w *round) runComplete(rules *Rules, t *Table, clock uint32) {
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

// FlowsOf returns how many entries the last round found, by service id; services without entries are not in the map.
func (j *Janitor) FlowsOf() map[uint32]uint64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	counts := map[uint32]uint64{}
	for _, tally := range []*Tally{&j.flows.Last, &j.Newcomers.Last} {
		for id, n := range tally.services {
			if n != 0 {
				counts[uint32(id)] += uint64(n.entries())
			}
		}
	}
	return counts
}

// SocketsOf returns how many sockets of this host the last round counted, by service id.
func (j *Janitor) SocketsOf() map[uint32]uint32 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.sockets.Services
}

// Monotonic returns the time of the clock that the data plane records times of.
func Monotonic() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return 0
	}
	return time.Duration(now.Nano())
}

// MonotonicZero returns the wall-clock time at which that clock was 0.
func MonotonicZero() time.Time { return time.Now().Round(0).Add(-Monotonic()) }

// Timeouts returns for how long entries may be idle, by state, in milliseconds. They do not change.
func (j *Janitor) Timeouts() *[256]uint32 { return &j.Rules.timeouts }
