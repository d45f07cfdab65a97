// SPDX-License-Identifier: Apache-2.0

package lb

import "time"

// VRRP is how this balancer shares its VIPs with others of the segment (RFC 9568): one of them holds all.
type VRRP struct {
	// Interface is the one on which advertisements are sent; empty: the first one.
	Interface string `json:"interface,omitempty"`
	// ID is the virtual router's (VRID), 1 to 255; 0: this balancer shares nothing, and the rest is empty.
	ID uint8 `json:"id"`
	// Priority decides who is active, 1 to 254.
	Priority uint8 `json:"priority"`
	// Interval is how often the active one is heard: whole hundredths of a second, up to 40.95 s.
	Interval time.Duration `json:"interval"`
	// Preempt has a balancer take over from one of a lower priority, PreemptDelay after it was heard first.
	Preempt      bool          `json:"preempt"`
	PreemptDelay time.Duration `json:"preempt_delay"`
	// AnnounceInterval is how often the VIPs are announced to the neighbours (ARP, neighbour discovery) while this
	// balancer holds them; 0: only when something makes it necessary.
	AnnounceInterval time.Duration `json:"announce_interval"`
	// Weight is how much the priority falls for each service without a backend that serves.
	Weight uint8 `json:"weight"`
}
