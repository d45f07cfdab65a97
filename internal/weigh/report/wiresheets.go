// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/jeoul/jeoul/internal/weigh/report/wording"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// wireShown are the metrics that tables of packet-level loads have columns for.
var wireShown = []string{
	results.SessionsPerSecond, results.ConnectionsPerSecond, results.QueriesPerSecond, results.PacketsPerSecond,
	results.OfferedPerSecond, results.BegunPerSecond, results.WireBegun, results.WireEstablished, results.WireAccepted,
	results.WireCompleted,
	results.Failed, results.FailedPercent, results.FailedNoAnswer, results.FailedReset, results.FailedWrongBackend,
	results.FailedChecksum, results.FailedUnsent,
	results.SetupLatencyMsP50, results.SetupLatencyMsP99, results.SetupLatencyMsMax,
	results.ResponseLatencyMsP50, results.ResponseLatencyMsP99, results.ResponseLatencyMsMax,
	results.UnevennessPercent, results.BalancerCPUUsPerConnection, results.CeilingPerSecond,
	results.RememberedMax, results.RememberedLimit, results.RememberedBytes, results.MachineBytes,
	results.FloodSentPerSecond, results.FloodArrivedPerSecond, results.TesterKeptUp,
}

// keepFilled leaves out tables with nothing in them.
func keepFilled(s *section, all ...sheet) []sheet {
	return slices.DeleteFunc(all, func(sh sheet) bool { return sh.empty() || len(sh.Columns) <= 1+len(placeFields(s)) })
}

// against holds a point's rate against the best of another subject.
func (s *section) against(subject string) field {
	metric, _, _ := s.wireRate()
	f := ratioField("× "+subject, metric, subject, metric)
	if !s.measured(subject) {
		f.cell = func(*group, *point, int) string { return wording.Missing }
	}
	return f
}

// wirePeakSheets are the tables of a load with one rate for each subject.
func wirePeakSheets(s *section) []sheet {
	metric, title, noun := s.wireRate()
	fields := []field{subjectField(s)}
	fields = append(fields, placeFields(s)...)
	fields = append(fields, fixed(metricField("Offered", "/s", results.OfferedPerSecond), 0),
		fixed(metricField(title, "", metric), 0), spreadField("Spread", metric),
		s.against(baselineSubject), s.against(bareSubject), s.against(iptablesSubject), s.against(proxyTCPSubject),
		percentField("Failed", results.FailedPercent))
	fields = append(fields, wireLatencyFields()...)
	fields = append(fields, percentField("Uneven", results.UnevennessPercent),
		fixed(metricField("Balancer CPU", "µs each", results.BalancerCPUUsPerConnection), 2),
		fixed(metricField("SYNs of the flood", "/s", results.FloodSentPerSecond), 0),
		saturatedField(), repeatsField())
	sh := sheet{
		Title: "Rates",
		Lead: fmt.Sprintf(
			"Medians over the valid repeats, in %s a second, and how many times the best of others they are.",
			nouns(noun)),
		Notes: []string{
			"Uneven: the greatest difference of a server's " + nouns(noun) + " from an equal share.",
			"bare is the limit for a balancer whose servers answer directly, direct what the tester itself reaches.",
		},
	}
	sh.fill(s, fields)
	return keepFilled(s, sh, failedSheet(s), restSheet(s, wireShown...))
}

func wireLatencyFields() []field {
	return []field{
		fixed(metricField("Setup p50", "ms", results.SetupLatencyMsP50), 3),
		fixed(metricField("Setup p99", "ms", results.SetupLatencyMsP99), 3),
		fixed(metricField("Response p50", "ms", results.ResponseLatencyMsP50), 3),
		fixed(metricField("Response p99", "ms", results.ResponseLatencyMsP99), 3),
	}
}

