// SPDX-License-Identifier: Apache-2.0

package packets

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/jeoul/jeoul/internal/datapath"
	"github.com/jeoul/jeoul/internal/lb"
)

// The programs that stand beside ours in every run.
const (
	subjectEmpty   = "empty"
	subjectMACSwap = "macswap"
	subjectAdjust  = "adjust"
)

// rig is the harness of one hook, and what it measures: a balancer for each
// setup.
type rig struct {
	hook      lb.Hook
	harness   *harness
	balancers map[setup]*datapath.Datapath
	// most is the largest number of flows, packets that of what is sent at once.
	most, packets uint32
	// next is where the harness goes on in the flows of each case: flows that
	// must be new must not come twice.
	next map[int]uint32
	// recordings are the flows that full NAT chose addresses for, by family.
	recordings map[family]recording
}

// newRig makes the balancers of a hook, for so many flows at most.
func newRig(hook lb.Hook, most, packets uint32) (*rig, error) {
	h, err := newHarness(hook, 2*most)
	if err != nil {
		return nil, err
	}
	r := &rig{hook: hook, harness: h, balancers: map[setup]*datapath.Datapath{}, most: most, packets: packets,
		next: map[int]uint32{}, recordings: map[family]recording{}}
	for _, s := range setups() {
		if err := r.renew(s); err != nil {
			r.close()
			return nil, err
		}
	}
	return r, nil
}

// renew makes the balancer of a setup anew, without flows.
func (r *rig) renew(s setup) error {
	if old := r.balancers[s]; old != nil {
		delete(r.balancers, s)
		if err := old.Close(); err != nil {
			return err
		}
	}
	balancer := datapath.NewDetached(s.options(r.hook, r.most, r.packets), ownMAC)
	if err := balancer.Apply(s.state()); err != nil {
		return errors.Join(fmt.Errorf("loading the balancer for %s (%s): %w", r.hook, s, err), balancer.Close())
	}
	r.balancers[s] = balancer
	return nil
}

// lay lays out the tables of all balancers anew. Where they happen to lie in
// memory is worth some nanoseconds: so no luck, good or bad, lasts for a run.
func (r *rig) lay() error {
	for s, balancer := range r.balancers {
		if err := balancer.Apply(s.state()); err != nil {
			return fmt.Errorf("loading the balancer for %s (%s) again: %w", r.hook, s, err)
		}
	}
	return nil
}

func (r *rig) close() {
	r.harness.close()
	for _, balancer := range r.balancers {
		balancer.Close()
	}
}

// program returns what a case runs: the balancer, unless it is a baseline.
func (r *rig) program(m measured) *ebpf.Program {
	if m.baseline() {
		return r.harness.program(m.subject)
	}
	return r.balancers[m.setup].Program()
}

// entry is how the harness goes through the flows of a case.
func (m measured) entry() string {
	if m.request != nil {
		return entryReplay
	}
	return entryCount
}

// ready makes known what the cases take for known.
func (r *rig) ready(list []measured) error {
	for _, m := range list {
		if err := r.prime(m); err != nil {
			return fmt.Errorf("%v: %w", m, err)
		}
	}
	return r.record(list)
}

// prime makes the flows of a case known.
func (r *rig) prime(m measured) error {
	if m.prime == nil {
		return nil
	}
	if err := r.harness.aim(r.program(m), *m.prime, flow{count: m.flows}); err != nil {
		return err
	}
	// Interrupted, it has gone through more flows than there are: no harm.
	_, err := r.harness.run(entryCount, *m.prime, m.flows)
	if errors.Is(err, errInterrupted) {
		return nil
	}
	return err
}

// record notes what full NAT made of each of the most flows of the replies, of
// which a case takes as many as it has.
func (r *rig) record(list []measured) error {
	most := map[family]measured{}
	for _, m := range list {
		if m.request != nil && m.flows > most[m.family()].flows {
			most[m.family()] = m
		}
	}
	for of, m := range most {
		made, err := r.harness.record(r.program(m), *m.request, m.frame, m.flows)
		if err != nil {
			return fmt.Errorf("%v: %w", m, err)
		}
		r.recordings[of] = made
	}
	return nil
}

// flow returns the first flow of a case, and readies the harness for its kind.
func (r *rig) flow(m measured, next uint32) (flow, error) {
	made := flow{count: m.flows, next: next}
	if m.tracked() && m.kind == fresh {
		// Flows never come again: all addresses and ports, not only `flows`.
		made.count = 0
	}
	if m.request == nil {
		return made, nil
	}
	made.base = r.recordings[m.family()].base
	return made, r.harness.setLayout(r.recordings[m.family()].layout)
}

// measureEmpty runs the empty program under the packets of a case.
func (r *rig) measureEmpty(m measured, packets uint32) (float64, error) {
	flows, err := r.flow(m, 0)
	if err != nil {
		return 0, err
	}
	if err := r.harness.aim(r.harness.program(subjectEmpty), m.frame, flows); err != nil {
		return 0, err
	}
	return r.harness.run(m.entry(), m.frame, packets)
}

// measure runs a case once. It fails unless every packet ended as it should:
// a figure for packets that were dropped would be worth nothing.
func (r *rig) measure(id int, m measured, packets uint32) (float64, error) {
	flows, err := r.flow(m, r.next[id])
	if err != nil {
		return 0, err
	}
	if m.setup == newFlows {
		if err := r.renew(m.setup); err != nil {
			return 0, err
		}
	}
	if err := r.harness.aim(r.program(m), m.frame, flows); err != nil {
		return 0, err
	}
	warm := min(m.flows, packets/4)
	if _, err := r.harness.run(m.entry(), m.frame, max(warm, 1)); err != nil && !errors.Is(err, errInterrupted) {
		return 0, err
	}
	before, err := r.outcomes(m)
	if err != nil {
		return 0, err
	}
	ns, err := r.harness.run(m.entry(), m.frame, packets)
	if err != nil {
		return 0, errors.Join(err, r.remember(id))
	}
	if err := r.remember(id); err != nil {
		return 0, err
	}
	after, err := r.outcomes(m)
	if err != nil {
		return 0, err
	}
	return ns, expect(m, before, after, uint64(packets))
}

// remember notes where the harness has come to in the flows of a case.
func (r *rig) remember(id int) (err error) {
	r.next[id], err = r.harness.at()
	return err
}

// outcomes counts the packets of a case's balancer by how they ended; a
// baseline counts none.
func (r *rig) outcomes(m measured) (map[string]uint64, error) {
	if m.baseline() {
		return nil, nil
	}
	counters, err := r.balancers[m.setup].Counters()
	if err != nil {
		return nil, err
	}
	counts := map[string]uint64{}
	for _, outcome := range counters.Outcomes {
		counts[outcome.Name] = outcome.Packets
	}
	return counts, nil
}

// errOutcome: packets ended otherwise than their case says.
var errOutcome = errors.New("the figure would not be what it claims")

// wanted is how the packets of a case must end.
func (m measured) wanted() string {
	switch {
	case m.kind == foreign:
		return "passed_no_service"
	case m.reply():
		return "returned"
	}
	return "forwarded"
}

// expect checks that the outcome counters moved as the case demands.
func expect(m measured, before, after map[string]uint64, packets uint64) error {
	for name, count := range after {
		want := uint64(0)
		if name == m.wanted() {
			want = packets
		}
		if moved := count - before[name]; moved != want {
			return fmt.Errorf("outcome %s counted %d packets instead of %d: %w", name, moved, want, errOutcome)
		}
	}
	return nil
}
