// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Held is a daemon's use of resources at a moment: its file descriptors, those of eBPF among them, its threads and
// resident memory, and the pins on its host.
type Held struct {
	Balancer    string    `json:"balancer"`
	PID         int       `json:"pid"`
	At          time.Time `json:"at"`
	Descriptors int       `json:"descriptors"`
	BPF         int       `json:"bpf_descriptors"`
	Pins        int       `json:"pins"`
	Threads     int       `json:"threads"`
	RSSKiB      int       `json:"rss_kib"`
}

// Bounds of a daemon's growth between the first minutes and the end: descriptors of connections that come and go
// (status, checks, members), and memory beyond one and a half times the amount.
const (
	moreDescriptors = 16
	moreRSSKiB      = 32 << 10
)

// Leaks names the resources of which a daemon holds more than allowed, compared with an earlier moment.
func (h Held) Leaks(before Held) (lines []string) {
	say := func(what string, now, then, most int) {
		if now > most {
			lines = append(lines, fmt.Sprintf("%s: %s: %d, and %d in the first minutes", h.Balancer, what, now, then))
		}
	}
	say("file descriptors", h.Descriptors, before.Descriptors, before.Descriptors+moreDescriptors)
	say("descriptors of eBPF objects", h.BPF, before.BPF, before.BPF)
	say("pins", h.Pins, before.Pins, before.Pins)
	say("KiB of memory", h.RSSKiB, before.RSSKiB, before.RSSKiB*3/2+moreRSSKiB)
	return lines
}

// Summary is the result of a soak.
type Summary struct {
	Version string `json:"version,omitempty"`
	Seed    uint64 `json:"seed"`
	// Seconds is the duration of the faults.
	Seconds float64 `json:"seconds"`
	// Faults counts faults by kind, Overlapping those of balancers that began while another one went on.
	Faults      map[Kind]int `json:"faults"`
	Overlapping int          `json:"overlapping"`
	// NextHopChanges counts the changes of the router's routes.
	NextHopChanges int `json:"way_changes"`
	// Opened counts connections, Answered their answers, Open those that existed at the end.
	Opened   uint64 `json:"opened"`
	Answered uint64 `json:"answered"`
	Open     int64  `json:"living"`
	// Broken counts connections that broke, by reason; Refused counts new ones that failed in a fault, RefusedInPeace
	// the others that failed.
	Broken         map[Reason]int `json:"broken"`
	Refused        int            `json:"refused_in_faults"`
	RefusedInPeace int            `json:"refused_in_peace"`
	// Digests are the digests of each service's table at the end, equal on all balancers.
	Digests map[string]string `json:"digests"`
	// First and Last are the resources of each daemon, in the first minutes and at the end.
	First []Held `json:"first"`
	Last  []Held `json:"last"`
	// FlowsLeft is the number of flows that the balancers remembered when all clients had gone and timeouts were over.
	FlowsLeft uint64 `json:"flows_left"`
	// Unexplained has a line for each connection that broke without a reason, and Failures for all other failures.
	Unexplained []string `json:"unexplained"`
	Failures    []string `json:"failures"`
	// Evidence holds the balancers' answers about unexplained connections that broke.
	Evidence []Evidence `json:"evidence,omitempty"`
}

// Evidence is the state of all balancers just after a connection has broken: its packet may have reached any of them.
type Evidence struct {
	// Connection is the connection's line, At the time when all balancers were asked, and NextHops are the balancers
	// that the router sent to then.
	Connection string       `json:"connection"`
	At         time.Time    `json:"at"`
	NextHops   []int        `json:"ways"`
	Balancers  []FlowReport `json:"balancers"`
}

// FlowReport is the state of one balancer.
type FlowReport struct {
	Balancer string    `json:"balancer"`
	At       time.Time `json:"at"`
	// Flow is its flow of the connection's client and port; empty if it has none.
	Flow    string `json:"flow"`
	Service string `json:"service"`
	Members string `json:"members"`
}

// String returns the text for the log.
func (e Evidence) String() string {
	var text strings.Builder
	fmt.Fprintf(&text, "evidence of %s, next hops %v:", e.At.Format("15:04:05.000"), e.NextHops)
	for _, t := range e.Balancers {
		fmt.Fprintf(&text, "\n    %s, at %s: flows [%s]; %s; members: %s", t.Balancer, t.At.Format("15:04:05.000"),
			t.Flow, t.Service, t.Members)
	}
	return text.String()
}

// String returns the summary for a person.
func (s Summary) String() string {
	var text strings.Builder
	fmt.Fprintf(&text, "seed %d, %v of faults\n", s.Seed,
		time.Duration(s.Seconds*float64(time.Second)).Round(time.Second))
	total := 0
	for _, kind := range slices.Sorted(maps.Keys(s.Faults)) {
		total += s.Faults[kind]
		fmt.Fprintf(&text, "  %-14s %d\n", kind, s.Faults[kind])
	}
	fmt.Fprintf(&text, "faults: %d, of them %d beside another balancer's; changes of the router's next hops: %d\n",
		total,
		s.Overlapping, s.NextHopChanges)
	fmt.Fprintf(&text, "connections: %d opened, %d answers, %d lived to the end\n", s.Opened, s.Answered, s.Open)
	for _, reason := range slices.SortedFunc(maps.Keys(s.Broken), func(a, b Reason) int { return cmp.Compare(a, b) }) {
		fmt.Fprintf(&text, "  broken, %s: %d\n", reason, s.Broken[reason])
	}
	fmt.Fprintf(&text, "new ones that failed: %d in faults, %d otherwise\n", s.Refused, s.RefusedInPeace)
	for i, last := range s.Last {
		if i < len(s.First) {
			first := s.First[i]
			fmt.Fprintf(&text,
				"%s: descriptors %d, %d at the end; of eBPF %d, %d; pins %d, %d; threads %d, %d; RSS %d, %d KiB\n",
				last.Balancer, first.Descriptors,
				last.Descriptors, first.BPF, last.BPF, first.Pins, last.Pins, first.Threads, last.Threads, first.RSSKiB,
				last.RSSKiB)
		}
	}
	for _, service := range slices.Sorted(maps.Keys(s.Digests)) {
		fmt.Fprintf(&text, "digest of %s everywhere: %s\n", service, s.Digests[service])
	}
	fmt.Fprintf(&text, "flows left: %d\n", s.FlowsLeft)
	for _, line := range append(slices.Clone(s.Unexplained), s.Failures...) {
		fmt.Fprintf(&text, "WRONG: %s\n", line)
	}
	return text.String()
}
