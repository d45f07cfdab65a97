// SPDX-License-Identifier: Apache-2.0

package packets

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/jeoul/jeoul/internal/balancer/datapath"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/replyroutes"
	"github.com/jeoul/jeoul/internal/weigh/bench/harness"
	"github.com/jeoul/jeoul/internal/weigh/bench/packets/object"
)

// rig is the harness of one hook, and its cases: a balancer for each setup. A rig is used for one round: the position
// of tables in memory makes a difference of some nanoseconds, so good or bad luck must not last for a run.
type rig struct {
	hook    lb.Hook
	harness *harness.Harness
	list    []benchCase
	// most is the largest number of flows, packets the number of packets that are sent at once.
	most, packets uint32
	balancers     map[setup]*datapath.Datapath
	// dirty are the setups whose tables contain flows of packets that open new ones.
	dirty map[setup]bool
	// next is the next flow of each case in the harness: new flows must not be sent twice.
	next map[int]uint32
	// replies are the flows whose addresses full NAT selected, by family.
	replies map[family]*harness.Recording
	// followers mirror the router's routes into the balancers whose packets are replies.
	followers map[setup]*replyroutes.Follower
	// captures run beside the balancers of setups with a capture.
	captures map[setup]*capturing
	// flowsByChange are the flows that a change affects, by its effect.
	flowsByChange map[change]*harness.Recording
	// object is the subject other than jeoul; nil if there is none.
	object *object.Object
}

// newRig creates the balancers that the cases of a list need.
func newRig(hook lb.Hook, list []benchCase, most, packets uint32) (*rig, error) {
	// The maximum for replies of each family and for two effects of a change, and one more at a time while sort looks
	// for these.
	h, err := harness.New(hook, 5*most)
	if err != nil {
		return nil, err
	}
	r := &rig{hook: hook, harness: h, list: list, most: most, packets: packets,
		balancers: map[setup]*datapath.Datapath{}, dirty: map[setup]bool{}, next: map[int]uint32{},
		replies: map[family]*harness.Recording{}, flowsByChange: map[change]*harness.Recording{},
		followers: map[setup]*replyroutes.Follower{}, captures: map[setup]*capturing{}}
	for _, m := range list {
		if m.baseline() || r.balancers[m.setup] != nil {
			continue
		}
		if err := r.renew(m.setup); err != nil {
			r.close()
			return nil, err
		}
	}
	return r, nil
}

// renew replaces the balancer of a setup by a new one, with only the flows that the cases expect to be known.
func (r *rig) renew(s setup) error {
	if old := r.balancers[s]; old != nil {
		delete(r.balancers, s)
		r.unfollow(s)
		if err := errors.Join(r.captures[s].stop(), old.Close()); err != nil {
			return err
		}
		delete(r.captures, s)
	}
	r.balancers[s], r.dirty[s] = harness.NewBalancer(r.hook, s.room(r.most, r.packets)), false
	if err := r.apply(s); err != nil {
		return fmt.Errorf("loading the balancer for %s (%s): %w", r.hook, s.name, err)
	}
	for _, m := range r.list {
		if m.setup != s || m.baseline() {
			continue
		}
		if err := r.prime(m); err != nil {
			return fmt.Errorf("%v: %w", m, err)
		}
	}
	if err := errors.Join(r.record(s), r.follow(s)); err != nil {
		return err
	}
	started, err := startCapture(r.balancers[s], s)
	r.captures[s] = started
	return err
}

// follow mirrors the router's routes into the balancer of a setup whose packets are replies.
func (r *rig) follow(s setup) error {
	if !slices.ContainsFunc(r.list, func(m benchCase) bool { return m.setup == s && m.reply() }) {
		return nil
	}
	f := r.followers[s]
	if f == nil {
		var err error
		if f, err = replyroutes.New(r.balancers[s], func() []string {
			return []string{"lo"}
		}, slog.New(slog.DiscardHandler)); err != nil {
			return err
		}
		r.followers[s] = f
	}
	return f.Update()
}

// apply applies the state of a setup to its balancer.
func (r *rig) apply(s setup) error {
	balancer := r.balancers[s]
	if !s.changed() {
		return balancer.Apply(s.state())
	}
	if err := balancer.Apply(s.before()); err != nil {
		return err
	}
	if len(r.flowsByChange) == 0 {
		if err := r.findMovedFlows(balancer.Program()); err != nil {
			return err
		}
	}
	return balancer.Apply(s.state())
}

