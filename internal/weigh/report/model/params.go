// SPDX-License-Identifier: Apache-2.0

package model

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/jeoul/jeoul/internal/weigh/report/wording"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// paramInfo describes how a parameter is shown.
type paramInfo struct {
	Name  string
	Title string
	// Own: the parameter belongs to the subject and not to the load:
	// points that differ in it are still compared with each other.
	Own bool
	// Load: it belongs to the load even where a trial that could not be
	// measured lacks it.
	Load bool
	// Text formats a value in a sentence or a label; nil is "title value".
	Text func(value string) string
	// Order lists words in the order in which they are shown; others follow.
	Order []string
}

// known lists the parameters in the order in which they are shown and sorted;
// any other comes after these, by name.
var known = []paramInfo{
	{Name: ParamHook, Title: "Hook", Text: plain},
	{Name: ParamConcurrency, Title: "Concur\u00ADrency", Text: func(v string) string { return v + " concurrent" }},
	{Name: ParamArrivals, Title: "Arrivals/s", Load: true, Text: func(v string) string {
		return v + " requests due a second"
	}},
	{Name: ParamP99Bound, Title: "p99 bound, ms", Load: true, Text: func(v string) string {
		return "p99 of at most " + v + " ms"
	}},
	{Name: "kept", Title: "Kept", Text: yesNo("kept connections", "new connections")},
	{Name: "generator", Title: "Generator", Text: plain},
	{Name: "tls", Title: "TLS", Text: yesNo("over TLS", "without TLS")},
	{Name: ParamStreams, Title: "Streams", Text: wording.Counted("stream")},
	{Name: "requests", Title: "Requests asked", Text: wording.Counted("request")},
	{Name: ParamFileBytes, Title: "File size", Text: func(v string) string { return v + " file" }},
	{Name: "duration_seconds", Title: "Duration", Text: func(v string) string { return v + " s long" }},
	{Name: paramFrom, Title: "From", Text: fromText},
	{Name: "clients", Title: "Clients", Text: wording.Counted("client")},
	{Name: ParamServices, Title: "Services", Text: wording.Counted("service")},
	{Name: ParamBackends, Title: "Backends", Text: wording.Counted("backend")},
	{Name: ParamWeights, Title: "Weights", Text: func(v string) string {
		return "weights " + v
	}, Order: []string{"equal"}},
	{Name: ParamEnded, Title: "Ended", Text: endedText, Order: []string{"none", "half"}},
	{Name: ParamStage, Title: "Stage", Text: plain, Order: []string{"proven", "unproven"}},
	{Name: ParamEvent, Title: "Event", Text: EventText, Order: []string{"add", "remove", "drain", "reweigh", EventFlap,
		EventReload, "undo", eventRestart, eventUpgrade, eventKill, eventStop, EventSilent, eventReset, EventShare}},
	{Name: ParamOf, Title: "What", Text: plain, Order: []string{"load"}},
	{Name: ParamFlood, Title: "Flood", Text: func(v string) string { return "a flood of " + strings.ToUpper(v) },
		Order: []string{"syn", "syn-ack", "udp"}},
	{Name: "beyond", Title: "Beyond", Text: beyondText},
	{Name: ParamWire, Title: "Load", Text: wireText, Order: []string{"setup", "session", "capacity", "udp",
		"dns", "flood"}},
	{Name: "steps", Title: "Steps", Text: func(v string) string { return v + " offered" }},
	{Name: ParamOffered, Title: "Offered", Load: true, Text: offeredText},
	{Name: "bursts", Title: "Bursts", Text: func(v string) string { return "the fastest of " + v + " bursts" }},
	{Name: "pause_seconds", Title: "Pause", Text: func(v string) string { return v + " s between bursts" }},
	{Name: "connections", Title: "Connections", Text: wording.Counted("connection")},
	{Name: "request_bytes", Title: "Request", Text: func(v string) string { return "requests of " + v + " bytes" }},
	{Name: "response_bytes", Title: "Response", Text: func(v string) string { return "responses of " + v + " bytes" }},
	{Name: "frame_bytes", Title: "Frame", Text: func(v string) string { return "frames of " + v + " bytes" }},
	{Name: "beside", Title: "Beside", Text: func(v string) string { return "beside " + v }},
	{Name: "rate", Title: "Rate", Text: func(v string) string { return "at " + v + " packets/s" }},
	{Name: ParamQuestion, Title: "Question", Text: func(v string) string { return "asking for " + v }},
	{Name: "queries_per_second_most", Title: "At most", Text: func(v string) string {
		return "at most " + v + " queries/s a generator"
	}},
	{Name: ParamGeneratorThreads, Title: "Generator threads", Text: func(v string) string {
		return v + " threads a generator"
	}},
	{Name: "every_ms", Title: "Every", Text: func(v string) string { return "asking every " + v + " ms" }},
	{Name: "new_per_second", Title: "New", Text: func(v string) string { return v + " new a second" }},
	{Name: "patience_seconds", Title: "Patience", Text: func(v string) string { return "answers within " + v + " s" }},
	{Name: "offloads", Title: "Offloads", Text: yesNo("with offloads", "without offloads")},
	{Name: "pinned", Title: "Pinned", Text: yesNo("generators pinned", "generators not pinned")},
	{Name: ParamTuned, Title: "Tuned", Own: true, Text: TunedText, Order: []string{Untuned, "all", "document"}},
	{Name: paramThreads, Title: "Threads", Own: true, Text: wording.Counted("thread")},
	{Name: "splice", Title: "Splice", Own: true, Text: func(v string) string { return "splice " + v }},
	{Name: ParamScheduler, Title: "Scheduler", Own: true, Text: plain},
	{Name: "sync", Title: "Sync", Own: true, Text: syncText, Order: []string{"none", "usual", "every", "sloppy"}},
	{Name: "upper", Title: "Upper", Own: true, Text: func(v string) string {
		return "at most " + v + " connections a server"
	}},
	{Name: "lower", Title: "Lower", Own: true, Text: func(v string) string { return "new ones again below " + v }},
	{Name: ParamPackets, Title: "Packets", Text: packetsText,
		Order: []string{KnownPackets, NewPackets, ForeignPackets}},
	{Name: ParamChange, Title: "Change", Text: ChangeText, Order: []string{"unmoved", "pinned", "unpinned"}},
	{Name: "protocol", Title: "Protocol", Text: strings.ToUpper},
	{Name: "family", Title: "Family", Text: familyText},
	{Name: ParamOuter, Title: "Outer", Text: func(v string) string { return "in " + familyText(v) }},
	{Name: ParamDirection, Title: "Direction", Text: plain, Order: []string{"request", ReplyDirection}},
	{Name: "tag", Title: "Tag", Text: func(v string) string { return strings.ToUpper(v) + "-tagged" }},
	{Name: ParamConfigured, Title: "Configured", Text: plain,
		Order: []string{"one service", "all modes", "all schedulers"}},
	{Name: ParamFlows, Title: "Flows", Text: wording.Counted("flow")},
}

