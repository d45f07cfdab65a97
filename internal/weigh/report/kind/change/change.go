// SPDX-License-Identifier: Apache-2.0

// Package change reports connections that are held while backends change.
package change

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jeoul/jeoul/internal/weigh/report/chart"
	"github.com/jeoul/jeoul/internal/weigh/report/model"
	"github.com/jeoul/jeoul/internal/weigh/report/wording"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// movedTarget is how many per cent of flows may move beyond those of the backend
// that left.
const movedTarget = 2

// Kind is of changes under live connections.
var Kind = model.Registration{
	Titles: map[string]string{"change": "Live connections while backends change"},
	Name:   "Live connections",
	Of: func(s *model.Section) *model.Kind {
		if !s.HasParam(model.ParamEvent) {
			return nil
		}
		return &model.Kind{Question: "who of those that are connected through each is cut off while its backends change",
			Sheets: changeSheets, Verdict: changeVerdict, Figures: changeFigures, Reading: changeReading,
			Answer: changeAnswer, Overview: changeOverview, Picture: changePicture, Sure: changeSure}
	},
}

var changeReading = []model.Paragraph{
	{Head: "Broken", Text: "A connection that was reset, ended, silent for several retransmissions, or answered by another host, while its backend stayed where it was. Every such connection is a user who was cut off by an operator's change."},
	{Head: "Ended", Text: "Connections of a backend that was taken out. A balancer that forwards packets stops sending to it, so they end: that is what removing means, and what draining is for. Proxies and connection tracking go on with what they have for as long as the backend lives, which here it does; where it dies, theirs end too."},
	{Head: "Flapping", Text: "The backend is taken out and put back again and again by each balancer's own way, so that all meet the same. Its own connections end at each turn and count as ended."},
	{Head: "Restarted, killed, stopped",
		Text: "The balancer's process is replaced by another one, killed and replaced a while later, or stopped for good and started anew. What is in the kernel may go on without the process; what the process itself carries ends with it, and stopping takes everything away."},
	{Head: "Upgraded", Text: "Another build of the balancer, which lays out its tables of flows differently, takes over from the one that runs, and that one from it: an upgrade and a downgrade by turns."},
	{Head: "A balancer that leaves",
		Text: "Of several balancers behind a router, one is drained, stopped, killed, cut off or hung, and comes back; the router then spreads all flows anew. A balancer that chooses by a hash sends a flow where the one before did; one that remembers its choices does not know those of another, and breaks what it chooses differently. How long that took is the time until the router has one way less, or more."},
	{Head: "Fell silent",
		Text: "A backend's host is taken off the segment while it holds connections, and comes back without them. Until a balancer has noticed, it sends a share of the connections there, and their SYNs are lost. A balancer that notices by itself needs no health check for that; one that does not goes on until it is told, and all that is lost counts as before its notice."},
	{Head: "Died, hung",
		Text: "A backend's service is killed, or stopped so that its kernel goes on accepting connections and none is answered; its host answers throughout. All that have health checks ask alike. Until they have found it, a share of the new connections goes there and fails; what fails later is a balancer's own fault."},
	{Head: "Ports that are used again",
		Text: "Clients that open one connection after the other from the same few local ports, as crawlers, proxies and resolvers do. A balancer that remembers flows finds an entry of the connection before. A SYN counts as lost if the client's kernel had to send another, a second later, or if none was answered."},
	{Head: "What a reload leaves",
		Text: "A proxy's old processes live until their last connection ends. After many reloads with long connections there are many of them, each with its memory, and each balances by the configuration that it was started with."},
}

// changeRow is a subject with its parameters, and its point of each event.
type changeRow struct {
	label, subject string
	at             map[string]*model.Point
	// cannot are the events that the subject has no way for, or that failed.
	cannot map[string]bool
}

// changeRows returns the rows in the order of the tables, and the events in the
// order in which they came, but for that of the shares.
func changeRows(s *model.Section) (rows []*changeRow, events []string) {
	row := func(p *model.Point) *changeRow {
		label := s.Label(p, true)
		for _, r := range rows {
			if r.label == label {
				return r
			}
		}
		rows = append(rows, &changeRow{label: label, subject: p.Subject, at: map[string]*model.Point{},
			cannot: map[string]bool{}})
		return rows[len(rows)-1]
	}
	for _, t := range s.Trials {
		event, ok := t.Params[model.ParamEvent].(string)
		if !ok {
			continue
		}
		if event != model.EventShare && !slices.Contains(events, event) {
			events = append(events, event)
		}
		if !t.Valid {
			row(model.NewPoint([]results.Trial{t})).cannot[event] = true
		}
	}
	for _, p := range s.Points() {
		row(p).at[p.Params[model.ParamEvent].Word] = p
	}
	slices.SortStableFunc(rows, func(a, b *changeRow) int {
		return cmp.Compare(slices.Index(s.Subjects, a.subject), slices.Index(s.Subjects, b.subject))
	})
	return rows, events
}

// byEvent is a table with a column for each event.
func byEvent(s *model.Section, sh model.Sheet, cell func(*model.Point) string) []model.Sheet {
	rows, events := changeRows(s)
	sh.Columns = []model.Column{{Title: "Subject"}}
	for _, event := range events {
		sh.Columns = append(sh.Columns, model.Column{Title: eventTitle(s, event), Numeric: true})
	}
	var lines []model.Line
	for _, r := range rows {
		l := model.Line{Cells: []string{wording.Clean(r.label)}}
		shown := false
		for _, event := range events {
			text := wording.Missing
			switch p := r.at[event]; {
			case p != nil:
				text = cell(p)
				shown = shown || text != wording.Missing
			case r.cannot[event]:
				text = "not possible"
			}
			l.Cells = append(l.Cells, text)
		}
		if shown {
			lines = append(lines, l)
		}
	}
	sh.Group(lines)
	if sh.Empty() {
		return nil
	}
	return []model.Sheet{sh}
}

