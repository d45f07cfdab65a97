// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"
)

// running is a load in progress.
type running struct {
	*Tester
	ctx  context.Context
	load Load
	done func(Step)

	steps []Step
}

// Run runs a load, and calls done after each step, if done is not nil. It returns the steps up to an error. The error
// is ErrInterrupted where ctx has ended: then the last step, if it had begun, is Interrupted. Only one load runs at a
// time. Other errors: ErrLoad, ErrPort, ErrKernel.
func (t *Tester) Run(ctx context.Context, load Load, done func(Step)) ([]Step, error) {
	load, err := load.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := t.fits(load); err != nil {
		return nil, err
	}
	if err := t.control.take(load); err != nil {
		return nil, err
	}
	r := &running{Tester: t, ctx: ctx, load: load, done: done}
	was := atomic.LoadUint32(&t.progress.Runs)
	t.sender.start()
	if err = t.sender.ready(ctx, t.progress, was); err == nil {
		err = r.all()
	}
	if stopErr := t.sender.stop(); stopErr != nil {
		// The sender's error is the cause of the others.
		err = stopErr
	}
	return r.steps, err
}

func (r *running) all() error {
	if err := r.warmUp(); err != nil {
		return err
	}
	switch {
	case r.load.Ladder != nil:
		return r.ladder(*r.load.Ladder)
	case r.load.Search != nil:
		return r.search(*r.load.Search)
	}
	_, err := r.report(r.load.Rate, r.load.Connections)
	return err
}

// warmUp offers the first rate for a while, and discards the results.
func (r *running) warmUp() error {
	if r.load.WarmUp == 0 {
		return nil
	}
	rate := r.load.Rate
	switch {
	case r.load.Ladder != nil:
		rate = r.load.Ladder.From
	case r.load.Search != nil:
		rate = max(r.load.Search.From, r.load.Search.To/10)
	}
	warm := *r
	warm.load.Duration = r.load.WarmUp
	warm.load.Hold = 0
	n := uint64(0)
	if rate > 0 {
		n = uint64(math.Ceil(rate * r.load.WarmUp.Seconds()))
		// Held connections must fit.
		if r.load.Kind == Capacity {
			n = min(n, uint64(r.spec.Connections))
		}
	}
	_, err := warm.step(rate, n)
	return err
}

// Rates returns the rates of the ladder's steps.
func (l Ladder) Rates() []float64 {
	if !(l.By > 0) {
		return nil
	}
	n := int(math.Abs(l.To-l.From)/l.By + 1e-9)
	by := l.By
	if l.To < l.From {
		by = -by
	}
	var rates []float64
	for i := 0; i <= n; i++ {
		rates = append(rates, l.From+float64(i)*by)
	}
	return rates
}

func (r *running) ladder(l Ladder) error {
	n := l.Connections
	if n == 0 {
		n = r.load.Connections
	}
	for _, rate := range l.Rates() {
		if _, err := r.report(rate, n); err != nil {
			return err
		}
	}
	return nil
}

// defaultResolution is the resolution of a search that gives none.
const defaultResolution = 0.01

// search halves the interval between a rate that passed and one that did not (RFC 2544, section 26.1; RFC 9411, section
// 7).
func (r *running) search(s Search) error {
	if s.Resolution == 0 {
		s.Resolution = defaultResolution
	}
	low, high := s.From, s.To
	for rate := high; ; rate = (low + high) / 2 {
		step, err := r.report(rate, r.load.Connections)
		if err != nil {
			return err
		}
		switch {
		case !step.Passes(s.Loss):
			high = rate
		case rate == s.To:
			return nil
		default:
			low = rate
		}
		if high-low <= s.Resolution*high {
			return nil
		}
	}
}

// Best returns the step with the highest rate that passes with at most a share lost, by the criterion of a search;
// false if there is none.
func Best(steps []Step, loss float64) (best Step, found bool) {
	for _, s := range steps {
		if s.Passes(loss) && (!found || s.Offered > best.Offered) {
			best, found = s, true
		}
	}
	return best, found
}