// yesNo makes a text for a parameter that is one of the words.
func yesNo(yes, no string) func(string) string {
	return func(v string) string {
		if v == "yes" {
			return yes
		}
		return no
	}
}

func plain(v string) string { return v }

// ranks are the positions in known by name. Reports of packets compare parameters a million times.
var ranks = sync.OnceValue(func() map[string]int {
	ranks := map[string]int{}
	for i, p := range known {
		ranks[p.Name] = i
	}
	return ranks
})

// rankOf returns the position of a parameter in known, or the end of known for another parameter.
func rankOf(name string) int {
	if rank, ok := ranks()[name]; ok {
		return rank
	}
	return len(known)
}

// lookup returns the description of a parameter, with defaults for one that known lacks.
func lookup(name string) (info paramInfo, rank int) {
	if rank = rankOf(name); rank < len(known) {
		return known[rank], rank
	}
	title := wording.Clean(strings.ReplaceAll(name, "_", " "))
	if title != "" {
		title = strings.ToUpper(title[:1]) + title[1:]
	}
	return paramInfo{Name: name, Title: title}, len(known)
}

// Describe formats a parameter for a label or a sentence: "2 threads".
func Describe(name string, v Value) string {
	info, _ := lookup(name)
	if info.Text == nil {
		return strings.ToLower(info.Title) + " " + v.Text(name)
	}
	return info.Text(v.Text(name))
}

// Value is a parameter's value: a number, or otherwise text.
type Value struct {
	Number  float64
	Word    string
	Numeric bool
}

func toValue(v any) Value {
	// A run from a file has only float64; a run of this process has any number.
	switch r := reflect.ValueOf(v); {
	case r.CanFloat():
		return Value{Number: r.Float(), Numeric: true}
	case r.CanInt():
		return Value{Number: float64(r.Int()), Numeric: true}
	case r.CanUint():
		return Value{Number: float64(r.Uint()), Numeric: true}
	}
	return Value{Word: wording.Clean(fmt.Sprint(v))}
}