// eventTitle is an event's column head; those that happen often have how often.
func eventTitle(s *model.Section, event string) string {
	title, ok := model.EventTitles[event]
	if !ok {
		title = wording.Clean(event)
	}
	times := 0.0
	for _, p := range s.Points() {
		if p.Params[model.ParamEvent].Word == event {
			times = max(times, p.Stats[results.Applied].Max)
		}
	}
	if event == model.EventFlap {
		times /= 2 // each is two changes
	}
	if times > 1 {
		title += fmt.Sprintf(" %s×", wording.Decimal(times, 0))
	}
	return title
}

// countCell shows a count, the worst of the repeats.
func countCell(metric string) func(*model.Point) string {
	return func(p *model.Point) string {
		if !p.Has(metric) {
			return wording.Missing
		}
		return wording.Decimal(p.Stats[metric].Max, 0)
	}
}

// changeSheets are the tables of a change experiment.
func changeSheets(s *model.Section) []model.Sheet {
	return slices.Concat(
		byEvent(s, model.Sheet{Title: "Connections that broke",
			Lead: "Of the connections that were held open to backends that stayed; of several repeats the worst.",
		}, countCell(results.Broken)),
		howTheyBroke(s),
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

func took(p *model.Point) model.Duel { return model.Level([]*model.Point{p}, results.AppliedMsMean) }

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

// numberedCell shows the number of lost numbered packets, the worst of the repeats, the number sent, and the rate of
// sending.
func numberedCell(p *model.Point) string {
	if !p.Has(results.NumberedSent) {
		return wording.Missing
	}
	return strings.Join([]string{wording.Decimal(p.Stats[results.NumberedMissing].Max, 0),
		wording.Decimal(p.Stats[results.NumberedSent].Median, 0),
		wording.Decimal(p.Stats[results.NumberedPerSecond].Median, 0)}, ", ")
}

// placesCell shows where numbered packets were lost, the worst of the repeats, if any were.
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

// howTheyBroke lists the events in which connections broke, by cause.
func howTheyBroke(s *model.Section) []model.Sheet {
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
	if sh.Empty() {
		return nil
	}
	return []model.Sheet{sh}
}

// agesOfBroken lists the events of balancers in which connections broke, by their age when packets moved.
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
	if sh.Empty() {
		return nil
	}
	return []model.Sheet{sh}
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
	sheets := s.Tabulate(model.Sheet{
		Title: "Which flows move when a backend leaves",
		Lead:  "New connections from the same local ports, before one of the backends left and after it, each with a backend of its own choice: what the hash table's change alone does. Connections that were held meanwhile are in the last column.",
	}, results.FlowsMovedBeyondPercent, fields)
	for i := range sheets {
		sheets[i].WithoutBaseline()
	}
	return sheets
}

// changeVerdict says who broke connections, and whose flows moved.
func changeVerdict(s *model.Section) []string {
	rows, _ := changeRows(s)
	var sentences []string
	// Failures in these until a balancer has noticed are told apart.
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
		sentences = append(sentences, whoHas(rows, what.metric, what.none, what.some, what.but)...)
	}
	return slices.Concat(sentences, silenceVerdict(rows), faultVerdict(rows), againVerdict(rows), shareVerdict(s))
}

// whoHas names the rows whose metric counts nothing, and gives the counts of the others; but for some events, which are
// left out.
func whoHas(rows []*changeRow, metric, none, some string, but []string) []string {
	var clear, sentences []string
	for _, r := range rows {
		total, counted := 0.0, false
		var parts []string
		for _, event := range append(slices.Sorted(maps.Keys(r.at)), "") {
			p := r.at[event]
			if p == nil || !p.Has(metric) || slices.Contains(but, event) {
				continue
			}
			counted = true
			if n := p.Stats[metric].Max; n > 0 {
				total += n
				parts = append(parts, fmt.Sprintf("%s %s", model.EventText(event), wording.Decimal(n, 0)))
			}
		}
		switch {
		case total > 0:
			sentences = append(sentences, fmt.Sprintf("%s %s: %s (%s).", wording.Clean(r.label), some, wording.Decimal(total, 0),
				strings.Join(parts, ", ")))
		case counted:
			clear = append(clear, wording.Clean(r.label))
		}
	}
	if len(clear) > 0 {
		sentences = append([]string{none + " " + wording.List(clear) + "."}, sentences...)
	}
	return sentences
}

// shareVerdict holds the flows that moved against the target.
func shareVerdict(s *model.Section) []string {
	var all []model.Judged
	for _, p := range s.Points() {
		if !p.Has(results.FlowsMovedBeyondPercent) {
			continue
		}
		j := model.Judged{What: wording.Clean(p.Label) + ", flows that moved beyond those of the backend that left",
			Bound:  fmt.Sprintf("%d %%", movedTarget),
			Format: func(v float64) string { return wording.Decimal(v, 2) + " %" }}
		j.Figures.Add(p.Stats[results.FlowsMovedBeyondPercent].Max, true)
		j.Holds = j.Figures.High <= movedTarget
		all = append(all, j)
	}
	return model.Judgement(all, "")
}

// changeFigures show the figure that can be compared at a glance: how long a reload takes.
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
