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

// Steady is a client that keeps connections open and asks a little over each of
// them again and again, at times that are fixed beforehand, and opens new ones at
// a fixed rate: an open loop. A request counts from when it was to be sent, so
// that one which had to wait for an earlier answer shows its whole delay.
type Steady struct {
	// Target is a web server, or a balancer before one, and Path the path that is asked for: a file of FileBytes.
	Target    netip.AddrPort
	Path      string
	FileBytes int
	// Connections are kept open, and each asks once in Every; their turns are
	// spread evenly over that time.
	Connections int
	Every       time.Duration
	// New is how many connections are opened each second, for one request each.
	New int
	// Timeout is how long an answer may take before it counts as none; 0: SteadyTimeout.
	Timeout time.Duration
	// Phases follow each other from when all connections are open; the requests
	// of each are counted apart.
	Phases []Phase
}

// Phase is a time of which the requests are counted together.
type Phase struct {
	// Name is empty where it is not asked for by name.
	Name string
	// Time is how long it lasts, or about, where the client is told.
	Time time.Duration
}

// Bounds of a steady client.
const (
	// SteadyTimeout is how long an answer may take, if nothing else is given. It is longer than the first two
	// times after which a lost SYN is sent again (1 s and 3 s, RFC 6298).
	SteadyTimeout = 4 * time.Second
	// SteadyMaxTimeout bounds the timeout that can be given.
	SteadyMaxTimeout = 5 * time.Minute
	// steadyMaxAnswer is the most that an answer may have, headers included.
	steadyMaxAnswer = 4096
	// SteadyMaxFile leaves room for the headers.
	SteadyMaxFile = 2048
	// SteadyMaxRequests is how many requests nginx answers over one connection
	// (keepalive_requests), less one to begin with.
	SteadyMaxRequests = 999
)

// ErrSteady means that a steady client could not begin.
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
	// Answered and Unanswered are requests over the open connections, Latency that
	// of the answered ones.
	Answered   uint64   `json:"answered"`
	Unanswered uint64   `json:"unanswered"`
	Latency    *Latency `json:"latency"`
	// Reset, Closed, Silent and Wrong are open connections that were lost in the
	// phase: by a reset, an end, a request without an answer, a wrong answer.
	Reset  uint64 `json:"reset"`
	Closed uint64 `json:"closed"`
	Silent uint64 `json:"silent"`
	Wrong  uint64 `json:"wrong"`
	// Opened are new connections that were answered, and NewLatency the time that
	// took, with connecting; NotOpened are those that were not.
	Opened     uint64   `json:"opened"`
	NotOpened  uint64   `json:"not_opened"`
	NewLatency *Latency `json:"new_latency"`
	// Why has the reasons of some failures.
	Why []string `json:"why,omitempty"`
}

// Lost is how many open connections were lost.
func (p PhaseReport) Lost() uint64 { return p.Reset + p.Closed + p.Silent + p.Wrong }

// Phase returns the report of the phase with the name; an empty one if there is
// none.
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

// ParseSteady reads the output of a steady client: a line when its connections were open, one for each phase that it
// was told to end, and its report. Its error wraps ErrOutput.
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

// latencyText is a Latency as JSON has it.
type latencyText struct {
	// Histogram is in HdrHistogram's compressed form, version 2.
	Histogram []byte  `json:"histogram,omitempty"`
	MinUs     float64 `json:"min_us"`
	MaxUs     float64 `json:"max_us"`
	SumUs     float64 `json:"sum_us"`
}

// MarshalJSON writes the whole distribution.
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

// UnmarshalJSON reads the JSON of MarshalJSON.
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