// failedSheet says why connections failed.
func failedSheet(s *section) sheet {
	fields := []field{subjectField(s)}
	fields = append(fields, placeFields(s)...)
	fields = append(fields, fixed(metricField("Begun", "", results.WireBegun), 0),
		fixed(metricField("Established", "", results.WireEstablished), 0),
		fixed(metricField("At servers", "", results.WireAccepted), 0),
		fixed(metricField("Completed", "", results.WireCompleted), 0))
	for _, cause := range []struct{ title, metric string }{
		{"No answer", results.FailedNoAnswer}, {"Reset", results.FailedReset},
		{"Another server", results.FailedWrongBackend},
		{"Checksum", results.FailedChecksum}, {"Not begun", results.FailedUnsent},
	} {
		fields = append(fields, fixed(metricField(cause.title, "", cause.metric), 0))
	}
	sh := sheet{
		Title: "What became of them",
		Lead:  "How many were begun, and those that came to nothing, by cause; medians over the valid repeats.",
		Notes: []string{"Another server: a packet of the connection came to a server other than the one that had answered its SYN.",
			"At servers: through a proxy, those that were established with it may be more; a rate counts the fewer of the two."},
		Aside: true,
	}
	sh.fill(s, fields)
	return sh
}

// ladderSheets are the tables of a load with a series of rates.
func ladderSheets(s *section) []sheet {
	metric, _, noun := s.wireRate()
	return slices.Concat(
		[]sheet{ladderSummary(s)},
		pivot(s, metric, 0, sheet{
			Title: "Established at each rate",
			Lead: fmt.Sprintf("%s a second at each offered rate; medians over the valid repeats.",
				capital(nouns(noun))),
		}),
		pivot(s, results.UnevennessPercent, 2, sheet{
			Title: "Evenness at each rate",
			Lead: fmt.Sprintf("The greatest difference of a server's %s from an equal share, in per cent.",
				nouns(noun)),
			Aside: true,
		}),
		keepFilled(s, failedSheet(s), restSheet(s, wireShown...)),
	)
}

func capital(word string) string { return string(word[0]-'a'+'A') + word[1:] }

// pivot is a table with a row for each rate and a column for each subject.
func pivot(s *section, metric string, decimals int, sh sheet) []sheet {
	sh.Columns = []column{{Title: "Offered", Unit: "/s", Numeric: true}}
	labels := s.labels()
	for _, label := range labels {
		sh.Columns = append(sh.Columns, column{Title: wording.Clean(label), Numeric: true})
	}
	var rows []line
	for _, g := range s.Groups {
		offered := g.Params[paramOffered]
		if !offered.numeric || len(g.Points) == 0 {
			continue
		}
		row := line{Cells: []string{wording.Decimal(offered.number, 0)}}
		for _, label := range labels {
			cell := wording.Missing
			if p := g.labelled(label); p != nil && p.has(metric) {
				cell = wording.Decimal(p.Stats[metric].Median, decimals)
			}
			row.Cells = append(row.Cells, cell)
		}
		rows = append(rows, row)
	}
	if len(rows) == 0 {
		return nil
	}
	sh.Groups = [][]line{rows}
	return []sheet{sh}
}

// ladderClimb is how far a subject got.
type ladderClimb struct {
	label, subject string
	// lossless is the highest rate up to which every step lost no more than lossless
	// allows; whole says that it is the highest of all.
	lossless float64
	whole    bool
	peak     float64
	// uneven is the worst of all steps.
	uneven float64
	robin  bool
	points []*point
}

// ladderLoss is the share of failures, in per cent, up to which a step lost nothing to
// speak of.
const ladderLoss = 0.1

// climb follows a subject up the ladder.
func (s *section) climb(label string) ladderClimb {
	metric, _, _ := s.wireRate()
	c := ladderClimb{label: label, points: s.along(label), whole: true}
	for _, p := range c.points {
		c.subject, c.robin = p.Subject, roundRobin(p)
		c.peak = max(c.peak, p.Stats[metric].Median)
		c.uneven = max(c.uneven, p.Stats[results.UnevennessPercent].Max)
		if p.Stats[results.FailedPercent].Median > ladderLoss {
			c.whole = false
		}
		if c.whole {
			c.lossless = p.Params[paramOffered].number
		}
	}
	return c
}