// findMovedFlows looks for flows that a change moves, and for flows that it does not. It compares the backends of flows
// before the change with those in a new balancer that has only seen the state after the change.
func (r *rig) findMovedFlows(before *ebpf.Program) error {
	after := harness.NewBalancer(r.hook, harness.Room{})
	defer after.Close()
	if err := after.Apply(pinned.state()); err != nil {
		return err
	}
	flows := map[change][]harness.Tuple{}
	for offset := uint32(0); len(flows[stay]) < int(r.most) || len(flows[move]) < int(r.most); offset += r.most {
		stream := harness.Stream{Frame: ack4(web4), Count: r.most, Offset: offset}
		was, err := r.harness.Record(before, stream, r.most)
		if err != nil {
			return err
		}
		is, err := r.harness.Record(after.Program(), stream, r.most)
		if err != nil {
			return err
		}
		for i := range was {
			kind := stay
			if was[i].To != is[i].To {
				kind = move
			}
			flows[kind] = append(flows[kind], is[i].Tuple)
		}
	}
	var err error
	for _, kind := range []change{stay, move} {
		if r.flowsByChange[kind], err = r.harness.StoreFlows(ack4(web4), flows[kind][:r.most]); err != nil {
			return err
		}
	}
	r.flowsByChange[pin] = r.flowsByChange[move]
	return nil
}

// unfollow ends the follower that follow has started.
func (r *rig) unfollow(s setup) {
	if f := r.followers[s]; f != nil {
		f.Close()
		delete(r.followers, s)
	}
}

func (r *rig) close() {
	r.harness.Close()
	if r.object != nil {
		r.object.Close()
	}
	for s := range r.followers {
		r.unfollow(s)
	}
	for _, capture := range r.captures {
		// The packets that the capture read do not matter.
		_ = capture.stop()
	}
	for _, balancer := range r.balancers {
		balancer.Close()
	}
}

// program returns the program of a case: the balancer, unless it is a baseline.
func (r *rig) program(m benchCase) *ebpf.Program {
	if m.object != nil {
		return r.object.Program()
	}
	if m.baseline() {
		return r.harness.Program(m.subject)
	}
	return r.balancers[m.setup].Program()
}

// prime makes the flows of a case known to its balancer.
func (r *rig) prime(m benchCase) error {
	for done := uint32(0); done < m.flows; done += primed {
		for _, frame := range m.prime {
			stream := harness.Stream{Frame: frame, Count: m.flows, Next: done, Recording: r.flowsByChange[m.change]}
			if err := r.harness.SendAtLeast(r.program(m), stream, min(primed, m.flows)); err != nil {
				return err
			}
		}
	}
	return nil
}

// record records full NAT's translations for the case with the most flows of each family. Other cases use as many of
// them as they have flows.
func (r *rig) record(s setup) error {
	most := map[family]benchCase{}
	for _, m := range r.list {
		if m.setup == s && m.request != nil && m.flows > most[m.family()].flows {
			most[m.family()] = m
		}
	}
	for of, m := range most {
		made, err := r.harness.Record(r.program(m), harness.Stream{Frame: *m.request, Count: m.flows}, m.flows)
		if err != nil {
			return fmt.Errorf("%v: %w", m, err)
		}
		replies := make([]harness.Tuple, len(made))
		for i, seen := range made {
			if replies[i] = seen.Reply(); seen.SourcePort == 0 {
				return fmt.Errorf("%v: the balancer made nothing of one of %d requests", m, m.flows)
			}
		}
		if r.replies[of], err = r.harness.StoreFlows(m.frame, replies); err != nil {
			return fmt.Errorf("%v: %w", m, err)
		}
	}
	return nil
}

// firstNewFlow is the number of the first flow that was never sent: it is beyond all known flows.
const firstNewFlow = 1 << 31

// stream returns the packets of a case.
func (r *rig) stream(m benchCase, next uint32) harness.Stream {
	s := harness.Stream{Frame: m.frame, Count: m.flows, Next: next, Recording: r.flowsByChange[m.change]}
	switch {
	case m.request != nil:
		s.Recording = r.replies[m.family()]
	case m.createsFlows() && m.change == "":
		// Flows never repeat: they use half of all addresses and ports.
		s.Count, s.Offset = firstNewFlow, firstNewFlow
	}
	return s
}

// measureEmpty runs the empty program with the packets of a case.
func (r *rig) measureEmpty(m benchCase, packets uint32) (float64, error) {
	return r.harness.Send(r.harness.Program(harness.Empty), r.stream(m, 0), packets)
}

