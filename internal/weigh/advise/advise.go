// SPDX-License-Identifier: Apache-2.0

package advise

import (
	"fmt"
	"math"
	"strings"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/weigh/results"
	"github.com/jeoul/jeoul/internal/weigh/sizing"
)

// Verdict is the kind of answer.
type Verdict string

// The verdicts: a mode that forwards packets; HAProxy, which mode proxy runs; or none of these.
const (
	UseMode    Verdict = "mode"
	UseHAProxy Verdict = "haproxy"
	UseNone    Verdict = "none"
)

// Sharing is how several balancers share the VIPs.
type Sharing string

// The ways of sharing: there is one balancer, one of several holds the VIPs, or routers spread packets over all.
const (
	Alone Sharing = "alone"
	VRRP  Sharing = "vrrp"
	BGP   Sharing = "bgp"
)

// maxBalancers is the greatest number of balancers that is advised: the smallest size of a router's ECMP group.
const maxBalancers = 16

// Statement is a part of the advice, with its grounds.
type Statement struct {
	// About is mode, scheduler, balancers, limit, haproxy or reach.
	About string `json:"about" yaml:"about"`
	Says  string `json:"says" yaml:"says"`
	// Figures are the measurements that it is based on; without any, Assumes names the assumption in their place.
	Figures []Figure `json:"figures,omitempty" yaml:"figures,omitempty"`
	Assumes string   `json:"assumes,omitempty" yaml:"assumes,omitempty"`
}

// Limit is the resource that one balancer runs out of first.
type Limit struct {
	// Part is cores, link or flows.
	Part string `json:"part" yaml:"part"`
	// Requests is the number of requests a second that one balancer carries until then.
	Requests float64 `json:"requests" yaml:"requests"`
}

// Advice is the result of the answers and the evidence.
type Advice struct {
	Verdict Verdict `json:"verdict" yaml:"verdict"`
	Summary string  `json:"summary" yaml:"summary"`
	Answers Answers `json:"answers" yaml:"answers"`
	// Mode, Scheduler, Balancers, Sharing and Limit are empty where the verdict is none.
	Mode      lb.Mode      `json:"mode,omitempty" yaml:"mode,omitempty"`
	Scheduler lb.Scheduler `json:"scheduler,omitempty" yaml:"scheduler,omitempty"`
	Balancers int          `json:"balancers,omitempty" yaml:"balancers,omitempty"`
	Sharing   Sharing      `json:"sharing,omitempty" yaml:"sharing,omitempty"`
	Limit     *Limit       `json:"limit,omitempty" yaml:"limit,omitempty"`
	// Excluded are the modes that the answers exclude.
	Excluded   []Excluded  `json:"excluded,omitempty" yaml:"excluded,omitempty"`
	Statements []Statement `json:"statements,omitempty" yaml:"statements,omitempty"`
}

// Decide advises. Errors: ErrAnswer. If the evidence does not support an answer, that is no error; the verdict is
// UseNone.
func Decide(e *Evidence, a Answers) (*Advice, error) {
	if err := a.Check(); err != nil {
		return nil, err
	}
	d := &decision{evidence: e, Advice: &Advice{Answers: a}}
	mode, excluded := chosen(a)
	d.Excluded = excluded
	if mode == nil {
		return d.none("no mode does what the answers ask for"), nil
	}
	d.Mode = mode.mode
	scheduled, known, err := d.sizeByScheduler()
	if err != nil {
		return nil, err
	}
	if !known {
		return d.none(fmt.Sprintf("nothing says what a request costs a balancer of mode %s under %s", d.Mode,
			d.load().name)), nil
	}
	if d.Balancers > maxBalancers {
		return d.none(fmt.Sprintf(
			"by the figures the load needs %d balancers, and more than %d are not advised from a laboratory's figures: measure on your machines",
			d.Balancers, maxBalancers)), nil
	}
	d.schedule(scheduled)
	d.compare()
	d.noteExtrapolation()
	d.conclude()
	return d.Advice, nil
}

// sizeByScheduler counts the balancers by the figures of the scheduler that so many of them have, and returns the
// number that it was selected for; known is false if nothing says what a request costs.
func (d *decision) sizeByScheduler() (scheduled int, known bool, err error) {
	for scheduled = 1 + d.Answers.Failures; ; scheduled = d.Balancers {
		d.Statements, d.Scheduler = nil, ""
		d.schedule(scheduled)
		need, err := d.size()
		if err != nil || need == nil {
			return scheduled, false, err
		}
		d.count(*need)
		// With the scheduler for several balancers, one may suffice: it keeps that scheduler.
		if scheduled > 1 || d.Balancers == 1 {
			return scheduled, true, nil
		}
	}
}