// report runs a step and reports it, even if it was interrupted.
func (r *running) report(rate float64, connections uint64) (Step, error) {
	if r.ctx.Err() != nil {
		return Step{}, ErrInterrupted
	}
	step, err := r.step(rate, connections)
	if err != nil && !errors.Is(err, ErrInterrupted) {
		return step, err
	}
	r.steps = append(r.steps, step)
	if r.done != nil {
		r.done(step)
	}
	return step, err
}

// longestStep is the longest time that the programs' clock arithmetic can represent.
const longestStep = 4 * time.Hour

// step offers one rate, and returns the result.
func (r *running) step(rate float64, connections uint64) (Step, error) {
	s := Step{Kind: r.load.Kind, Offered: rate, Asked: connections}
	if s.Asked == 0 && rate > 0 {
		s.Asked = uint64(math.Max(1, math.Round(rate*r.load.Duration.Seconds())))
	}
	if rate > 0 && float64(s.Asked)/rate > longestStep.Seconds() {
		return s, wrongLoad("%d at %v a second take longer than %v: use fewer, or a higher rate", s.Asked, rate,
			longestStep)
	}
	if r.load.Kind == SYNFlood {
		return r.floodStep(s)
	}
	if err := r.forget(); err != nil {
		return s, err
	}
	before, err := r.counts()
	if err != nil {
		return s, err
	}
	first := before.progress.Opened
	err = r.offer(&s, first, before)
	if err == nil || errors.Is(err, ErrInterrupted) {
		s.Interrupted = err != nil
		err = errors.Join(err, r.resolve(before, r.resolved), r.requestAll(&s, before), r.fill(&s, before),
			r.cleanUp(&s, first))
	}
	return s, err
}

// poll calls a function every two milliseconds until it returns true, or for a time; with interrupted, also until the
// context ends. It returns the function's result.
func (r *running) poll(atMost time.Duration, interrupted bool, ok func() (bool, error)) (bool, error) {
	ticker := time.NewTicker(2 * time.Millisecond)
	defer ticker.Stop()
	end := time.Now().Add(atMost)
	for {
		done, err := ok()
		if done || err != nil {
			return done, err
		}
		select {
		case err := <-r.sender.done:
			// The caller that stops the sender reads the error again.
			r.sender.done <- err
			return false, fmt.Errorf("the sender has ended: %w", err)
		default:
		}
		if interrupted && r.ctx.Err() != nil {
			return false, ErrInterrupted
		}
		if time.Now().After(end) {
			return false, nil
		}
		<-ticker.C
	}
}

// offer begins a step's connections.
func (r *running) offer(s *Step, first uint64, before totals) error {
	begin, err := now()
	if err != nil {
		return err
	}
	begin += uint64(2 * time.Millisecond)
	asked, limit := s.Asked, r.load.Duration
	if asked == 0 {
		asked = math.MaxInt64 / 2
	} else {
		limit = longestStep
	}
	if err := r.startFollower(first, asked); err != nil {
		return err
	}
	if r.load.Flood != nil {
		r.flood(math.MaxUint64, r.load.Flood.Rate, begin)
	}
	r.begin(first+asked, first, s.Offered, begin)
	stuck := r.stuck()
	_, err = r.poll(limit, true, func() (bool, error) {
		p := r.senderProgress()
		return p.Opened-first >= asked || stuck(p.Opened, s.Offered), nil
	})
	// Whatever ended the wait, no more connections are begun.
	atomic.StoreUint64(&r.control.OpenTo, 0)
	if s.Offered != 0 {
		return err
	}
	end, clockErr := now()
	n, countErr := r.counts()
	if clockErr == nil && countErr == nil {
		// A tester that waits for answers may begin the last connection long before the end.
		s.Duration = time.Duration(end - begin)
		s.InTime = n.since(before).server(bpfWireCountWIRE_COUNT_ESTABLISHED)
	}
	return errors.Join(err, clockErr, countErr)
}