// measure runs a case once. It fails unless every packet ended as it should: a figure for dropped packets would be
// worthless.
func (r *rig) measure(id int, m benchCase, packets uint32) (float64, error) {
	if m.object != nil {
		return r.measureObject(m, packets)
	}
	if r.dirty[m.setup] {
		if err := r.renew(m.setup); err != nil {
			return 0, err
		}
	}
	r.dirty[m.setup] = m.createsFlows()
	warm := max(min(m.flows, packets/4), 1)
	if err := r.harness.SendAtLeast(r.program(m), r.stream(m, r.next[id]), warm); err != nil {
		return 0, err
	}
	if err := r.storeNext(id); err != nil {
		return 0, err
	}
	if err := r.markAlive(id, m); err != nil {
		return 0, err
	}
	before, err := r.counts(m)
	if err != nil {
		return 0, err
	}
	ns, err := r.harness.Send(r.program(m), r.stream(m, r.next[id]), packets)
	if err != nil {
		return 0, errors.Join(err, r.storeNext(id))
	}
	if err := r.storeNext(id); err != nil {
		return 0, err
	}
	after, err := r.counts(m)
	if err != nil {
		return 0, err
	}
	return ns, expect(m, before, after, uint64(packets))
}

// markAlive shows a balancer whose packets are replies that its control plane is alive and follows the kernel's routes:
// the clock moves twice, with packets after each move.
func (r *rig) markAlive(id int, m benchCase) error {
	if !m.reply() {
		return nil
	}
	for range 2 {
		r.balancers[m.setup].Tick()
		if err := r.harness.SendAtLeast(r.program(m), r.stream(m, r.next[id]), 4); err != nil {
			return err
		}
		if err := r.storeNext(id); err != nil {
			return err
		}
	}
	return nil
}

// storeNext stores the next flow of a case in the harness.
func (r *rig) storeNext(id int) (err error) {
	r.next[id], err = r.harness.Next()
	return err
}

// counts are the counters of a balancer.
type counts struct {
	outcomes map[string]uint64
	// opened is the number of new flows.
	opened uint64
}

// counts reads the counters of a case's balancer; a baseline has none.
func (r *rig) counts(m benchCase) (counts, error) {
	if m.baseline() {
		return counts{}, nil
	}
	counters, err := r.balancers[m.setup].Counters()
	if err != nil {
		return counts{}, err
	}
	c := counts{outcomes: map[string]uint64{}}
	for _, outcome := range counters.Outcomes {
		c.outcomes[outcome.Name] = outcome.Packets
	}
	for _, backend := range counters.Backends {
		c.opened += backend.Connections
	}
	return c, nil
}

// errOutcome means that packets did not end as their case requires.
var errOutcome = errors.New("the figure would not be what it claims")

// wanted returns the outcome that all packets of a case must have.
func (m benchCase) wanted() string {
	switch {
	case m.kind == foreign:
		return "passed_no_service"
	case m.reply():
		return "returned"
	}
	return "forwarded"
}

// expect checks that the counters moved as the case requires.
func expect(m benchCase, before, after counts, packets uint64) error {
	for name, count := range after.outcomes {
		want := uint64(0)
		if name == m.wanted() {
			want = packets
		}
		if moved := count - before.outcomes[name]; moved != want {
			return fmt.Errorf("outcome %s counted %d packets instead of %d: %w", name, moved, want, errOutcome)
		}
	}
	want := uint64(0)
	if m.kind == fresh && m.change == "" {
		want = packets
	}
	if opened := after.opened - before.opened; opened != want && !m.baseline() {
		return fmt.Errorf("%d new flows were counted instead of %d: %w", opened, want, errOutcome)
	}
	return nil
}

// load loads the object for this round.
func (r *rig) load(o *Object) (err error) {
	if o == nil || o.Setup.Hook != r.hook {
		return nil
	}
	r.object, err = o.Setup.Load(o.File)
	return err
}

// measureObject runs a case of the object once. It fails unless a packet of the stream got the setup's return code
// before, and the counters moved by the setup's amount for each packet: a figure for dropped packets would be
// worthless.
func (r *rig) measureObject(m benchCase, packets uint32) (float64, error) {
	stream := harness.Stream{Frame: m.frame, Count: m.flows}
	if err := r.prime(m); err != nil {
		return 0, err
	}
	warm := max(min(m.flows, packets/4), 1)
	if err := r.harness.SendAtLeast(r.object.Program(), stream, warm); err != nil {
		return 0, err
	}
	returned, err := r.harness.Returned(r.object.Program(), stream)
	if err != nil {
		return 0, err
	}
	if returned != m.object.Returns {
		return 0, fmt.Errorf("the program returned %d for a packet of case %s instead of %d: %w", returned,
			m.object.Name, m.object.Returns, object.ErrOutcome)
	}
	before, err := r.object.Counts()
	if err != nil {
		return 0, err
	}
	ns, err := r.harness.Send(r.object.Program(), stream, packets)
	if err != nil {
		return 0, err
	}
	after, err := r.object.Counts()
	if err != nil {
		return 0, err
	}
	return ns, r.object.Check(before, after, uint64(packets))
}
