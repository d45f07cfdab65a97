// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jeoul/jeoul/internal/weigh/report/chart"
	"github.com/jeoul/jeoul/internal/weigh/report/wording"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// paramEvent says what happened to the backends.
const paramEvent = "event"

// The events that are shown in a way of their own.
const (
	eventFlap   = "flap"
	eventReload = "reload"
	// eventSilent is the one in which a backend's host falls silent: until the balancer has
	// noticed, something is lost behind each.
	eventSilent = "silent"
	// eventReset is the one in which a drained backend resets its connections.
	eventReset = "reset"
	// Those in which the balancer's process ends.
	eventRestart = "restart"
	eventUpgrade = "upgrade"
	eventKill    = "kill"
	eventStop    = "stop"
	// eventQuiet is the one in which nothing happens.
	eventQuiet = "quiet"
	// eventShare is the one in which flows are asked which backend they have.
	eventShare = "share"
)

// movedTarget is how many per cent of flows may move beyond those of the backend
// that left.
const movedTarget = 2

// eventTitles say in words what an event was.
var eventTitles = map[string]string{
	"add": "Added", "remove": "Removed", "drain": "Drained", "reweigh": "Weighed anew",
	eventFlap: "Flapped", eventReload: "Reloaded", "undo": "Undone",
	eventQuiet: "Undisturbed", eventRestart: "Restarted", eventUpgrade: "Upgraded", eventKill: "Killed",
	eventStop:  "Stopped and started",
	"lb-drain": "Balancer drained", "lb-undrain": "Balancer undrained", "lb-stop": "Balancer stopped",
	"lb-start": "Balancer started", "lb-kill": "Balancer killed", "lb-revive": "Balancer revived",
	"lb-cut": "Balancer cut off", "lb-mend": "Balancer connected again", "lb-hang": "Speaker hung",
	"lb-wake": "Speaker woke", "lb-change": "Backends changed without one balancer",
	"lb-transition": "Balancer killed in a transition", "lb-return": "Balancer returned",
	eventSilent: "Fell silent", "dies": "Died", "hangs": "Hung", eventReset: "Drained and reset",
	eventShare: "One of all removed",
}

// eventText names an event in a sentence.
func eventText(v string) string {
	if title, ok := eventTitles[v]; ok {
		return strings.ToLower(title)
	}
	return v
}

// isChange says whether the load is a change experiment.
func (s *section) isChange() bool {
	return slices.ContainsFunc(s.trials, func(t results.Trial) bool { return t.Params[paramEvent] != nil })
}

func init() {
	register(rankChange, func(s *section) *loadKind {
		if s.isChange() {
			return changeKind()
		}
		return nil
	})
}

// changeKind is how a change experiment is reported.
func changeKind() *loadKind {
	return &loadKind{question: "who of those that are connected through each is cut off while its backends change",
		sheets: changeSheets, verdict: changeVerdict, figures: changeFigures, reading: changeReading,
		answer: changeAnswer, overview: changeOverview, picture: changePicture}
}

