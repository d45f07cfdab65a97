// SPDX-License-Identifier: Apache-2.0

package lb

import (
	"strings"
	"time"
)

// Outliers is how a service judges its backends by their answers to clients, and for how long one that fails most of
// its new flows gets no more. Only modes that bring replies back through the balancer have it.
type Outliers struct {
	// Failures is the share of failures, in per cent, that ejects a backend; 0: none is ejected. Of TCP these are new
	// connections that it has not answered by SYN and ACK; of UDP the ICMP errors "destination unreachable" among the
	// packets that came back.
	Failures uint8 `json:"failures,omitempty"`
	// Connections is how many new connections, of UDP how many datagrams, an interval must have
	// to say anything.
	Connections uint32 `json:"connections,omitempty"`
	// Interval is over how long the share is taken.
	Interval time.Duration `json:"interval_ns,omitempty"`
	// Pause is how long a backend is ejected at first. It doubles with each further time, up to
	// LongestPause, and halves with each Interval that was served well.
	Pause        time.Duration `json:"pause_ns,omitempty"`
	LongestPause time.Duration `json:"longest_pause_ns,omitempty"`
	// Ejected is the share of the backends, in per cent, that may be ejected at a time. One may be in any case, and the
	// last never.
	Ejected uint8 `json:"ejected,omitempty"`
}

// Defaults of the detection of outliers. With half of the connections failing, an interval of 5 s and 20 connections in
// it, a backend that is dead is out after some 6 s, and one that restarts within 2 s stays in.
const (
	DefaultOutlierConnections  = 20
	DefaultOutlierInterval     = 5 * time.Second
	DefaultOutlierPause        = 30 * time.Second
	DefaultOutlierLongestPause = 5 * time.Minute
	DefaultOutlierEjected      = 50
)

// On reports whether the service ejects backends.
func (o Outliers) On() bool { return o.Failures > 0 }

// MaxEjected returns how many of so many backends may be ejected at a time.
func (o Outliers) MaxEjected(backends int) int {
	return max(0, min(backends-1, max(1, backends*int(o.Ejected)/100)))
}

// PauseOf returns how long the backend is ejected the nth time, n from 1.
func (o Outliers) PauseOf(n uint32) time.Duration {
	pause := o.Pause
	for ; n > 1 && pause < o.LongestPause; n-- {
		pause *= 2
	}
	return min(pause, o.LongestPause)
}

// OutlierModes are the modes whose replies come back through the balancer.
func OutlierModes() string {
	var words []string
	for _, m := range Modes {
		if m.Translates() {
			words = append(words, string(m))
		}
	}
	return strings.Join(words, " or ")
}
