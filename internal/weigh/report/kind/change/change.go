// SPDX-License-Identifier: Apache-2.0

// Package change reports connections that are held while backends change.
package change

import (
	"fmt"
	"slices"
	"strings"

	"github.com/jeoul/jeoul/internal/weigh/report/chart"
	"github.com/jeoul/jeoul/internal/weigh/report/model"
	"github.com/jeoul/jeoul/internal/weigh/report/wording"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// movedTarget is the share of flows, in per cent, that may move beyond the flows of the backend that left.
const movedTarget = 2

// changeSheets are the tables of a change experiment.
func changeSheets(s *model.Section) []model.Sheet {
	return slices.Concat(
		byEvent(s, model.Sheet{Title: "Connections that broke",
			Lead: "Of the connections that were held open to backends that stayed; of several repeats the worst.",
		}, countCell(results.Broken)),
		breakCauses(s),
		agesOfBroken(s),
		byEvent(s, model.Sheet{Title: "Connections of the backend that left, ended",
			Lead:  "Expected, and not among the broken.",
			Notes: []string{"0: the balancer goes on sending them to the backend, which here still runs."},
		}, countCell(results.Ended)),
		byEvent(s, model.Sheet{Title: "New connections that failed",
			Lead: "Of those that were opened while the changes were made."}, countCell(results.NewFailed)),
		byEvent(s, model.Sheet{Title: "New connections to a backend that takes none",
			Lead: "Begun after the change was done, and answered by a backend that was taken out or drains."},
			countCell(results.NewToLeft)),
		byEvent(s, model.Sheet{Title: "UDP queries without an answer"}, countCell(results.UDPUnanswered)),
		byEvent(s, model.Sheet{Title: "Numbered packets that were lost",
			Lead: "Of datagrams that are numbered when they are sent, and counted by number where servers receive them: how many are missing, of how many, and at how many a second they were sent."}, numberedCell),
		byEvent(s, model.Sheet{Title: "Where numbered packets were lost",
			Lead: "By the laboratory before they came to the balancer, between the switch's port to the balancer and back, and by the laboratory behind it: which numbers passed is counted there, too."}, placesCell),
		byEvent(s, model.Sheet{Title: "Numbered packets that came twice"}, countCell(results.NumberedTwice)),
		byEvent(s, model.Sheet{Title: "UDP flows that moved",
			Lead: "Answers by another backend than before, although that one had stayed."},
			countCell(results.UDPMoved)),
		shareSheet(s),
		byEvent(s, model.Sheet{Title: "SYNs that were lost",
			Lead: "Of clients that use their ports again and again: their kernel had to send another, or none was answered."}, countCell(results.LostSYNs)),
		silenceSheet(s),
		faultSheet(s),
		againSheet(s),
		byEvent(s, model.Sheet{Title: "How long a change took",
			Lead: tookLead(s)}, tookCell),
		byEvent(s, model.Sheet{Title: "Flows that the balancer remembers",
			Lead: "One by one, at most during the event; an entry outlives its connection by its timeout. Without a figure: the balancer does not tell, or holds them as sockets.",
		}, countCell(results.TrackedFlowsMax)),
		byEvent(s, model.Sheet{Title: "Processes and memory",
			Lead: "The balancer's processes when the event was over, and what they have of the machine's memory together.", Secondary: true}, processCell),
		byEvent(s, model.Sheet{Title: "Latency",
			Lead:      "p99 and the longest of all requests over held connections during the event, in milliseconds.",
			Secondary: true}, latencyCell),
		byEvent(s, model.Sheet{Title: "Requests", Lead: "Over held connections, answered rightly.", Secondary: true},
			countCell(results.Requests)),
		byEvent(s, model.Sheet{Title: "New connections",
			Lead: "Opened during the event, those in the place of broken ones included.", Secondary: true},
			countCell(results.NewConnections)),
		byEvent(s, model.Sheet{Title: "Connections from ports that are used again", Lead: "Answered rightly.", Secondary: true},
			countCell(results.ReusedConnections)),
		byEvent(s, model.Sheet{Title: "Connections from ports that are used again which failed", Secondary: true},
			countCell(results.ReusedFailed)),
		byEvent(s, model.Sheet{Title: "Ports that were not free",
			Lead:      "Connections that could not be tried, for the one before from the same port had not ended.",
			Secondary: true}, countCell(results.ReusedTaken)),
		byEvent(s, model.Sheet{Title: "UDP queries", Secondary: true}, countCell(results.UDPQueries)),
		byEvent(s, model.Sheet{Title: "Resets that backends sent",
			Lead:      "Packets came to a backend that did not know the connection, or a client had given one up.",
			Secondary: true}, countCell(results.BackendResets)),
	)
}

// tookLead explains the figures of tookCell.
func tookLead(s *model.Section) string {
	if slices.ContainsFunc(s.Points(), func(p *model.Point) bool { return took(p).Sure() }) {
		return "Milliseconds until the balancer said, or showed, that it was done: the mean of the event's, in brackets its interval from the repeats, and the longest."
	}
	return "Milliseconds until the balancer said, or showed, that it was done: the mean of the event's, and the longest."
}

func took(p *model.Point) model.Comparison {
	return model.Level([]*model.Point{p}, results.AppliedMsMean)
}

func tookCell(p *model.Point) string {
	if !p.Has(results.AppliedMsMean) {
		return wording.Missing
	}
	most := p.Stats[results.AppliedMsMax].Max
	mean := wording.Decimal(p.Stats[results.AppliedMsMean].Median, 1)
	if level := took(p); level.Sure() {
		mean = level.LevelText(func(v float64) string { return wording.Decimal(v, 1) })
	}
	if p.Stats[results.Applied].Max < 2 {
		return mean
	}
	return mean + ", " + wording.Decimal(most, 1)
}

// numberedCell shows the lost numbered packets of the worst repeat, the number sent, and the rate of sending.
func numberedCell(p *model.Point) string {
	if !p.Has(results.NumberedSent) {
		return wording.Missing
	}
	return strings.Join([]string{wording.Decimal(p.Stats[results.NumberedMissing].Max, 0),
		wording.Decimal(p.Stats[results.NumberedSent].Median, 0),
		wording.Decimal(p.Stats[results.NumberedPerSecond].Median, 0)}, ", ")
}

// placesCell shows where the numbered packets of the worst repeat were lost, if any were.
func placesCell(p *model.Point) string {
	if p.Stats[results.NumberedMissing].Max == 0 || !p.Has(results.NumberedBalancer) {
		return wording.Missing
	}
	return strings.Join([]string{wording.Decimal(p.Stats[results.NumberedBefore].Max, 0),
		wording.Decimal(p.Stats[results.NumberedBalancer].Max, 0),
		wording.Decimal(p.Stats[results.NumberedBehind].Max, 0)}, ", ")
}

func processCell(p *model.Point) string {
	if p.Stats[results.BalancerProcesses].Max == 0 {
		return wording.Missing
	}
	return wording.Decimal(p.Stats[results.BalancerProcesses].Max, 0) + ", " +
		wording.BytesText(p.Stats[results.BalancerMemoryBytes].Max)
}

func latencyCell(p *model.Point) string {
	if !p.Has(results.LatencyMsP99) {
		return wording.Missing
	}
	return wording.Decimal(p.Stats[results.LatencyMsP99].Median, 1) + ", " +
		wording.Decimal(p.Stats[results.LatencyMsMax].Max, 1)
}

// breakCauses lists the events in which connections broke, by cause.
func breakCauses(s *model.Section) []model.Sheet {
	sh := model.Sheet{Title: "How they broke", Columns: []model.Column{{Title: "Subject"}, {Title: "Event"}}}
	causes := []struct{ title, metric string }{
		{"Reset", results.BrokenReset}, {"Closed", results.BrokenClosed}, {"Silent", results.BrokenSilent},
		{"Answered by another", results.BrokenMoved}, {"Answered wrongly", results.BrokenWrong},
	}
	for _, c := range causes {
		sh.Columns = append(sh.Columns, model.Column{Title: c.title, Numeric: true})
	}
	rows, events := changeRows(s)
	for _, r := range rows {
		var lines []model.Line
		for _, event := range append(events, model.EventShare) {
			p := r.at[event]
			if p == nil || p.Stats[results.Broken].Max == 0 {
				continue
			}
			l := model.Line{Cells: []string{wording.Clean(r.label), model.EventText(event)}}
			for _, c := range causes {
				l.Cells = append(l.Cells, wording.Decimal(p.Stats[c.metric].Max, 0))
			}
			lines = append(lines, l)
		}
		sh.Group(lines)
	}
	return sh.List()
}

// agesOfBroken lists the events of balancers in which connections broke, by the connections' age when packets moved.
func agesOfBroken(s *model.Section) []model.Sheet {
	sh := model.Sheet{Title: "How old they were when packets moved between balancers",
		Lead: "Balancers tell each other of a connection within half a second after its proof: one younger than a second may not be known elsewhere yet.",
		Columns: []model.Column{{Title: "Subject"}, {Title: "Event"}, {Title: "Younger than a second", Numeric: true},
			{Title: "Older", Numeric: true}}}
	rows, events := changeRows(s)
	for _, r := range rows {
		var lines []model.Line
		for _, event := range events {
			if p := r.at[event]; p != nil && p.Has(results.BrokenYoung) && p.Stats[results.Broken].Max > 0 {
				lines = append(lines, model.Line{Cells: []string{wording.Clean(r.label), model.EventText(event),
					wording.Decimal(p.Stats[results.BrokenYoung].Max,
						0), wording.Decimal(p.Stats[results.BrokenOlder].Max, 0)}})
			}
		}
		sh.Group(lines)
	}
	return sh.List()
}

// shareSheet shows which flows moved when a backend left.
func shareSheet(s *model.Section) []model.Sheet {
	fields := []model.Field{model.SubjectField(s),
		model.Fixed(model.MetricField("Tried", "flows", results.FlowsTried), 0),
		model.PercentField("Moved", results.FlowsMovedPercent),
		model.PercentField("Had the one that left", results.FlowsOfLeftPercent),
		model.PercentField("Moved beyond those", results.FlowsMovedBeyondPercent),
		model.Fixed(model.MetricField("Broken", "", results.Broken), 0),
	}
	return model.WithoutBaseline(s.Tabulate(model.Sheet{
		Title: "Which flows move when a backend leaves",
		Lead:  "New connections from the same local ports, before one of the backends left and after it, each with a backend of its own choice: what the hash table's change alone does. Connections that were held meanwhile are in the last column.",
	}, results.FlowsMovedBeyondPercent, fields))
}

// changeVerdict names the subjects that failed, those that broke connections, and those whose flows moved.
func changeVerdict(s *model.Section) []string {
	rows, _ := changeRows(s)
	var sentences []string
	for _, r := range rows {
		if len(r.failed) > 0 {
			sentences = append(sentences, r.failure())
		}
	}
	// In these events, failures until a balancer has noticed are counted separately.
	noticed := append([]string{model.EventSilent}, faultEvents...)
	for _, what := range []struct {
		metric, none, some string
		but                []string
	}{
		{results.Broken, "Not one connection to a backend that stayed broke in any event through",
			"broke connections to backends that stayed", nil},
		{results.NewFailed, "Every new connection was answered through", "failed new connections", noticed},
		{results.NewToLeft, "No new connection went to a backend that takes none through",
			"sent new connections to backends that take none", nil},
		{results.LostSYNs, "No SYN was lost of clients that use their ports again through",
			"lost SYNs of clients that use their ports again", noticed},
		{results.UDPUnanswered, "Every UDP query was answered through", "left UDP queries without an answer", noticed},
		{results.NumberedMissing, "Not one numbered packet was lost through", "lost numbered packets", nil},
		{results.NumberedBalancer,
			"Not one numbered packet was lost between the switch's port to the balancer and back through",
			"lost numbered packets between the switch's port to the balancer and back", nil},
		{results.UDPMoved, "No UDP flow moved whose backend stayed through", "moved UDP flows whose backend stayed",
			nil},
	} {
		sentences = append(sentences, countedRows(rows, what.metric, what.none, what.some, what.but)...)
	}
	return slices.Concat(sentences, silenceVerdict(rows), faultVerdict(rows), againVerdict(rows), shareVerdict(s))
}

// shareVerdict compares the share of flows that moved with the target.
func shareVerdict(s *model.Section) []string {
	var all []model.TargetResult
	for _, p := range s.Points() {
		if !p.Has(results.FlowsMovedBeyondPercent) {
			continue
		}
		j := model.TargetResult{What: wording.Clean(p.Label) + ", flows that moved beyond those of the backend that left",
			Bound:  fmt.Sprintf("%d %%", movedTarget),
			Format: func(v float64) string { return wording.Decimal(v, 2) + " %" }}
		j.Figures.Add(p.Stats[results.FlowsMovedBeyondPercent].Max, true)
		j.Holds = j.Figures.High <= movedTarget
		all = append(all, j)
	}
	return model.TargetSentences(all, "")
}

// changeFigures draws the only figure that compares at a glance: the duration of a reload.
func changeFigures(s *model.Section, _ *chart.Palette) []chart.Figure {
	rows, _ := changeRows(s)
	c := &chart.Chart{Axis: "ms", Kind: chart.Bars}
	for _, r := range rows {
		if p := r.at[model.EventReload]; p != nil && p.Has(results.AppliedMsMean) {
			st := p.Stats[results.AppliedMsMean]
			c.Rows = append(c.Rows, chart.Row{Label: wording.Clean(r.label), Value: wording.Decimal(st.Median, 1),
				Marks: []chart.Mark{{Value: st.Median, Low: st.Min, High: st.Max, Ink: chart.InkQuiet}}})
		}
	}
	return []chart.Figure{{Title: "How long a reload without change takes",
		Caption: "Less is better: from the request until the balancer said, or showed, that it was done.", Chart: c}}
}