// ladderSummary has a row for each subject.
func ladderSummary(s *section) sheet {
	_, title, noun := s.wireRate()
	sh := sheet{
		Title: "How far each got",
		Lead: fmt.Sprintf(
			"The highest offered rate up to which at most %s %% failed at every step, the most %s a second of all steps, and the worst evenness of all.",
			wording.Decimal(ladderLoss, 1), nouns(noun)),
		Columns: []column{{Title: "Subject"}, {Title: "Without loss up to", Unit: "/s", Numeric: true},
			{Title: "Most", Unit: title, Numeric: true},
			{Title: "Setup p50", Unit: "ms", Numeric: true}, {Title: "Setup p99", Unit: "ms", Numeric: true},
			{Title: "Uneven", Unit: "%", Numeric: true}, {Title: "Saturated"}},
		Notes: []string{"Latencies: of the last step without loss."},
	}
	var rows []line
	for _, label := range s.labels() {
		c := s.climb(label)
		row := line{Baseline: c.subject == s.Baseline,
			Cells: []string{wording.Clean(label), wording.Missing, wording.Decimal(c.peak, 0),
				wording.Missing, wording.Missing, wording.Decimal(c.uneven, 2), wording.Missing}}
		var words []string
		for _, p := range c.points {
			words = append(words, p.saturated...)
			if c.lossless > 0 && p.Params[paramOffered].number == c.lossless {
				row.Cells[1] = wording.Decimal(c.lossless, 0)
				for i, metric := range []string{results.SetupLatencyMsP50, results.SetupLatencyMsP99} {
					if p.has(metric) {
						row.Cells[3+i] = wording.Decimal(p.Stats[metric].Median, 3)
					}
				}
			}
		}
		row.Cells[6] = cmp.Or(tally(words, true), wording.Missing)
		rows = append(rows, row)
	}
	sh.Groups = [][]line{rows}
	return sh
}

// capacitySheets are the tables of connections that are held.
func capacitySheets(s *section) []sheet {
	bytesField := func(title, metric string) field {
		return field{column: column{Title: title, Numeric: true}, cell: func(_ *group, p *point, _ int) string {
			if !p.has(metric) {
				return wording.Missing
			}
			return wording.BytesText(p.Stats[metric].Median)
		}}
	}
	fields := []field{subjectField(s)}
	fields = append(fields, placeFields(s)...)
	fields = append(fields,
		fixed(metricField("Asked for", "", results.WireBegun), 0),
		fixed(metricField("Held", "", results.WireEstablished), 0),
		fixed(metricField("Proven alive", "", results.WireCompleted), 0),
		fixed(metricField("Remembered", "", results.RememberedMax), 0),
		fixed(metricField("Bound", "", results.RememberedLimit), 0),
		bytesField("Tables", results.RememberedBytes), bytesField("Machine", results.MachineBytes),
		fixed(metricField("Set up", "/s", results.ConnectionsPerSecond), 0),
		fixed(metricField("Uneven", "%", results.UnevennessPercent), 2),
		repeatsField())
	sh := sheet{
		Title: "Connections held at a time",
		Lead:  "Connections that were set up and held together; at the end each one is asked, and has to be answered by its own server.",
		Notes: []string{
			"Remembered: what the balancer kept for them at most, as it tells itself; Bound: what it has room for; Tables: the memory for that.",
			"Machine: by how much the machine's available memory fell meanwhile, which is more than tables where the kernel, or a process, allocates as it goes.",
		},
	}
	sh.fill(s, fields)
	return keepFilled(s, sh, failedSheet(s), restSheet(s, wireShown...))
}