// Text formats the value as the parameter requires.
func (v Value) Text(name string) string {
	switch {
	case !v.Numeric:
		return v.Word
	case name == ParamFileBytes:
		return wording.BytesText(v.Number)
	case v.Number != float64(int64(v.Number)):
		return strconv.FormatFloat(v.Number, 'g', 4, 64)
	}
	return wording.Decimal(v.Number, 0)
}

// Compare orders values: numbers before words.
func (v Value) Compare(o Value) int {
	if v.Numeric != o.Numeric {
		return cmp.Compare(OneIf(!v.Numeric), OneIf(!o.Numeric))
	}
	return cmp.Or(cmp.Compare(v.Number, o.Number), cmp.Compare(v.Word, o.Word))
}

// OneIf returns 1 if b holds, otherwise 0.
func OneIf(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Params maps a parameter's name to its value.
type Params map[string]Value

// ToParams converts the parameters of a trial.
func ToParams(m map[string]any) Params {
	p := Params{}
	for name, v := range m {
		p[name] = toValue(v)
	}
	return p
}

// Names returns the parameters in the order in which they are shown.
func (p Params) Names() []string {
	return slices.SortedFunc(maps.Keys(p), CompareNames)
}

// CompareNames orders parameters as they are shown.
func CompareNames(a, b string) int {
	return cmp.Or(cmp.Compare(rankOf(a), rankOf(b)), cmp.Compare(a, b))
}

// Only returns a copy that has no parameters but those named.
func (p Params) Only(names []string) Params {
	q := Params{}
	for _, n := range names {
		if v, ok := p[n]; ok {
			q[n] = v
		}
	}
	return q
}

// Key identifies a set of parameters.
func (p Params) Key() string {
	var b strings.Builder
	for _, n := range p.Names() {
		fmt.Fprintf(&b, "%q=%v/%q;", n, p[n].Number, p[n].Word)
	}
	return b.String()
}

// Compare orders two sets by their parameters in the order of known.
func (p Params) Compare(q Params) int {
	names := slices.Concat(p.Names(), q.Names())
	slices.SortFunc(names, CompareNames)
	for _, n := range names {
		a, inP := p[n]
		b, inQ := q[n]
		if c := cmp.Or(cmp.Compare(OneIf(inP), OneIf(inQ)), compareAs(n, a, b)); c != 0 {
			return c
		}
	}
	return 0
}

// compareAs orders two values of the parameter name.
func compareAs(name string, a, b Value) int {
	info, _ := lookup(name)
	rank := func(v Value) int {
		if i := slices.Index(info.Order, v.Word); i >= 0 {
			return i
		}
		return len(info.Order)
	}
	return cmp.Or(cmp.Compare(rank(a), rank(b)), a.Compare(b))
}

// Text joins all parameters in words.
func (p Params) Text() string {
	var parts []string
	for _, n := range p.Names() {
		parts = append(parts, Describe(n, p[n]))
	}
	return strings.Join(parts, " · ")
}

// splitParams separates the load's parameters from the subjects' own: a parameter is the load's if every subject has it
// and it is not known to be a subject's.
func splitParams(trials []results.Trial) (shared, own []string) {
	has := map[string]map[string]bool{}
	subjects := map[string]bool{}
	for _, t := range trials {
		subjects[t.Subject] = true
		for name := range t.Params {
			if has[name] == nil {
				has[name] = map[string]bool{}
			}
			has[name][t.Subject] = true
		}
	}
	for _, name := range slices.SortedFunc(maps.Keys(has), CompareNames) {
		info, _ := lookup(name)
		if info.Own || !info.Load && len(has[name]) < len(subjects) {
			own = append(own, name)
		} else {
			shared = append(shared, name)
		}
	}
	return shared, own
}

// Distinct returns the different values of a parameter, in ascending order; a
// trial without it counts as having an empty one.
func Distinct(trials []results.Trial, name string) []Value {
	var vs []Value
	for _, t := range trials {
		v := Value{}
		if raw, ok := t.Params[name]; ok {
			v = toValue(raw)
		}
		if !slices.Contains(vs, v) {
			vs = append(vs, v)
		}
	}
	slices.SortFunc(vs, Value.Compare)
	return vs
}
