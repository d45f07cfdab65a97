// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"math/rand/v2"
	"strings"
	"testing"

	"k8s.io/utils/cpuset"
)

// machine returns nodes with a number of CPUs each. With smt, the second half of a node's CPUs are second threads.
func machine(nodes, each int, smt bool) Topology {
	top := Topology{Nodes: map[int]cpuset.CPUSet{}, Siblings: map[int]cpuset.CPUSet{}}
	for node := range nodes {
		set := cpuset.New()
		for i := range each {
			cpu := node*each + i
			set = set.Union(cpuset.New(cpu))
			if smt {
				first := node*each + i%(each/2)
				top.Siblings[cpu] = cpuset.New(first, first+each/2)
			}
		}
		top.Nodes[node] = set
	}
	return top
}

func TestPlan(t *testing.T) {
	for _, tc := range []struct {
		name     string
		top      Topology
		card     Card
		share    Share
		given    string
		packets  string
		programs string
		queues   int
		shared   bool
		says     string
	}{
		{name: "two nodes", top: machine(2, 32, false), card: Card{Node: 0, MaxQueues: 32, RSSEntries: 512},
			share:   Most,
			packets: "1-31", programs: "32-63", queues: 31},
		{name: "the card's node is the other", top: machine(2, 32, false),
			card: Card{Node: 1, MaxQueues: 64, RSSEntries: 512}, share: Most,
			packets: "32-63", programs: "1-31", queues: 32},
		{name: "a short indirection table", top: machine(2, 32, false),
			card: Card{Node: 0, MaxQueues: 32, RSSEntries: 128}, share: Most,
			packets: "1-26", programs: "27-63", queues: 26, says: "busiest gets 5"},
		{name: "threads", top: machine(2, 32, true), card: Card{Node: 0, MaxQueues: 32, RSSEntries: 512}, share: Most,
			packets: "1-15", programs: "32-63", queues: 15},
		{name: "few queues", top: machine(2, 32, false), card: Card{Node: 0, MaxQueues: 4, RSSEntries: 128},
			share:   Most,
			packets: "1-4", programs: "5-63", queues: 4, says: "4 queues at most"},
		{name: "a web server", top: machine(2, 32, false), card: Card{Node: 0, MaxQueues: 32, RSSEntries: 512},
			share:   Quarter,
			packets: "1-16", programs: "17-63", queues: 16},
		{name: "one node", top: machine(1, 8, false), card: Card{Node: -1, MaxQueues: 8}, share: Most,
			packets: "1-6", programs: "7", queues: 6},
		{name: "four cores", top: machine(1, 4, false), card: Card{Node: 0, MaxQueues: 4}, share: Most,
			packets: "1-2", programs: "3", queues: 2},
		{name: "two cores", top: machine(1, 2, false), card: Card{Node: -1, MaxQueues: 4}, share: Most,
			packets: "0-1", programs: "0-1", queues: 2, shared: true, says: "fewer than 4"},
		{name: "given", top: machine(1, 8, false), card: Card{Node: 0, MaxQueues: 8, RSSEntries: 128}, share: Quarter,
			given:   "4-7",
			packets: "4-7", programs: "0-3", queues: 4, says: "were given"},
		{name: "all given", top: machine(1, 4, false), card: Card{Node: 0, MaxQueues: 4}, share: Quarter, given: "0-3",
			packets: "0-3", programs: "0-3", queues: 4, says: "programs share them"},
	} {
		given, err := cpuset.Parse(tc.given)
		if err != nil {
			t.Fatal(err)
		}
		p, err := Make(tc.top, tc.card, tc.share, given)
		if err != nil {
			t.Errorf("%s: %v", tc.name, err)
			continue
		}
		if p.PacketSet().String() != tc.packets || p.Programs.String() != tc.programs || p.Queues() != tc.queues ||
			p.Shared != tc.shared {
			t.Errorf("%s: packets %v, programs %v, %d queues, shared %v", tc.name, p.PacketSet(), p.Programs,
				p.Queues(), p.Shared)
		}
		if tc.says != "" && !strings.Contains(strings.Join(p.Notes, "\n"), tc.says) {
			t.Errorf("%s: it says %q", tc.name, p.Notes)
		}
	}
}

func TestGivenCPUsThatAreNotThere(t *testing.T) {
	_, err := Make(machine(1, 4, false), Card{}, Most, cpuset.New(2, 9))
	if err == nil || !strings.Contains(err.Error(), "CPUs 9 are not online") {
		t.Error(err)
	}
	if _, err := Make(Topology{}, Card{}, Most, cpuset.New()); err == nil {
		t.Error("a machine without CPUs has a plan")
	}
}

// TestEveryPlanIsWhole makes plans for machines of all kinds: each CPU has one use, each queue a CPU, and each CPU a
// queue to send by.
func TestEveryPlanIsWhole(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 7))
	for range 400 {
		top := machine(1+random.IntN(4), 2*(1+random.IntN(24)), random.IntN(2) == 0)
		card := Card{Name: "eth0", Node: random.IntN(5) - 1, MaxQueues: random.IntN(70),
			RSSEntries: []int{0, 64, 128, 2048}[random.IntN(4)]}
		card.Queues = min(card.MaxQueues, random.IntN(70))
		p, err := Make(top, card, []Share{Most, Quarter}[random.IntN(2)], cpuset.New())
		if err != nil {
			t.Fatal(err)
		}
		packets := p.PacketSet()
		if len(p.Packets) == 0 || packets.Size() != len(p.Packets) || p.Queues() < 1 || p.Programs.IsEmpty() {
			t.Fatalf("%+v", p)
		}
		if all := packets.Union(p.Programs).Union(p.System).Union(p.Idle); !all.Equals(top.Online()) {
			t.Fatalf("%v are of no use: %+v", top.Online().Difference(all), p)
		}
		if !p.Shared && (!packets.Intersection(p.Programs).IsEmpty() || p.Isolated().Contains(0) ||
			p.Housekeeping().IsEmpty()) {
			t.Fatalf("not parted: %+v", p)
		}
		sending := cpuset.New()
		for queue := range p.Queues() {
			if !packets.Contains(p.CPUOf(queue)) {
				t.Fatalf("queue %d is CPU %d's: %+v", queue, p.CPUOf(queue), p)
			}
			sending = sending.Union(p.Senders(queue))
		}
		if !sending.Equals(top.Online()) {
			t.Fatalf("%v send by no queue: %+v", top.Online().Difference(sending), p)
		}
		if drawn := p.Draw(); strings.Count(drawn, "P") < 2 && strings.Count(drawn, "B") < 2 {
			t.Fatal(drawn)
		}
	}
}

func TestSpread(t *testing.T) {
	p, err := Make(machine(1, 16, false), Card{Node: 0, MaxQueues: 1, Queues: 1}, Quarter, cpuset.New())
	if err != nil {
		t.Fatal(err)
	}
	if !p.Spread(0).IsEmpty() {
		t.Errorf("one queue for one CPU is spread over %v", p.Spread(0))
	}
	if p, err = Make(machine(1, 16, false), Card{Node: 0, MaxQueues: 2, Queues: 2}, Quarter,
		cpuset.New(4, 5, 6, 7)); err != nil {
		t.Fatal(err)
	}
	if a, b := p.Spread(0).String(), p.Spread(1).String(); a != "4,6" || b != "5,7" {
		t.Errorf("spread over %s and %s", a, b)
	}
}
