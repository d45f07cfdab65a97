// SPDX-License-Identifier: Apache-2.0

package config

import (
	"net/netip"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/text/keytable"
)

// The bounds of the fields of VRRP (RFC 9568 section 5.2).
const (
	maxVRID             = 255
	maxVRRPPriority     = 254 // 255 is an owner's, and balancers own no VIP
	maxVRRPWeight       = 253
	vrrpTick            = 10 * time.Millisecond
	maxAdvertInterval   = 4095 * vrrpTick
	maxPreemptDelay     = time.Hour
	maxAnnounceInterval = 24 * time.Hour
	// maxVIPs4 and maxVIPs6 are how many VIPs a packet has room for.
	maxVIPs4, maxVIPs6 = 255, 90
)

// vrrpKeys are the keys of `vrrp`.
var vrrpKeys = keytable.Table[lb.VRRP]{
	{Name: "id", Required: true,
		What:  "The number of the virtual router (VRID). Balancers that share the VIPs have the same; others of the segment have another.",
		Value: keytable.Optional(func(v *lb.VRRP) *uint8 { return &v.ID }, keytable.Number[uint8](1, maxVRID), "")},
	{Name: "priority",
		What: "The running balancer with the highest priority holds the VIPs; of two with the same, the one that has them.",
		Value: keytable.Field(func(v *lb.VRRP) *uint8 {
			return &v.Priority
		}, keytable.Number[uint8](1, maxVRRPPriority), lb.DefaultVRRPPriority)},
	{Name: "interface", What: "The interface of the advertisements.",
		Value: keytable.Optional(func(v *lb.VRRP) *string { return &v.Interface }, interfaceName, "the first one")},
	{Name: "interval",
		What: "The interval of the active balancer's advertisements, in whole hundredths of a second. After three to four intervals without one, another balancer takes over.",
		Value: keytable.Field(func(v *lb.VRRP) *time.Duration {
			return &v.Interval
		}, keytable.Duration(vrrpTick, maxAdvertInterval), lb.DefaultVRRPInterval)},
	{Name: "preempt", What: "Whether this balancer takes the VIPs from one of a lower priority.",
		Value: keytable.Field(func(v *lb.VRRP) *bool { return &v.Preempt }, keytable.Bool, true)},
	{Name: "preempt_delay",
		What:    "How long a balancer of a lower priority keeps the VIPs after its first advertisement to this one.",
		Refused: "`preempt: false` beside it.",
		Value: keytable.Field(func(v *lb.VRRP) *time.Duration { return &v.PreemptDelay },
			keytable.Duration(0, maxPreemptDelay), 0)},
	{Name: "announce_interval",
		What: "How often the balancer that holds the VIPs announces them to the neighbours (ARP, " +
			"neighbour discovery) with no other reason to do so. `0s`: never.",
		Value: keytable.Field(func(v *lb.VRRP) *time.Duration { return &v.AnnounceInterval },
			keytable.Duration(0, maxAnnounceInterval), lb.DefaultVRRPAnnounceInterval)},
	{Name: "weight", What: "How much the priority falls, down to 1, for each service without a backend that serves.",
		Value: keytable.Field(func(v *lb.VRRP) *uint8 { return &v.Weight }, keytable.Number[uint8](0, maxVRRPWeight),
			0)},
}

// checkVRRP checks the fields against each other.
func (p *parser) checkVRRP(vips map[netip.Addr]int) {
	v := &p.cfg.VRRP
	if v.ID == 0 { // not there, or reported before
		*v = lb.VRRP{}
		return
	}
	if v.Interval%vrrpTick != 0 {
		p.Fail("vrrp.interval", "%s is no whole number of hundredths of a second; write %s",
			keytable.ShowDuration(v.Interval), keytable.ShowDuration(v.Interval.Truncate(vrrpTick)))
	}
	if !v.Preempt && v.PreemptDelay > 0 {
		p.Fail("vrrp.preempt_delay", "with preempt: false no balancer is preempted; remove one of them")
	}
	four, six := 0, 0
	for vip := range vips {
		if vip.Is4() {
			four++
		} else {
			six++
		}
	}
	if four > maxVIPs4 {
		p.warn("vrrp",
			"a packet has room for %d of the %d IPv4 VIPs; all of them move together, and the first ones are named",
			maxVIPs4, four)
	}
	if six > maxVIPs6 {
		p.warn("vrrp",
			"a packet has room for %d of the %d IPv6 VIPs; all of them move together, and the first ones are named",
			maxVIPs6, six)
	}
}