// decision is advice that is being made.
type decision struct {
	*Advice
	evidence *Evidence
}

// say adds a statement.
func (d *decision) say(about, assumes string, figures []*Figure, format string, arguments ...any) {
	s := Statement{About: about, Says: fmt.Sprintf(format, arguments...), Assumes: assumes}
	for _, f := range figures {
		if f != nil {
			s.Figures = append(s.Figures, *f)
		}
	}
	d.Statements = append(d.Statements, s)
}

// none makes the verdict UseNone, and clears everything that could be read as advice.
func (d *decision) none(why string) *Advice {
	d.Verdict, d.Summary = UseNone, "None of these: "+why+"."
	d.Mode, d.Scheduler, d.Balancers, d.Sharing, d.Limit = "", "", 0, "", nil
	return d.Advice
}

// count sets the number of balancers and how they share the VIPs, and states which resource one runs out of first.
func (d *decision) count(need sizing.Need) {
	carry, first := 1, need.Parts[0]
	for _, part := range need.Parts {
		carry = max(carry, part.Machines)
		if part.Used > first.Used {
			first = part
		}
	}
	d.Balancers = carry + d.Answers.Failures
	switch {
	case d.Balancers == 1:
		d.Sharing = Alone
	case carry == 1 && d.Answers.Network == Segment:
		d.Sharing = VRRP
	default:
		d.Sharing = BGP
	}
	d.Limit = &Limit{Part: first.Name, Requests: d.Answers.Requests / first.Used}
	for _, part := range need.Parts {
		usable := d.Answers.Usage
		d.say("limit", "", nil, "one balancer would use %s %% of its %s, of which %.0f %% may be used",
			number(twoDigits(100*part.Used*usable)), part.Name, 100*usable)
	}
}

// conclude writes the summary.
func (d *decision) conclude() {
	d.Verdict = UseMode
	what := fmt.Sprintf("Use mode %s", d.Mode)
	if d.Mode == lb.ModeProxy {
		d.Verdict = UseHAProxy
		what = "Use HAProxy, which mode proxy configures and runs"
	}
	several := "one balancer"
	if d.Balancers > 1 {
		several = fmt.Sprintf("%d balancers, of which %d may fail,", d.Balancers, d.Answers.Failures)
		if d.Answers.Failures == 0 {
			several = fmt.Sprintf("%d balancers", d.Balancers)
		}
		several += map[Sharing]string{VRRP: " by VRRP", BGP: " by BGP and ECMP"}[d.Sharing]
	}
	d.Summary = fmt.Sprintf("%s, scheduler %s, on %s; one runs out of its %s first, at about %s requests/s.",
		what, d.Scheduler, several, d.Limit.Part, grouped(twoDigits(d.Limit.Requests)))
}

