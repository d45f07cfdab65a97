// SPDX-License-Identifier: Apache-2.0

package advise

import (
	"bytes"
	"fmt"
	"text/template"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// The bounds of a suite that a laboratory on one machine can carry.
const (
	suiteMaxRate = 20_000
	suiteMaxFile = 1 << 20
)

var suiteText = template.Must(template.New("suite").Parse(`# Made by jeoul advise, to prove or refute:
# {{.Summary}}
#
#   jeoul bench run FILE --to DIR                  in namespaces of one machine
#   jeoul bench run FILE -i INVENTORY --to DIR     on your machines
#   jeoul advise --results DIR/results.json …      the advice by these figures
name: advised
title: What was advised, against {{.Against}} and no balancer

lab: {clients: 3, servers: 3}
{{- if .File}}
web: {file_bytes: {{.File}}}
{{- end}}
repeats: 5

subjects:
  - name: direct
  - name: {{.Against}}
{{- if .AgainstParams}}
    params: {{.AgainstParams}}
{{- end}}
{{- range .Subjects}}
  - name: {{.}}
    params: {{$.SubjectParams}}
{{- end}}

loads:
{{.Loads}}`))

// suiteLoads are the loads of a suite, by their names in this package.
var suiteLoads = map[string]string{
	"ab":         "  - {kind: ab, concurrency: [500], duration: 2s}\n",
	"wrk":        "  - {kind: wrk, concurrency: [200], duration: 2s}\n",
	"https":      "  - {name: https, kind: ab, tls: true, concurrency: [500], duration: 5s}\n",
	"https-kept": "  - {name: https-kept, kind: wrk, tls: true, concurrency: [200], duration: 5s}\n",
	"crr":        "  - {name: crr, kind: tcp_crr, concurrency: [100], duration: 2s, offloads: true}\n",
	"rr":         "  - {name: rr, kind: tcp_rr, concurrency: [100], duration: 2s, offloads: true}\n",
	"bulk":       "  - {name: bulk, kind: iperf3, concurrency: [10], duration: 2s, offloads: true}\n",
	"full": "  - name: full\n    kind: dnsperf\n    duration: 2s\n    offloads: true\n" +
		"    dnsperf: {clients: [30], generators: [2], backends: [3]}\n",
}

// Suite returns the suite that would prove the advice. It is empty if the verdict is UseNone.
func (v *Advice) Suite() ([]byte, error) {
	if v.Verdict == UseNone {
		return nil, nil
	}
	like := loadOf(v.Answers)
	values := struct {
		*Advice
		Against, AgainstParams, SubjectParams, Loads string
		File                                         int
		Subjects                                     []string
	}{Advice: v, Against: like.against, Loads: suiteLoads[like.name], Subjects: (&decision{Advice: v}).subjects(),
		SubjectParams: fmt.Sprintf("{scheduler: [%s]}", v.Scheduler)}
	if v.Answers.Speaks.web() {
		values.File = int(min(v.Answers.Bytes, suiteMaxFile))
		values.AgainstParams = "{threads: [1, 2]}"
		if v.Answers.Requests <= suiteMaxRate {
			values.Loads += v.arrivals()
		}
	}
	if like.against == "haproxy-tcp" {
		values.AgainstParams = "{threads: [1, 2], splice: [auto]}"
	}
	if v.Mode == lb.ModeProxy {
		// HAProxy, configured by hand, represents the mode where the laboratory's load is TCP.
		values.Subjects, values.SubjectParams = []string{"jeoul-proxy"}, "{threads: [1, 2]}"
	}
	var text bytes.Buffer
	if err := suiteText.Execute(&text, values); err != nil {
		return nil, fmt.Errorf("writing the suite: %w", err)
	}
	return text.Bytes(), nil
}

// arrivals is the load at the rate in the answers: an open loop.
func (v *Advice) arrivals() string {
	return fmt.Sprintf("  - {name: arrivals, kind: paced, concurrency: [500], rate: [%d], duration: 2s}\n",
		max(int(v.Answers.Requests), 3))
}
