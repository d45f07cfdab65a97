// SPDX-License-Identifier: Apache-2.0

package load

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Steady is a client that keeps connections open, sends small requests over each of them at fixed times, and opens new
// connections at a fixed rate: an open loop. A request counts from when it was due, so that a request that had to wait
// for an earlier answer shows its whole delay.
type Steady struct {
	// Target is a web server, or a balancer in front of one. Path is the requested path, of a file of FileBytes.
	Target    netip.AddrPort
	Path      string
	FileBytes int
	// Connections is the number of connections that are kept open. Each sends a request once in Every; the requests are
	// spread evenly over that time.
	Connections int
	Every       time.Duration
	// New is the number of connections that are opened per second, for one request each.
	New int
	// Timeout is how long an answer may take before it counts as missing; 0 means SteadyTimeout.
	Timeout time.Duration
	// Phases follow each other from the time when all connections are open. The requests of each phase are counted
	// separately.
	Phases []Phase
}

// Phase is a time whose requests are counted together.
type Phase struct {
	// Name is empty if no result of the phase is needed.
	Name string
	// Time is the duration of the phase; approximate, if a signal ends the phase.
	Time time.Duration
}

// Bounds of a steady client.
const (
	// SteadyTimeout is how long an answer may take by default. It is longer than the first two timeouts for the
	// retransmission of a SYN (1 s and 3 s, RFC 6298).
	SteadyTimeout = 4 * time.Second
	// SteadyMaxTimeout is the largest possible timeout.
	SteadyMaxTimeout = 5 * time.Minute
	// steadyMaxAnswer is the maximum length of an answer, including its headers.
	steadyMaxAnswer = 4096
	// SteadyMaxFile is the maximum length of a file, which leaves room for the headers.
	SteadyMaxFile = 2048
	// SteadyMaxRequests is the number of requests that nginx answers over one connection (keepalive_requests), less the
	// first request.
	SteadyMaxRequests = 999
)

// ErrSteady means that a steady client could not open all its connections.
var ErrSteady = errors.New("the connections could not all be opened")

// Check returns the first impossible setting of s as an error.
func (s Steady) Check() error {
	total := time.Duration(0)
	for _, phase := range s.Phases {
		total += phase.Time
	}
	switch {
	case !s.Target.IsValid() || s.Path == "":
		return errors.New("a steady client needs an address and a path to ask for")
	case s.Connections < 1 || s.Every < time.Millisecond:
		return fmt.Errorf("%d connections, each once in %v: use at least one, and at least 1ms", s.Connections, s.Every)
	case s.FileBytes < 1 || s.FileBytes > SteadyMaxFile:
		return fmt.Errorf("a file of %d bytes: use 1 to %d", s.FileBytes, SteadyMaxFile)
	case s.Timeout < 0 || s.Timeout > SteadyMaxTimeout:
		return fmt.Errorf("an answer within %v: use up to %v", s.Timeout, SteadyMaxTimeout)
	case s.New < 0 || total <= 0:
		return errors.New("a steady client needs phases, and no negative number of new connections")
	case total/s.Every > SteadyMaxRequests:
		return fmt.Errorf("%d requests over each connection: nginx closes one after %d", total/s.Every,
			SteadyMaxRequests)
	}
	return nil
}

// SteadyReport is the report of a steady client.
type SteadyReport struct {
	Phases []PhaseReport `json:"phases"`
}

// PhaseReport has the results of a phase's requests.
type PhaseReport struct {
	Name    string  `json:"name"`
	Seconds float64 `json:"seconds"`
	// Answered and Unanswered count requests over the open connections. Latency has the latencies of the answered ones.
	Answered   uint64   `json:"answered"`
	Unanswered uint64   `json:"unanswered"`
	Latency    *Latency `json:"latency"`
	// Reset, Closed, Silent and Wrong count open connections that were lost in the phase: by a reset, an end, a missing
	// answer, a wrong answer.
	Reset  uint64 `json:"reset"`
	Closed uint64 `json:"closed"`
	Silent uint64 `json:"silent"`
	Wrong  uint64 `json:"wrong"`
	// Opened counts new connections that were answered, and NewLatency has the times that this took, including
	// connecting. NotOpened counts the others.
	Opened     uint64   `json:"opened"`
	NotOpened  uint64   `json:"not_opened"`
	NewLatency *Latency `json:"new_latency"`
	// Why has the reasons of some failures.
	Why []string `json:"why,omitempty"`
}

// Lost returns the number of open connections that were lost.
func (p PhaseReport) Lost() uint64 { return p.Reset + p.Closed + p.Silent + p.Wrong }

// Phase returns the report of the phase with the given name; an empty report if there is none.
func (r *SteadyReport) Phase(name string) PhaseReport {
	i := slices.IndexFunc(r.Phases, func(p PhaseReport) bool { return p.Name == name })
	if i < 0 {
		return PhaseReport{Name: name, Latency: newLatency(), NewLatency: newLatency()}
	}
	return r.Phases[i]
}

func (p *PhaseReport) because(format string, args ...any) {
	p.Why = withReason(p.Why, fmt.Sprintf(format, args...))
}

// ParseSteady reads the output of a steady client: a line when its connections were open, a line for each phase that
// was ended by a signal, and its report. Its error wraps ErrOutput.
func ParseSteady(text []byte) (*SteadyReport, error) {
	_, report, ok := bytes.Cut(text, []byte("\n"))
	if !ok {
		return nil, fmt.Errorf("%w: it has no second line", ErrOutput)
	}
	for ok {
		report, ok = bytes.CutPrefix(report, []byte(steadyEnded+"\n"))
	}
	var r SteadyReport
	if err := json.Unmarshal(report, &r); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrOutput, err)
	}
	for _, p := range r.Phases {
		if p.Latency == nil || p.NewLatency == nil {
			return nil, fmt.Errorf("%w: phase %q has no latencies", ErrOutput, p.Name)
		}
	}
	return &r, nil
}

// latencyText is the JSON form of a Latency.
type latencyText struct {
	// Histogram is in HdrHistogram's compressed form, version 2.
	Histogram []byte  `json:"histogram,omitempty"`
	MinUs     float64 `json:"min_us"`
	MaxUs     float64 `json:"max_us"`
	SumUs     float64 `json:"sum_us"`
}

// MarshalJSON writes the complete distribution.
func (l *Latency) MarshalJSON() ([]byte, error) {
	if l.Count() == 0 {
		return json.Marshal(latencyText{})
	}
	histogram, err := l.histogram.Encode(hdrhistogram.V2CompressedEncodingCookieBase)
	if err != nil {
		return nil, fmt.Errorf("writing a distribution of latencies: %w", err)
	}
	return json.Marshal(latencyText{Histogram: histogram, MinUs: l.min, MaxUs: l.max, SumUs: l.sum})
}

// UnmarshalJSON reads the output of MarshalJSON.
func (l *Latency) UnmarshalJSON(data []byte) error {
	var text latencyText
	if err := json.Unmarshal(data, &text); err != nil {
		return err
	}
	*l = *newLatency()
	if len(text.Histogram) == 0 {
		return nil
	}
	histogram, err := hdrhistogram.Decode(text.Histogram)
	if err != nil {
		return fmt.Errorf("reading a distribution of latencies: %w", err)
	}
	if bad := math.IsNaN(text.MinUs + text.MaxUs + text.SumUs); bad || text.MinUs > text.MaxUs {
		return errors.New("reading a distribution of latencies: its least is greater than its greatest")
	}
	l.histogram, l.min, l.max, l.sum = histogram, text.MinUs, text.MaxUs, text.SumUs
	return nil
}
