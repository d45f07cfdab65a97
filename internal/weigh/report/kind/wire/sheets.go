// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/jeoul/jeoul/internal/weigh/report/model"
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

// against compares a point's rate with the best rate of another subject.
func against(s *model.Section, subject string) model.Field {
	metric, _, _ := wireRate(s)
	f := model.RatioField("× "+subject, metric, subject, metric)
	if !s.Measured(subject) {
		f.Cell = func(*model.Group, *model.Point, int) string { return wording.Missing }
	}
	return f
}

// wirePeakSheets are the tables of a load with one rate for each subject.
func wirePeakSheets(s *model.Section) []model.Sheet {
	metric, title, noun := wireRate(s)
	fields := append(s.Rows(), model.Fixed(model.MetricField("Offered", "/s", results.OfferedPerSecond), 0),
		model.Fixed(model.MetricField(title, "", metric), 0), model.SpreadField("Spread", metric),
		against(s, model.BaselineSubject), against(s, model.BareSubject), against(s, model.IptablesSubject),
		against(s, model.ProxyTCPSubject),
		model.PercentField("Failed", results.FailedPercent))
	fields = append(fields, wireLatencyFields()...)
	fields = append(fields, model.PercentField("Uneven", results.UnevennessPercent),
		model.Fixed(model.MetricField("Balancer CPU", "µs each", results.BalancerCPUUsPerConnection), 2),
		model.Fixed(model.MetricField("SYNs of the flood", "/s", results.FloodSentPerSecond), 0),
		model.SaturatedField(), model.RepeatsField())
	return s.Shown(model.Sheet{
		Title: "Rates",
		Lead: fmt.Sprintf(
			"Medians over the valid repeats, in %s a second, and how many times the best of others they are.",
			nouns(noun)),
		Notes: []string{
			"Uneven: the greatest difference of a server's " + nouns(noun) + " from an equal share.",
			"bare is the limit for a balancer whose servers answer directly, direct what the tester itself reaches.",
		},
	}.Of(s, fields), failedSheet(s), model.RestSheet(s, wireShown...))
}

func wireLatencyFields() []model.Field {
	return []model.Field{
		model.Fixed(model.MetricField("Setup p50", "ms", results.SetupLatencyMsP50), 3),
		model.Fixed(model.MetricField("Setup p99", "ms", results.SetupLatencyMsP99), 3),
		model.Fixed(model.MetricField("Response p50", "ms", results.ResponseLatencyMsP50), 3),
		model.Fixed(model.MetricField("Response p99", "ms", results.ResponseLatencyMsP99), 3),
	}
}

// failedSheet shows the reasons why connections failed.
func failedSheet(s *model.Section) model.Sheet {
	fields := append(s.Rows(), model.Fixed(model.MetricField("Begun", "", results.WireBegun), 0),
		model.Fixed(model.MetricField("Established", "", results.WireEstablished), 0),
		model.Fixed(model.MetricField("At servers", "", results.WireAccepted), 0),
		model.Fixed(model.MetricField("Completed", "", results.WireCompleted), 0))
	for _, cause := range []struct{ title, metric string }{
		{"No answer", results.FailedNoAnswer}, {"Reset", results.FailedReset},
		{"Another server", results.FailedWrongBackend},
		{"Checksum", results.FailedChecksum}, {"Not begun", results.FailedUnsent},
	} {
		fields = append(fields, model.Fixed(model.MetricField(cause.title, "", cause.metric), 0))
	}
	return model.Sheet{
		Title: "What became of them",
		Lead:  "How many were begun, and those that came to nothing, by cause; medians over the valid repeats.",
		Notes: []string{"Another server: a packet of the connection came to a server other than the one that had answered its SYN.",
			"At servers: through a proxy, those that were established with it may be more; a rate counts the fewer of the two."},
		Secondary: true,
	}.Of(s, fields)
}

// ladderSheets are the tables of a load with a series of rates.
func ladderSheets(s *model.Section) []model.Sheet {
	metric, _, noun := wireRate(s)
	return slices.Concat(
		[]model.Sheet{ladderSummary(s)},
		pivot(s, metric, 0, model.Sheet{
			Title: "Established at each rate",
			Lead: fmt.Sprintf("%s a second at each offered rate; medians over the valid repeats.",
				capital(nouns(noun))),
		}),
		pivot(s, results.UnevennessPercent, 2, model.Sheet{
			Title: "Evenness at each rate",
			Lead: fmt.Sprintf("The greatest difference of a server's %s from an equal share, in per cent.",
				nouns(noun)),
			Secondary: true,
		}),
		s.Shown(failedSheet(s), model.RestSheet(s, wireShown...)),
	)
}

func capital(word string) string { return string(word[0]-'a'+'A') + word[1:] }

// pivot returns a table with a row for each rate and a column for each subject.
func pivot(s *model.Section, metric string, decimals int, sh model.Sheet) []model.Sheet {
	sh.Columns = []model.Column{{Title: "Offered", Unit: "/s", Numeric: true}}
	labels := labels(s)
	for _, label := range labels {
		sh.Columns = append(sh.Columns, model.Column{Title: wording.Clean(label), Numeric: true})
	}
	var rows []model.Line
	for _, g := range s.Groups {
		offered := g.Params[model.ParamOffered]
		if !offered.Numeric || len(g.Points) == 0 {
			continue
		}
		row := model.Line{Cells: []string{wording.Decimal(offered.Number, 0)}}
		for _, label := range labels {
			cell := wording.Missing
			if p := labelled(g, label); p != nil && p.Has(metric) {
				cell = wording.Decimal(p.Stats[metric].Median, decimals)
			}
			row.Cells = append(row.Cells, cell)
		}
		rows = append(rows, row)
	}
	if len(rows) == 0 {
		return nil
	}
	sh.Groups = [][]model.Line{rows}
	return []model.Sheet{sh}
}

