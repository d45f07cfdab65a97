// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/jeoul/jeoul/internal/weigh/report/wording"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// Parameters that the report treats in a way of their own.
const (
	paramThreads     = "threads"
	paramConcurrency = "concurrency"
	paramFileBytes   = "file_bytes"
	paramStreams     = "streams"
	paramFlows       = "flows"
	paramHook        = "hook"
	paramScheduler   = "scheduler"
	// paramPackets says what the packets are to the balancer: of known or new
	// flows, or foreign.
	paramPackets = "packets"
	// paramOuter is the family of a tunnel's packets.
	paramOuter = "outer"
	// paramDirection says, where both go through the balancer, whether packets
	// are requests or replies.
	paramDirection = "direction"
	// paramChange says what a change of the backends, under way, is to a flow.
	paramChange = "change"
	// paramConfigured says what the balancer was configured with, where that is
	// what points are compared by.
	paramConfigured = "configured"
	// paramFrom says where the load generators were, where servers are containers of the
	// balancer's host: beyond that, or fromBalancer, on it.
	paramFrom    = "from"
	fromBalancer = "balancer"
)

// paramInfo says how a parameter is shown.
type paramInfo struct {
	Name  string
	Title string
	// Own says that the parameter belongs to the subject and not to the load:
	// points that differ in it are still compared with each other.
	Own bool
	// Load says that it belongs to the load even where a trial that could not be
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
	{Name: paramHook, Title: "Hook", Text: plain},
	{Name: paramConcurrency, Title: "Concur\u00ADrency", Text: func(v string) string { return v + " concurrent" }},
	{Name: paramArrivals, Title: "Arrivals/s", Load: true, Text: func(v string) string {
		return v + " requests due a second"
	}},
	{Name: paramP99Bound, Title: "p99 bound, ms", Load: true, Text: func(v string) string {
		return "p99 of at most " + v + " ms"
	}},
	{Name: "kept", Title: "Kept", Text: yesNo("kept connections", "new connections")},
	{Name: "generator", Title: "Generator", Text: plain},
	{Name: "tls", Title: "TLS", Text: yesNo("over TLS", "without TLS")},
	{Name: paramStreams, Title: "Streams", Text: wording.Counted("stream")},
	{Name: "requests", Title: "Requests asked", Text: wording.Counted("request")},
	{Name: paramFileBytes, Title: "File size", Text: func(v string) string { return v + " file" }},
	{Name: "duration_seconds", Title: "Duration", Text: func(v string) string { return v + " s long" }},
	{Name: paramFrom, Title: "From", Text: fromText},
	{Name: "clients", Title: "Clients", Text: wording.Counted("client")},
	{Name: paramServices, Title: "Services", Text: wording.Counted("service")},
	{Name: paramBackends, Title: "Backends", Text: wording.Counted("backend")},
	{Name: paramWeights, Title: "Weights", Text: func(v string) string {
		return "weights " + v
	}, Order: []string{"equal"}},
	{Name: paramEnded, Title: "Ended", Text: endedText, Order: []string{"none", "half"}},
	{Name: paramStage, Title: "Stage", Text: plain, Order: []string{"proven", "unproven"}},
	{Name: paramEvent, Title: "Event", Text: eventText, Order: []string{"add", "remove", "drain", "reweigh", eventFlap,
		eventReload, "undo", eventRestart, eventUpgrade, eventKill, eventStop, eventSilent, eventReset, eventShare}},
	{Name: paramOf, Title: "What", Text: plain, Order: []string{"load"}},
	{Name: paramFlood, Title: "Flood", Text: func(v string) string { return "a flood of " + strings.ToUpper(v) },
		Order: []string{"syn", "syn-ack", "udp"}},
	{Name: "beyond", Title: "Beyond", Text: beyondText},
	{Name: paramWire, Title: "Load", Text: wireText, Order: []string{"setup", "session", "capacity", "udp",
		"dns", "flood"}},
	{Name: "steps", Title: "Steps", Text: func(v string) string { return v + " offered" }},
	{Name: paramOffered, Title: "Offered", Load: true, Text: offeredText},
	{Name: "bursts", Title: "Bursts", Text: func(v string) string { return "the fastest of " + v + " bursts" }},
	{Name: "pause_seconds", Title: "Pause", Text: func(v string) string { return v + " s between bursts" }},
	{Name: "connections", Title: "Connections", Text: wording.Counted("connection")},
	{Name: "request_bytes", Title: "Request", Text: func(v string) string { return "requests of " + v + " bytes" }},
	{Name: "response_bytes", Title: "Response", Text: func(v string) string { return "responses of " + v + " bytes" }},
	{Name: "frame_bytes", Title: "Frame", Text: func(v string) string { return "frames of " + v + " bytes" }},
	{Name: "beside", Title: "Beside", Text: func(v string) string { return "beside " + v }},
	{Name: "rate", Title: "Rate", Text: func(v string) string { return "at " + v + " packets/s" }},
	{Name: paramQuestion, Title: "Question", Text: func(v string) string { return "asking for " + v }},
	{Name: "queries_per_second_most", Title: "At most", Text: func(v string) string {
		return "at most " + v + " queries/s a generator"
	}},
	{Name: paramGeneratorThreads, Title: "Generator threads", Text: func(v string) string {
		return v + " threads a generator"
	}},
	{Name: "every_ms", Title: "Every", Text: func(v string) string { return "asking every " + v + " ms" }},
	{Name: "new_per_second", Title: "New", Text: func(v string) string { return v + " new a second" }},
	{Name: "patience_seconds", Title: "Patience", Text: func(v string) string { return "answers within " + v + " s" }},
	{Name: "offloads", Title: "Offloads", Text: yesNo("with offloads", "without offloads")},
	{Name: "pinned", Title: "Pinned", Text: yesNo("generators pinned", "generators not pinned")},
	{Name: paramTuned, Title: "Tuned", Own: true, Text: tunedText, Order: []string{untuned, "all", "document"}},
	{Name: paramThreads, Title: "Threads", Own: true, Text: wording.Counted("thread")},
	{Name: "splice", Title: "Splice", Own: true, Text: func(v string) string { return "splice " + v }},
	{Name: paramScheduler, Title: "Scheduler", Own: true, Text: plain},
	{Name: "sync", Title: "Sync", Own: true, Text: syncText, Order: []string{"none", "usual", "every", "sloppy"}},
	{Name: "upper", Title: "Upper", Own: true, Text: func(v string) string {
		return "at most " + v + " connections a server"
	}},
	{Name: "lower", Title: "Lower", Own: true, Text: func(v string) string { return "new ones again below " + v }},
	{Name: paramPackets, Title: "Packets", Text: packetsText,
		Order: []string{knownPackets, newPackets, foreignPackets}},
	{Name: paramChange, Title: "Change", Text: changeText, Order: []string{"unmoved", "pinned", "unpinned"}},
	{Name: "protocol", Title: "Protocol", Text: strings.ToUpper},
	{Name: "family", Title: "Family", Text: familyText},
	{Name: paramOuter, Title: "Outer", Text: func(v string) string { return "in " + familyText(v) }},
	{Name: paramDirection, Title: "Direction", Text: plain, Order: []string{"request", replyDirection}},
	{Name: "tag", Title: "Tag", Text: func(v string) string { return strings.ToUpper(v) + "-tagged" }},
	{Name: paramConfigured, Title: "Configured", Text: plain,
		Order: []string{"one service", "all modes", "all schedulers"}},
	{Name: paramFlows, Title: "Flows", Text: wording.Counted("flow")},
}