var changeReading = []paragraph{
	{"Broken", "A connection that was reset, ended, silent for several retransmissions, or answered by another host, while its backend stayed where it was. Every such connection is a user who was cut off by an operator's change."},
	{"Ended", "Connections of a backend that was taken out. A balancer that forwards packets stops sending to it, so they end: that is what removing means, and what draining is for. Proxies and connection tracking go on with what they have for as long as the backend lives, which here it does; where it dies, theirs end too."},
	{"Flapping", "The backend is taken out and put back again and again by each balancer's own way, so that all meet the same. Its own connections end at each turn and count as ended."},
	{"Restarted, killed, stopped",
		"The balancer's process is replaced by another one, killed and replaced a while later, or stopped for good and started anew. What is in the kernel may go on without the process; what the process itself carries ends with it, and stopping takes everything away."},
	{"Upgraded", "Another build of the balancer, which lays out its tables of flows differently, takes over from the one that runs, and that one from it: an upgrade and a downgrade by turns."},
	{"A balancer that leaves",
		"Of several balancers behind a router, one is drained, stopped, killed, cut off or hung, and comes back; the router then spreads all flows anew. A balancer that chooses by a hash sends a flow where the one before did; one that remembers its choices does not know those of another, and breaks what it chooses differently. How long that took is the time until the router has one way less, or more."},
	{"Fell silent",
		"A backend's host is taken off the segment while it holds connections, and comes back without them. Until a balancer has noticed, it sends a share of the connections there, and their SYNs are lost. A balancer that notices by itself needs no health check for that; one that does not goes on until it is told, and all that is lost counts as before its notice."},
	{"Died, hung",
		"A backend's service is killed, or stopped so that its kernel goes on accepting connections and none is answered; its host answers throughout. All that have health checks ask alike. Until they have found it, a share of the new connections goes there and fails; what fails later is a balancer's own fault."},
	{"Ports that are used again",
		"Clients that open one connection after the other from the same few local ports, as crawlers, proxies and resolvers do. A balancer that remembers flows finds an entry of the connection before. A SYN counts as lost if the client's kernel had to send another, a second later, or if none was answered."},
	{"What a reload leaves",
		"A proxy's old processes live until their last connection ends. After many reloads with long connections there are many of them, each with its memory, and each balances by the configuration that it was started with."},
}

// changeRow is a subject with its parameters, and what each event did to it.
type changeRow struct {
	label, subject string
	at             map[string]*point
	// cannot are the events that the subject has no way for, or that failed.
	cannot map[string]bool
}

// changeRows returns the rows in the order of the tables, and the events in the
// order in which they came, but for that of the shares.
func (s *section) changeRows() (rows []*changeRow, events []string) {
	row := func(p *point) *changeRow {
		label := s.label(p, true)
		for _, r := range rows {
			if r.label == label {
				return r
			}
		}
		rows = append(rows, &changeRow{label: label, subject: p.Subject, at: map[string]*point{},
			cannot: map[string]bool{}})
		return rows[len(rows)-1]
	}
	for _, t := range s.trials {
		event, ok := t.Params[paramEvent].(string)
		if !ok {
			continue
		}
		if event != eventShare && !slices.Contains(events, event) {
			events = append(events, event)
		}
		if !t.Valid {
			row(newPoint([]results.Trial{t})).cannot[event] = true
		}
	}
	for _, p := range s.points() {
		row(p).at[p.Params[paramEvent].word] = p
	}
	slices.SortStableFunc(rows, func(a, b *changeRow) int {
		return cmp.Compare(slices.Index(s.Subjects, a.subject), slices.Index(s.Subjects, b.subject))
	})
	return rows, events
}