// stuck returns a function that reports whether no connection has been begun for so long that none will be: the tester
// must have given up by then the connections whose answers it waited for.
func (r *running) stuck() func(opened uint64, rate float64) bool {
	last, since := uint64(math.MaxUint64), time.Now()
	return func(opened uint64, rate float64) bool {
		if opened != last {
			last, since = opened, time.Now()
		}
		timeout := 10*time.Second + r.load.Timeout<<r.load.Tries
		if rate > 0 {
			timeout += time.Duration(float64(time.Second) / rate)
		}
		return time.Since(since) > timeout
	}
}

// startFollower configures the follower for a step.
func (r *running) startFollower(first, asked uint64) error {
	capacity := uint64(r.spec.Connections)
	switch {
	case r.load.Kind == Session && r.load.Request == 0:
		return r.follow(bpfWireActionWIRE_FINISH, first, math.MaxUint64, 0, 0)
	case r.load.Request > 0 && r.load.Kind != Capacity:
		return r.follow(bpfWireActionWIRE_REQUEST, first, math.MaxUint64, 0, 0)
	case r.load.Kind == Setup && asked > capacity/2:
		// The numbers of the connections are needed again.
		return r.follow(bpfWireActionWIRE_RESET, first, math.MaxUint64, capacity/2, 0)
	}
	return r.follow(bpfWireActionWIRE_NOTHING, first, first, 0, 0)
}

// resolved reports whether each connection that was begun has ended.
func (r *running) resolved(d totals) bool {
	begun := d.progress.Opened
	switch r.load.Kind {
	case UDP:
		return d.server(bpfWireCountWIRE_COUNT_ESTABLISHED) >= begun
	case Session, Mix, DNS:
		return d.client(bpfWireCountWIRE_COUNT_COMPLETED)+d.refused()+d.abandoned() >= begun
	}
	return d.client(bpfWireCountWIRE_COUNT_ESTABLISHED)+d.refused()-d.client(bpfWireCountWIRE_COUNT_BROKEN)+
		d.abandoned() >= begun
}

// resolve waits for outstanding answers, and gives up the connections whose answers are late.
func (r *running) resolve(before totals, resolved func(totals) bool) error {
	condition := func() (bool, error) {
		n, err := r.counts()
		return err == nil && resolved(n.since(before)), err
	}
	settle := r.load.Settle
	if r.ctx.Err() != nil {
		settle = min(settle, 100*time.Millisecond)
	}
	done, err := r.poll(settle, false, condition)
	if err == nil && !done && r.load.Kind != UDP {
		atomic.StoreUint32(&r.control.GiveUp, 1)
		_, err = r.poll(10*time.Second, false, condition)
		atomic.StoreUint32(&r.control.GiveUp, 0)
	}
	r.endFlood()
	return errors.Join(err, r.quiet(settle, func(n totals) bool { return n.since(before).agreed() }))
}

// Numbers of polls after which unchanged counts mean the end. Where the sides do not agree, a packet was lost, or is on
// a core that others keep busy.
const (
	stillPolls     = 3
	stillPollsLost = 50
)

// quiet waits until the counts no longer change: the last packets of a connection are still under way when it is
// resolved. It waits longer while the counts do not look complete.
func (r *running) quiet(atMost time.Duration, complete func(totals) bool) error {
	var last totals
	still := 0
	_, err := r.poll(atMost, false, func() (bool, error) {
		n, err := r.counts()
		if err != nil {
			return false, err
		}
		if last.clients != nil && same(last, n) {
			still++
		} else {
			still = 0
		}
		last = n
		return still >= stillPolls && complete(n) || still >= stillPollsLost, nil
	})
	return err
}

func same(a, b totals) bool {
	for i := range a.clients {
		if a.clients[i].Count != b.clients[i].Count {
			return false
		}
	}
	for i := range a.servers {
		if a.servers[i].Count != b.servers[i].Count {
			return false
		}
	}
	return a.progress.Sent == b.progress.Sent
}

