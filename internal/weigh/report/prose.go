// SPDX-License-Identifier: Apache-2.0

package report

import (
	"github.com/jeoul/jeoul/internal/weigh/report/wording"
	"slices"
)

// paragraph explains one thing about how to read the figures.
type paragraph struct{ Head, Text string }

// reading returns what a reader must know to judge the figures.
func reading(sections []*section, published bool) []paragraph {
	var out []paragraph
	requests := slices.ContainsFunc(sections, func(s *section) bool {
		return s.kind() == nil && !s.open() && !s.isPackets() && !s.isBulk() && !s.transacts()
	})
	bulk := slices.ContainsFunc(sections, (*section).isBulk)
	open := slices.ContainsFunc(sections, (*section).open)
	if open {
		out = append(out, openReading...)
	}
	if requests {
		out = append(out, requestReading...)
	}
	if bulk {
		out = append(out, bulkReading...)
	}
	transacts := slices.ContainsFunc(sections, (*section).transacts)
	if transacts {
		out = append(out, transactReading...)
	}
	if requests || bulk || transacts || open {
		out = append(out, spreadReading)
	}
	if published {
		out = append(out, publishedReading)
	}
	if slices.ContainsFunc(sections, (*section).isPackets) {
		out = append(out, packetReading...)
	}
	for _, s := range sections {
		kind := s.kind()
		if kind == nil {
			continue
		}
		for _, p := range kind.reading {
			if !slices.Contains(out, p) { // several loads may be of one kind
				out = append(out, p)
			}
		}
	}
	return out
}

// loadTitles say in words what the load generators do as the suites use them.
var loadTitles = map[string]string{
	"ab":  "New connections (ab)",
	"wrk": "Kept connections (wrk)",

	"distribution": "How flows are spread",
	"memory":       "What remembering a flow takes",
	"scale":        "What size costs",

	"dnsperf": "DNS queries (dnsperf)",

	"change": "Live connections while backends change",

	"arrivals":     "Requests at a fixed rate, new connections (open loop)",
	"highest-rate": "The highest rate that holds, new connections (open loop)",
	"https":        "New connections with TLS (ab)",
	"https-kept":   "Kept connections with TLS (wrk)",

	"crr": "A connection for each transaction (TCP_CRR)",
	"rr":  "Transactions over kept connections (TCP_RR)",

	"bulk":        "Bulk transfer (iperf3)",
	"bulk-frames": "Bulk transfer in single frames (iperf3)",
}

// title is the load's name, in words where they are known.
func (s *section) title() string {
	if title, ok := loadTitles[s.Load]; ok {
		return title
	}
	return wording.Clean(s.Load)
}

var requestReading = []paragraph{
	{"Closed loop",
		"A client sends its next request when the last one is answered. A slow subject is therefore offered less, and its latency looks better than it would under a fixed rate of arrivals: throughput and latency are two sides of the same figure, about concurrency ÷ requests/s."},
	{"Shared cores",
		"Clients, switch, balancer and servers run on the cores of one machine. A subject that needs less CPU leaves more for the others and so serves more requests: ratios depend on how much the rest costs, and on separate machines they would differ. The balancer's CPU time per request carries over best."},
	{"Saturated",
		"The part that was out of CPU, or refused work, while others still had room. Where it is not the balancer, the requests/s are a lower bound of what that subject could do. “none” means that no part was short, “unknown” that the probes did not tell."},
}

var spreadReading = paragraph{"Medians and certainty",
	"Repeats of different subjects are interleaved, so a slow minute of the machine touches all of them. The ratio of two subjects is estimated from the pairs that each repeat makes (Hodges and Lehmann; of fewer than six pairs, their geometric mean), with the interval of Wilcoxon's signed-rank test (or Student's). Two subjects are told apart where the interval is all on one side of 1."}

var bulkReading = []paragraph{
	{"Bulk transfer",
		"A sender goes as fast as TCP lets it, so the figure is what clients, switch, balancer and servers together can move with the machine's cores. What a balancer that passes both directions adds to that is seen in the ratio to plain forwarding at the same place, not in the gigabits."},
	{"Shared cores",
		"All of them share the cores of one machine: a balancer that needs less leaves more for the others. On separate machines ratios would differ; a proxy's would suffer less, since it has cores of its own there."},
	{"Offloads", "With offloads a packet of up to 64 KiB crosses the laboratory in one piece, as between network cards with TSO and GRO; without, every frame of 1,500 bytes costs its way through each device and hides most of what a balancer costs besides."},
}

var publishedReading = paragraph{"Published figures",
	"They are a document's, measured on other machines: shapes compare, numbers do not. Its latency may mean something else, too; ours is what clients waited."}

var packetReading = []paragraph{
	{"What a packet costs here",
		"The kernel runs the program over and over on one core (BPF_PROG_TEST_RUN) without a network card: parsing, lookup and rewriting, but no driver, no interrupt, no DMA. The empty program is the cost of the harness itself."},
	{"Flows", "One flow keeps everything in the nearest cache and flatters every balancer. The figure with a million flows is the one that a busy service sees."},
}