// fromText says where the load generators of a group were.
func fromText(v string) string {
	if v == fromBalancer {
		return "from the balancer's host"
	}
	return "from beyond the balancer's host"
}

// is says whether the group's load generators were there; anywhere will do for an empty word.
func (g *group) is(from string) bool { return from == "" || g.Params[paramFrom].word == from }

// Values of parameters.
const (
	// foreignPackets are packets of no service, newPackets each open a flow.
	foreignPackets = "foreign"
	newPackets     = "new"
	knownPackets   = "known"
	replyDirection = "reply"
)

func familyText(v string) string { return strings.Replace(v, "ip", "IP", 1) }

func packetsText(v string) string {
	if v == foreignPackets {
		return "not ours"
	}
	return v + " flow"
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

// lookup returns what is known of a parameter, with defaults for a stranger.
func lookup(name string) (info paramInfo, rank int) {
	if i := slices.IndexFunc(known, func(p paramInfo) bool { return p.Name == name }); i >= 0 {
		return known[i], i
	}
	title := wording.Clean(strings.ReplaceAll(name, "_", " "))
	if title != "" {
		title = strings.ToUpper(title[:1]) + title[1:]
	}
	return paramInfo{Name: name, Title: title}, len(known)
}

// describe formats a parameter for a label or a sentence: "2 threads".
func describe(name string, v value) string {
	info, _ := lookup(name)
	if info.Text == nil {
		return strings.ToLower(info.Title) + " " + v.text(name)
	}
	return info.Text(v.text(name))
}

// value is a parameter's value: a number, or else text.
type value struct {
	number  float64
	word    string
	numeric bool
}

func toValue(v any) value {
	// A run from a file has float64 only; one that was just made has any number.
	switch r := reflect.ValueOf(v); {
	case r.CanFloat():
		return value{number: r.Float(), numeric: true}
	case r.CanInt():
		return value{number: float64(r.Int()), numeric: true}
	case r.CanUint():
		return value{number: float64(r.Uint()), numeric: true}
	}
	return value{word: wording.Clean(fmt.Sprint(v))}
}

// text formats the value as parameter name wants it.
func (v value) text(name string) string {
	switch {
	case !v.numeric:
		return v.word
	case name == paramFileBytes:
		return wording.BytesText(v.number)
	case v.number != float64(int64(v.number)):
		return strconv.FormatFloat(v.number, 'g', 4, 64)
	}
	return wording.Decimal(v.number, 0)
}

func (v value) compare(o value) int {
	if v.numeric != o.numeric {
		return cmp.Compare(b2i(!v.numeric), b2i(!o.numeric))
	}
	return cmp.Or(cmp.Compare(v.number, o.number), cmp.Compare(v.word, o.word))
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// params maps a parameter's name to its value.
type params map[string]value

func toParams(m map[string]any) params {
	p := params{}
	for name, v := range m {
		p[name] = toValue(v)
	}
	return p
}

// names returns the parameters in the order in which they are shown.
func (p params) names() []string {
	return slices.SortedFunc(maps.Keys(p), compareNames)
}

func compareNames(a, b string) int {
	_, i := lookup(a)
	_, j := lookup(b)
	return cmp.Or(cmp.Compare(i, j), cmp.Compare(a, b))
}

// only returns a copy that has no parameters but those named.
func (p params) only(names []string) params {
	q := params{}
	for _, n := range names {
		if v, ok := p[n]; ok {
			q[n] = v
		}
	}
	return q
}

// key identifies a set of parameters.
func (p params) key() string {
	var b strings.Builder
	for _, n := range p.names() {
		fmt.Fprintf(&b, "%q=%v/%q;", n, p[n].number, p[n].word)
	}
	return b.String()
}

// compare orders two sets by their parameters in the order of known.
func (p params) compare(q params) int {
	names := slices.Concat(p.names(), q.names())
	slices.SortFunc(names, compareNames)
	for _, n := range names {
		a, inP := p[n]
		b, inQ := q[n]
		if c := cmp.Or(cmp.Compare(b2i(inP), b2i(inQ)), compareAs(n, a, b)); c != 0 {
			return c
		}
	}
	return 0
}

// compareAs orders two values of parameter name.
func compareAs(name string, a, b value) int {
	info, _ := lookup(name)
	rank := func(v value) int {
		if i := slices.Index(info.Order, v.word); i >= 0 {
			return i
		}
		return len(info.Order)
	}
	return cmp.Or(cmp.Compare(rank(a), rank(b)), a.compare(b))
}

// text joins all parameters in words.
func (p params) text() string {
	var parts []string
	for _, n := range p.names() {
		parts = append(parts, describe(n, p[n]))
	}
	return strings.Join(parts, " · ")
}

// splitParams tells the load's parameters from the subjects' own: a parameter
// is the load's if every subject has it and it is not known to be a subject's.
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
	for _, name := range slices.SortedFunc(maps.Keys(has), compareNames) {
		info, _ := lookup(name)
		if info.Own || !info.Load && len(has[name]) < len(subjects) {
			own = append(own, name)
		} else {
			shared = append(shared, name)
		}
	}
	return shared, own
}

// distinct returns the different values of a parameter, in ascending order; a
// trial without it counts as having an empty one.
func distinct(trials []results.Trial, name string) []value {
	var vs []value
	for _, t := range trials {
		v := value{}
		if raw, ok := t.Params[name]; ok {
			v = toValue(raw)
		}
		if !slices.Contains(vs, v) {
			vs = append(vs, v)
		}
	}
	slices.SortFunc(vs, value.compare)
	return vs
}

// syncText says how several balancers of IPVS come to carry on with each other's connections.
func syncText(v string) string {
	switch v {
	case "none":
		return "no sync daemon"
	case "usual":
		return "sync daemon"
	case "every":
		return "sync daemon for each packet"
	case "sloppy":
		return "sloppy_tcp"
	}
	return "sync " + v
}