// requestAll sends a request on each connection that a Capacity holds.
func (r *running) requestAll(s *Step, before totals) error {
	if r.load.Kind != Capacity {
		return nil
	}
	if r.load.Hold > 0 {
		if _, err := r.poll(r.load.Hold, true, func() (bool, error) { return false, nil }); err != nil &&
			!errors.Is(err, ErrInterrupted) {
			return err
		}
	}
	n, err := r.counts()
	if err != nil {
		return err
	}
	opened := n.since(before)
	held := opened.client(bpfWireCountWIRE_COUNT_ESTABLISHED) - opened.client(bpfWireCountWIRE_COUNT_BROKEN)
	rate := s.Offered
	if rate == 0 {
		rate = float64(opened.progress.Opened) / max(time.Duration(n.progress.Ended-n.progress.Began).Seconds(), 1e-3)
	}
	if err := r.follow(bpfWireActionWIRE_REQUEST, before.progress.Opened, n.progress.Opened, 0, rate); err != nil {
		return err
	}
	turn := atomic.LoadUint32(&r.control.FollowId)
	asking := time.Duration(float64(opened.progress.Opened)/rate*float64(time.Second)) + 10*time.Second
	if _, err := r.poll(asking, false, func() (bool, error) {
		p := r.senderProgress()
		return p.FollowId == turn && p.Followed >= n.progress.Opened, nil
	}); err != nil {
		return err
	}
	return r.resolve(before, func(d totals) bool {
		lost := d.client(bpfWireCountWIRE_COUNT_BROKEN) - opened.client(bpfWireCountWIRE_COUNT_BROKEN) +
			d.abandoned() - opened.abandoned()
		return d.client(bpfWireCountWIRE_COUNT_COMPLETED)+lost >= held
	})
}

// cleanUp resets the connections that a step has left open, so that a balancer in between deletes them.
func (r *running) cleanUp(s *Step, first uint64) error {
	if r.load.Kind == UDP || r.load.Kind == DNS || (s.Kind == Session || s.Kind == Mix) && s.Failed.Total() == 0 {
		return nil
	}
	to := r.senderProgress().Opened
	// A path that has carried the connections carries resets at twice the rate; a lower rate would take too long.
	rate := s.Offered
	if rate == 0 {
		rate = s.Rate()
	}
	rate = max(2*rate, 50_000)
	if err := r.follow(bpfWireActionWIRE_RESET, first, to, 0, rate); err != nil {
		return err
	}
	turn := atomic.LoadUint32(&r.control.FollowId)
	done, err := r.poll(30*time.Second+time.Duration(float64(to-first)/20_000*1e9), false, func() (bool, error) {
		p := r.senderProgress()
		return p.FollowId == turn && p.Followed >= to, nil
	})
	if err == nil && !done {
		s.LeftOpen = to - r.senderProgress().Followed
	}
	return errors.Join(err, r.quiet(time.Second, func(totals) bool { return true }))
}

// floodStep is a step that consists of a flood only.
func (r *running) floodStep(s Step) (Step, error) {
	before, err := r.counts()
	if err != nil {
		return s, err
	}
	begin, err := now()
	if err != nil {
		return s, err
	}
	frames, limit := s.Asked, r.load.Duration
	if frames == 0 {
		frames = math.MaxUint64
	} else {
		limit = longestStep
	}
	r.flood(frames, s.Offered, begin)
	first := before.progress.Flooded
	_, err = r.poll(limit, true, func() (bool, error) { return r.senderProgress().Flooded-first >= frames, nil })
	r.endFlood()
	if err != nil && !errors.Is(err, ErrInterrupted) {
		return s, err
	}
	s.Interrupted = err != nil
	end, clockErr := now()
	err = errors.Join(err, clockErr, r.quiet(r.load.Settle, func(totals) bool { return true }), r.fill(&s, before))
	s.Duration = time.Duration(end - begin)
	s.Begun, s.Established = s.FloodSent, s.FloodArrived
	if s.Asked == 0 || s.Interrupted {
		s.Asked = s.Begun
	}
	s.Failed.Unsent = s.Asked - s.Begun
	planned := time.Duration(0)
	if s.Offered > 0 {
		planned = time.Duration(float64(s.Asked) / s.Offered * float64(time.Second))
	}
	s.KeptUp = s.Begun == s.Asked && (planned == 0 || s.Duration <= planned+max(20*time.Millisecond, planned/100))
	return s, err
}
