// SPDX-License-Identifier: Apache-2.0

package sizing

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// router is a route with next hops, by name; it follows the behaviour of kernels, not the formulas.
type router struct {
	hashing Hashing
	hops    []int
	buckets []int // of Resilient
}

// resilientBuckets is divisible by 2 to 10.
const resilientBuckets = 2520 * 4

func newRouter(h Hashing, n int) *router {
	r := &router{hashing: h}
	for hop := range n {
		r.hops = append(r.hops, hop)
	}
	for bucket := range resilientBuckets {
		r.buckets = append(r.buckets, bucket%n)
	}
	return r
}

func (r *router) choose(hash uint32) int {
	switch r.hashing {
	case Plain: // fib_select_multipath: the first whose upper bound is not below the hash
		for i, hop := range r.hops {
			bound := uint64(i+1)<<31/uint64(len(r.hops)) - 1
			if uint64(hash>>1) <= bound || i == len(r.hops)-1 {
				return hop
			}
		}
	case Resilient:
		return r.buckets[int(hash)%len(r.buckets)]
	}
	return r.hops[int(hash)%len(r.hops)]
}

func (r *router) leave(hop int) {
	r.hops = slices.DeleteFunc(r.hops, func(h int) bool { return h == hop })
	next := 0
	for i, of := range r.buckets {
		if of == hop {
			r.buckets[i] = r.hops[next%len(r.hops)]
			next++
		}
	}
}

// TestLeaveIsWhatRoutersDo: the shares equal those of the flows that simulated routers move.
func TestLeaveIsWhatRoutersDo(t *testing.T) {
	const flows = 40_000
	for _, hashing := range Hashings {
		for n := 2; n <= 8; n++ {
			want, err := hashing.Leave(n)
			if err != nil {
				t.Fatal(err)
			}
			var got Moved
			for hop := range n {
				r := newRouter(hashing, n)
				random := rand.New(rand.NewPCG(uint64(n), uint64(hop)))
				hashes, before := make([]uint32, flows), make([]int, flows)
				for i := range hashes {
					hashes[i] = random.Uint32()
					before[i] = r.choose(hashes[i])
				}
				r.leave(hop)
				for i, hash := range hashes {
					switch now := r.choose(hash); {
					case before[i] == hop:
						got.OfOne += 1 / float64(flows*n)
					case now != before[i]:
						got.Others += 1 / float64(flows*n)
					}
				}
			}
			if math.Abs(got.OfOne-want.OfOne) > 0.01 || math.Abs(got.Others-want.Others) > 0.01 {
				t.Errorf("%s, one of %d: %+v moved, want %+v", hashing, n, got, want)
			}
		}
	}
}

// TestMiddleOfThree computes the case that the laboratory measures: the second of three leaves.
func TestMiddleOfThree(t *testing.T) {
	if got := plainLeave(3, 1); math.Abs(got.Total()-1./3) > 1e-9 {
		t.Errorf("%+v moves; want a third, and none of the others", got)
	}
}

func TestLeaveErrors(t *testing.T) {
	if _, err := Plain.Leave(1); err == nil {
		t.Error("one of one can leave")
	}
	if _, err := Hashing("magic").Leave(3); err == nil {
		t.Error("there is a hashing of that name")
	}
}

func TestBroken(t *testing.T) {
	third := Moved{OfOne: 1. / 3}
	for name, tc := range map[string]struct {
		flows Flows
		want  float64
	}{
		"maglev":   {Flows{Mode: lb.L2DSR, Scheduler: lb.Maglev, Backends: 6, Flows: 600}, 0},
		"rr":       {Flows{Mode: lb.L2DSR, Scheduler: lb.RoundRobin, Backends: 5, Flows: 600}, 160},
		"full NAT": {Flows{Mode: lb.FullNAT, Scheduler: lb.Maglev, Backends: 6, Flows: 600}, 200},
		"rr, handed over": {Flows{Mode: lb.L2DSR, Scheduler: lb.RoundRobin, Backends: 5, Flows: 600,
			NewPerSecond: 30, HandOver: true, HandOverSeconds: 1}, 8},
		"rr, all are younger": {Flows{Mode: lb.L2DSR, Scheduler: lb.RoundRobin, Backends: 5, Flows: 600,
			NewPerSecond: 3000, HandOver: true, HandOverSeconds: 1}, 160},
		"one backend": {Flows{Mode: lb.L2DSR, Scheduler: lb.RoundRobin, Backends: 1, Flows: 600}, 0},
	} {
		if got := tc.flows.Broken(third); math.Abs(got-tc.want) > 1e-6 {
			t.Errorf("%s: %g break, want %g", name, got, tc.want)
		}
	}
}

func TestNeed(t *testing.T) {
	load := Load{NewPerSecond: 100_000, PacketsPerSecond: 10e6, BitsPerSecond: 30e9, Flows: 3e6}
	machine := Machine{Cores: 2, Usage: 0.5, KnownNs: 100, NewNs: 200, BesideNs: 200, LinkBits: 25e9, FlowLimit: 4e6}
	// 10e6 × 200 ns, 9.9e6 × 100 ns and 0.1e6 × 200 ns are 3.01 s of a core.
	got, err := NeedOf(load, machine, 4)
	if err != nil {
		t.Fatal(err)
	}
	if got.Machines != 5 || got.By != "cores" || got.Enough || len(got.Parts) != 3 {
		t.Errorf("got %+v; want 5 machines by their cores, and 4 not enough", got)
	}
	for i, want := range []Part{{"cores", 4, 3.01 / 4, 3.01 / 3}, {"link", 3, 0.6, 0.8}, {"flows", 2, 0.375, 0.5}} {
		if p := got.Parts[i]; p.Name != want.Name || p.Machines != want.Machines || math.Abs(p.Used-want.Used) > 1e-9 ||
			math.Abs(p.Failing-want.Failing) > 1e-9 {
			t.Errorf("got %+v, want %+v", p, want)
		}
	}
	for name, corrupt := range map[string]func(*Load, *Machine){
		"no cores": func(_ *Load, m *Machine) { m.Cores = 0 }, "too much": func(_ *Load, m *Machine) { m.Usage = 2 },
		"less than nothing": func(l *Load, _ *Machine) { l.Flows = -1 }, "no number": func(l *Load, _ *Machine) {
			l.Flows = math.NaN()
		},
	} {
		l, m := load, machine
		corrupt(&l, &m)
		if _, err := NeedOf(l, m, 4); err == nil {
			t.Errorf("%s: it was planned", name)
		}
	}
}