// ladderClimb is the progress of a subject up the ladder of rates.
type ladderClimb struct {
	label, subject string
	// lossless is the highest rate up to which no step lost more than ladderLoss; whole reports whether it is the
	// highest rate of all.
	lossless float64
	whole    bool
	peak     float64
	// uneven is the worst unevenness of all steps, none the number of steps in which nothing came through.
	uneven float64
	none   int
	robin  bool
	points []*model.Point
}

// ladderLoss is the share of failures, in per cent, up to which a step counts as lossless.
const ladderLoss = 0.1

// climb follows a subject up the ladder. A step that is not valid, in one repeat or in all, has lost everything.
func climb(s *model.Section, label string) ladderClimb {
	metric, _, _ := wireRate(s)
	c := ladderClimb{label: label, points: along(s, label), whole: true}
	for _, g := range s.Groups {
		if !g.Params[model.ParamOffered].Numeric {
			continue
		}
		p := labelled(g, label)
		if p == nil {
			c.whole = false
			c.none++
			continue
		}
		c.subject, c.robin = p.Subject, model.RoundRobin(p)
		c.peak = max(c.peak, p.Stats[metric].Median)
		c.uneven = max(c.uneven, p.Stats[results.UnevennessPercent].Max)
		if p.Valid < p.Trials || p.Stats[results.FailedPercent].Median > ladderLoss {
			c.whole = false
		}
		if c.whole {
			c.lossless = p.Params[model.ParamOffered].Number
		}
	}
	return c
}

// ladderSummary has a row for each subject.
func ladderSummary(s *model.Section) model.Sheet {
	_, title, noun := wireRate(s)
	sh := model.Sheet{
		Title: "How far each got",
		Lead: fmt.Sprintf(
			"The highest offered rate up to which at most %s %% failed at every step, the most %s a second of all steps, and the worst evenness of all.",
			wording.Decimal(ladderLoss, 1), nouns(noun)),
		Columns: []model.Column{{Title: "Subject"}, {Title: "Without loss up to", Unit: "/s", Numeric: true},
			{Title: "Most", Unit: title, Numeric: true},
			{Title: "Setup p50", Unit: "ms", Numeric: true}, {Title: "Setup p99", Unit: "ms", Numeric: true},
			{Title: "Uneven", Unit: "%", Numeric: true}, {Title: "Saturated"}},
		Notes: []string{"Latencies: of the last step without loss."},
	}
	var rows []model.Line
	for _, label := range labels(s) {
		c := climb(s, label)
		row := model.Line{Baseline: c.subject == s.Baseline,
			Cells: []string{wording.Clean(label), wording.Missing, wording.Decimal(c.peak, 0),
				wording.Missing, wording.Missing, wording.Decimal(c.uneven, 2), wording.Missing}}
		var words []string
		for _, p := range c.points {
			words = append(words, p.Limits...)
			if c.lossless > 0 && p.Params[model.ParamOffered].Number == c.lossless {
				row.Cells[1] = wording.Decimal(c.lossless, 0)
				for i, metric := range []string{results.SetupLatencyMsP50, results.SetupLatencyMsP99} {
					if p.Has(metric) {
						row.Cells[3+i] = wording.Decimal(p.Stats[metric].Median, 3)
					}
				}
			}
		}
		row.Cells[6] = cmp.Or(model.Tally(words, true), wording.Missing)
		rows = append(rows, row)
	}
	sh.Groups = [][]model.Line{rows}
	return sh
}

// capacitySheets are the tables of connections that are held.
func capacitySheets(s *model.Section) []model.Sheet {
	fields := append(s.Rows(),
		model.Fixed(model.MetricField("Asked for", "", results.WireBegun), 0),
		model.Fixed(model.MetricField("Held", "", results.WireEstablished), 0),
		model.Fixed(model.MetricField("Proven alive", "", results.WireCompleted), 0),
		model.Fixed(model.MetricField("Remembered", "", results.RememberedMax), 0),
		model.Fixed(model.MetricField("Bound", "", results.RememberedLimit), 0),
		model.MedianField("Tables", "", results.RememberedBytes, wording.BytesText),
		model.MedianField("Machine", "", results.MachineBytes, wording.BytesText),
		model.Fixed(model.MetricField("Set up", "/s", results.ConnectionsPerSecond), 0),
		model.Fixed(model.MetricField("Uneven", "%", results.UnevennessPercent), 2),
		model.RepeatsField())
	return s.Shown(model.Sheet{
		Title: "Connections held at a time",
		Lead:  "Connections that were set up and held together; at the end each one is asked, and has to be answered by its own server.",
		Notes: []string{
			"Remembered: what the balancer kept for them at most, as it tells itself; Bound: what it has room for; Tables: the memory for that.",
			"Machine: by how much the machine's available memory fell meanwhile, which is more than tables where the kernel, or a process, allocates as it goes.",
		},
	}.Of(s, fields), failedSheet(s), model.RestSheet(s, wireShown...))
}