// schedule selects the scheduler for a number of balancers. The second call for it states the reason.
func (d *decision) schedule(balancers int) {
	first := d.Scheduler == ""
	say := func(assumes string, figures []*Figure, format string, arguments ...any) {
		if !first {
			d.say("scheduler", assumes, figures, format, arguments...)
		}
	}
	long := d.Answers.Lifetime == Long
	even := func(s lb.Scheduler) *Figure {
		return d.evidence.firstFigure("distribution", "", results.DeviationPercentMax, map[string]any{"scheduler": s,
			"backends": 25})
	}
	broken := func(s lb.Scheduler) *Figure {
		return d.evidence.firstFigure("change", "jeoul-l2dsr-tc", results.Broken, map[string]any{"scheduler": s,
			"event": "lb-kill"})
	}
	memory := d.evidence.firstFigure("memory", "", results.BytesPerFlow, map[string]any{"scheduler": lb.RoundRobin})
	switch {
	case d.Mode == lb.ModeProxy && long:
		d.Scheduler = lb.LeastConnections
		say("HAProxy's schedulers were not held against each other here", nil,
			"long connections go where the fewest are open")
	case d.Mode == lb.ModeProxy:
		d.Scheduler = lb.WeightedRoundRobin
		say("HAProxy's schedulers were not held against each other here", nil,
			"each request goes to the next backend, by weight")
	case d.Mode == lb.FullNAT:
		d.Scheduler = lb.RoundRobin
		say("", []*Figure{even(lb.RoundRobin), even(lb.Maglev)},
			"full NAT remembers each flow whatever the scheduler, and rr spreads them most evenly")
	case balancers > 1 && d.Balancers == 1:
		d.Scheduler = lb.Maglev
		say("", []*Figure{d.evidence.firstFigure("memory", "", results.BytesPerFlow, map[string]any{"scheduler": lb.Maglev}),
			memory}, "maglev remembers nothing, so one balancer suffices; with a scheduler that remembers each flow it does not")
	case balancers > 1:
		d.Scheduler = lb.Maglev
		say("", []*Figure{broken(lb.Maglev), broken(lb.RoundRobin)},
			"balancers that tell each other nothing send a flow to the same backend by maglev, and by rr they do not")
	case long:
		d.Scheduler = lb.LeastConnections
		say("", []*Figure{even(lb.LeastConnections), even(lb.Maglev), memory},
			"long connections are spread by how many are open; each is remembered")
	case d.Answers.Speaks.datagrams():
		d.Scheduler = lb.RoundRobin
		say("", []*Figure{even(lb.RoundRobin), even(lb.Maglev), memory},
			"few sockets ask much, and rr spreads them most evenly; each is remembered")
	default:
		d.Scheduler = lb.Maglev
		say("", []*Figure{even(lb.Maglev), d.evidence.firstFigure("memory", "", results.BytesPerFlow,
			map[string]any{"scheduler": lb.Maglev})},
			"maglev remembers nothing, and spreads many short connections evenly enough")
	}
}

// compare compares the mode with HAProxy and with no balancer, in the same run.
func (d *decision) compare() {
	under := d.load()
	at := d.measured(under.name)
	if at == nil {
		d.say("mode", "", nil,
			"mode %s is the first, by cost, that the answers permit; no run of it under %s is in the evidence", d.Mode,
			under.name)
		return
	}
	figures := []*Figure{pointer(at.figure(at.rate()))}
	held := []string{}
	for _, other := range []string{"direct", under.against} {
		beside := at.beside(other)
		if beside == nil || other == at.point.Subject {
			continue
		}
		figures = append(figures, pointer(beside.figure(at.rate())))
		held = append(held, at.against(*beside))
	}
	what := fmt.Sprintf("%s under %s reached %s %s", at.point.Subject, under.name,
		number(at.point.Metrics[at.rate()].Median), unit(at.rate()))
	if len(held) > 0 {
		what += ": " + strings.Join(held, "; ")
	}
	switch at.point.Saturated {
	case results.SaturatedBalancer:
		what += " (its ceiling: the balancer was the limit)"
	case results.SaturatedUnknown:
		what += " (what was the limit is unknown)"
	default:
		what += fmt.Sprintf(" (the limit was: %s; so that is not its ceiling)", at.point.Saturated)
	}
	about := "mode"
	if d.Mode == lb.ModeProxy {
		about = "haproxy"
	}
	d.say(about, "", figures, "%s", what)
}

// noteExtrapolation states how far the load is beyond the measurements.
func (d *decision) noteExtrapolation() {
	at := d.measured(d.load().name)
	if at == nil || at.rate() == results.GigabitsPerSecond {
		return
	}
	reached := at.point.Metrics[at.rate()].Median
	if d.Answers.Requests <= reached {
		return
	}
	d.say("reach", "a request costs as much at this rate and on your machine", []*Figure{pointer(at.figure(at.rate()))},
		"%s requests/s are %.1f × what was measured (%s): run the suite on your machines before you rely on it",
		number(d.Answers.Requests), d.Answers.Requests/reached, at.source.Machine)
}

// twoDigits rounds values computed from figures of another machine: more digits would suggest too much precision.
func twoDigits(v float64) float64 {
	if !(v > 0) {
		return v
	}
	unit := math.Pow(10, math.Floor(math.Log10(v))-1)
	return math.Round(v/unit) * unit
}

func pointer(f Figure) *Figure { return &f }

// unit returns a metric's name in the form that follows a number.
func unit(metric string) string {
	return strings.Replace(strings.ReplaceAll(metric, "_", " "), " per second", "/s", 1)
}