// pivot is a table with a column for each event.
func (s *section) pivot(sh sheet, cell func(*point) string) []sheet {
	rows, events := s.changeRows()
	sh.Columns = []column{{Title: "Subject"}}
	for _, event := range events {
		sh.Columns = append(sh.Columns, column{Title: s.eventTitle(event), Numeric: true})
	}
	var lines []line
	for _, r := range rows {
		l := line{Cells: []string{wording.Clean(r.label)}}
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
	sh.group(lines)
	if sh.empty() {
		return nil
	}
	return []sheet{sh}
}

// eventTitle is an event's column head; those that happen often have how often.
func (s *section) eventTitle(event string) string {
	title, ok := eventTitles[event]
	if !ok {
		title = wording.Clean(event)
	}
	times := 0.0
	for _, p := range s.points() {
		if p.Params[paramEvent].word == event {
			times = max(times, p.Stats[results.Applied].Max)
		}
	}
	if event == eventFlap {
		times /= 2 // each is two changes
	}
	if times > 1 {
		title += fmt.Sprintf(" %s×", wording.Decimal(times, 0))
	}
	return title
}

// countCell shows a count, the worst of the repeats.
func countCell(metric string) func(*point) string {
	return func(p *point) string {
		if !p.has(metric) {
			return wording.Missing
		}
		return wording.Decimal(p.Stats[metric].Max, 0)
	}
}

// changeSheets are the tables of a change experiment.
func changeSheets(s *section) []sheet {
	return slices.Concat(
		s.pivot(sheet{Title: "Connections that broke",
			Lead: "Of the connections that were held open to backends that stayed; of several repeats the worst.",
		}, countCell(results.Broken)),
		howTheyBroke(s),
		agesOfBroken(s),
		s.pivot(sheet{Title: "Connections of the backend that left, ended",
			Lead:  "Expected, and not among the broken.",
			Notes: []string{"0: the balancer goes on sending them to the backend, which here still runs."},
		}, countCell(results.Ended)),
		s.pivot(sheet{Title: "New connections that failed",
			Lead: "Of those that were opened while the changes were made."}, countCell(results.NewFailed)),
		s.pivot(sheet{Title: "New connections to a backend that takes none",
			Lead: "Begun after the change was done, and answered by a backend that was taken out or drains."},
			countCell(results.NewToLeft)),
		s.pivot(sheet{Title: "UDP queries without an answer"}, countCell(results.UDPUnanswered)),
		s.pivot(sheet{Title: "Numbered packets that were lost",
			Lead: "Of datagrams that are numbered when they are sent, and counted by number where servers receive them: how many are missing, of how many, and at how many a second they were sent."}, numberedCell),
		s.pivot(sheet{Title: "Where numbered packets were lost",
			Lead: "By the laboratory before they came to the balancer, between the switch's port to the balancer and back, and by the laboratory behind it: which numbers passed is counted there, too."}, placesCell),
		s.pivot(sheet{Title: "Numbered packets that came twice"}, countCell(results.NumberedTwice)),
		s.pivot(sheet{Title: "UDP flows that moved",
			Lead: "Answers by another backend than before, although that one had stayed."},
			countCell(results.UDPMoved)),
		shareSheet(s),
		s.pivot(sheet{Title: "SYNs that were lost",
			Lead: "Of clients that use their ports again and again: their kernel had to send another, or none was answered."}, countCell(results.LostSYNs)),
		silenceSheet(s),
		faultSheet(s),
		againSheet(s),
		s.pivot(sheet{Title: "How long a change took",
			Lead: "Milliseconds until the balancer said, or showed, that it was done: the mean of the event's, and the longest."}, tookCell),
		s.pivot(sheet{Title: "Flows that the balancer remembers",
			Lead: "One by one, at most during the event; an entry outlives its connection by its timeout. Without a figure: the balancer does not tell, or holds them as sockets.",
		}, countCell(results.TrackedFlowsMax)),
		s.pivot(sheet{Title: "Processes and memory",
			Lead: "The balancer's processes when the event was over, and what they have of the machine's memory together.", Aside: true}, processCell),
		s.pivot(sheet{Title: "Latency",
			Lead:  "p99 and the longest of all requests over held connections during the event, in milliseconds.",
			Aside: true}, latencyCell),
		s.pivot(sheet{Title: "Requests", Lead: "Over held connections, answered rightly.", Aside: true},
			countCell(results.Requests)),
		s.pivot(sheet{Title: "New connections",
			Lead: "Opened during the event, those in the place of broken ones included.", Aside: true},
			countCell(results.NewConnections)),
		s.pivot(sheet{Title: "Connections from ports that are used again", Lead: "Answered rightly.", Aside: true},
			countCell(results.ReusedConnections)),
		s.pivot(sheet{Title: "Connections from ports that are used again which failed", Aside: true},
			countCell(results.ReusedFailed)),
		s.pivot(sheet{Title: "Ports that were not free",
			Lead:  "Connections that could not be tried, for the one before from the same port had not ended.",
			Aside: true}, countCell(results.ReusedTaken)),
		s.pivot(sheet{Title: "UDP queries", Aside: true}, countCell(results.UDPQueries)),
		s.pivot(sheet{Title: "Resets that backends sent",
			Lead:  "Packets came to a backend that did not know the connection, or a client had given one up.",
			Aside: true}, countCell(results.BackendResets)),
	)
}

func tookCell(p *point) string {
	if !p.has(results.AppliedMsMean) {
		return wording.Missing
	}
	mean, most := p.Stats[results.AppliedMsMean].Median, p.Stats[results.AppliedMsMax].Max
	if p.Stats[results.Applied].Max < 2 {
		return wording.Decimal(mean, 1)
	}
	return wording.Decimal(mean, 1) + ", " + wording.Decimal(most, 1)
}

// numberedCell shows how many numbered packets were lost, the worst of the repeats, of how many,
// and at what rate they were sent.
func numberedCell(p *point) string {
	if !p.has(results.NumberedSent) {
		return wording.Missing
	}
	return strings.Join([]string{wording.Decimal(p.Stats[results.NumberedMissing].Max, 0),
		wording.Decimal(p.Stats[results.NumberedSent].Median, 0),
		wording.Decimal(p.Stats[results.NumberedPerSecond].Median, 0)}, ", ")
}

// placesCell shows where numbered packets were lost, the worst of the repeats, if any were.
func placesCell(p *point) string {
	if p.Stats[results.NumberedMissing].Max == 0 || !p.has(results.NumberedBalancer) {
		return wording.Missing
	}
	return strings.Join([]string{wording.Decimal(p.Stats[results.NumberedBefore].Max, 0),
		wording.Decimal(p.Stats[results.NumberedBalancer].Max, 0),
		wording.Decimal(p.Stats[results.NumberedBehind].Max, 0)}, ", ")
}

func processCell(p *point) string {
	if p.Stats[results.BalancerProcesses].Max == 0 {
		return wording.Missing
	}
	return wording.Decimal(p.Stats[results.BalancerProcesses].Max, 0) + ", " +
		wording.BytesText(p.Stats[results.BalancerMemoryBytes].Max)
}

func latencyCell(p *point) string {
	if !p.has(results.LatencyMsP99) {
		return wording.Missing
	}
	return wording.Decimal(p.Stats[results.LatencyMsP99].Median, 1) + ", " +
		wording.Decimal(p.Stats[results.LatencyMsMax].Max, 1)
}

// howTheyBroke lists the events in which connections broke, by cause.
func howTheyBroke(s *section) []sheet {
	sh := sheet{Title: "How they broke", Columns: []column{{Title: "Subject"}, {Title: "Event"}}}
	causes := []struct{ title, metric string }{
		{"Reset", results.BrokenReset}, {"Closed", results.BrokenClosed}, {"Silent", results.BrokenSilent},
		{"Answered by another", results.BrokenMoved}, {"Answered wrongly", results.BrokenWrong},
	}
	for _, c := range causes {
		sh.Columns = append(sh.Columns, column{Title: c.title, Numeric: true})
	}
	rows, events := s.changeRows()
	for _, r := range rows {
		var lines []line
		for _, event := range append(events, eventShare) {
			p := r.at[event]
			if p == nil || p.Stats[results.Broken].Max == 0 {
				continue
			}
			l := line{Cells: []string{wording.Clean(r.label), eventText(event)}}
			for _, c := range causes {
				l.Cells = append(l.Cells, wording.Decimal(p.Stats[c.metric].Max, 0))
			}
			lines = append(lines, l)
		}
		sh.group(lines)
	}
	if sh.empty() {
		return nil
	}
	return []sheet{sh}
}

// agesOfBroken lists the events of balancers in which connections broke, by their age when packets moved.
func agesOfBroken(s *section) []sheet {
	sh := sheet{Title: "How old they were when packets moved between balancers",
		Lead: "Balancers tell each other of a connection within half a second after its proof: one younger than a second may not be known elsewhere yet.",
		Columns: []column{{Title: "Subject"}, {Title: "Event"}, {Title: "Younger than a second", Numeric: true},
			{Title: "Older", Numeric: true}}}
	rows, events := s.changeRows()
	for _, r := range rows {
		var lines []line
		for _, event := range events {
			if p := r.at[event]; p != nil && p.has(results.BrokenYoung) && p.Stats[results.Broken].Max > 0 {
				lines = append(lines, line{Cells: []string{wording.Clean(r.label), eventText(event),
					wording.Decimal(p.Stats[results.BrokenYoung].Max,
						0), wording.Decimal(p.Stats[results.BrokenOlder].Max, 0)}})
			}
		}
		sh.group(lines)
	}
	if sh.empty() {
		return nil
	}
	return []sheet{sh}
}

// shareSheet shows which flows moved when a backend left.
func shareSheet(s *section) []sheet {
	fields := []field{subjectField(s),
		fixed(metricField("Tried", "flows", results.FlowsTried), 0),
		percentField("Moved", results.FlowsMovedPercent),
		percentField("Had the one that left", results.FlowsOfLeftPercent),
		percentField("Moved beyond those", results.FlowsMovedBeyondPercent),
		fixed(metricField("Broken", "", results.Broken), 0),
	}
	sheets := s.tabulate(sheet{
		Title: "Which flows move when a backend leaves",
		Lead:  "New connections from the same local ports, before one of the backends left and after it, each with a backend of its own choice: what the hash table's change alone does. Connections that were held meanwhile are in the last column.",
	}, results.FlowsMovedBeyondPercent, fields)
	for i := range sheets {
		sheets[i].withoutBaseline()
	}
	return sheets
}

// withoutBaseline drops rows that say only that the baseline was not measured.
func (sh *sheet) withoutBaseline() {
	for i := range sh.Groups {
		sh.Groups[i] = slices.DeleteFunc(sh.Groups[i], func(l line) bool {
			return strings.HasSuffix(l.Cells[0], "(not measured)")
		})
	}
}

// changeVerdict says who broke connections, and whose flows moved.
func changeVerdict(s *section) []string {
	rows, _ := s.changeRows()
	var sentences []string
	// What fails in these until a balancer has noticed is told apart.
	noticed := append([]string{eventSilent}, faultEvents...)
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

// whoHas says which rows have none of what a metric counts, and how many of it
// the others have; but for some events, which are left out.
func whoHas(rows []*changeRow, metric, none, some string, but []string) []string {
	var clear, sentences []string
	for _, r := range rows {
		total, counted := 0.0, false
		var parts []string
		for _, event := range append(slices.Sorted(maps.Keys(r.at)), "") {
			p := r.at[event]
			if p == nil || !p.has(metric) || slices.Contains(but, event) {
				continue
			}
			counted = true
			if n := p.Stats[metric].Max; n > 0 {
				total += n
				parts = append(parts, fmt.Sprintf("%s %s", eventText(event), wording.Decimal(n, 0)))
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
func shareVerdict(s *section) []string {
	var all []judged
	for _, p := range s.points() {
		if !p.has(results.FlowsMovedBeyondPercent) {
			continue
		}
		j := judged{what: wording.Clean(p.Label) + ", flows that moved beyond those of the backend that left",
			bound:  fmt.Sprintf("%d %%", movedTarget),
			format: func(v float64) string { return wording.Decimal(v, 2) + " %" }}
		j.figures.add(p.Stats[results.FlowsMovedBeyondPercent].Max, true)
		j.holds = j.figures.high <= movedTarget
		all = append(all, j)
	}
	return judgement(all, "")
}

// changeFigures show what can be compared at a glance: how long a reload takes.
func changeFigures(s *section) []chart.Figure {
	rows, _ := s.changeRows()
	c := &chart.Chart{Axis: "ms", Kind: chart.Bars}
	for _, r := range rows {
		if p := r.at[eventReload]; p != nil && p.has(results.AppliedMsMean) {
			st := p.Stats[results.AppliedMsMean]
			c.Rows = append(c.Rows, chart.Row{Label: wording.Clean(r.label), Value: wording.Decimal(st.Median, 1),
				Marks: []chart.Mark{{Value: st.Median, Low: st.Min, High: st.Max, Ink: chart.InkQuiet}}})
		}
	}
	return []chart.Figure{{Title: "How long a reload without change takes",
		Caption: "Less is better: from the request until the balancer said, or showed, that it was done.", Chart: c}}
}
