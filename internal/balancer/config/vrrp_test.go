// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

const vrrpServices = `
interface: eth0
services:
  - {name: web, vip: 192.0.2.100, port: 80, backends: [{name: a, address: 192.0.2.21}]}
`

func TestVRRP(t *testing.T) {
	cfg, err := Parse("f", []byte("vrrp: {id: 51}\n"+vrrpServices))
	want := lb.VRRP{ID: 51, Priority: 100, Interval: time.Second, Preempt: true, AnnounceInterval: time.Minute}
	if err != nil || cfg.VRRP != want {
		t.Errorf("VRRP is %+v, %v, and should be %+v", cfg.VRRP, err, want)
	}
	without, err := Parse("f", []byte(vrrpServices))
	if err != nil || without.VRRP != (lb.VRRP{}) {
		t.Errorf("without vrrp: %+v, %v", without.VRRP, err)
	}
	for fields, says := range map[string]string{
		"priority: 100":          "vrrp.id",
		"id: 0":                  "vrrp.id",
		"id: 256":                "vrrp.id",
		"id: 51, priority: 255":  "vrrp.priority",
		"id: 51, interval: 41s":  "vrrp.interval",
		"id: 51, interval: 15ms": "f:1: vrrp.interval: 15ms is no whole number of hundredths of a second; write 10ms",
		"id: 51, preempt: false, preempt_delay: 1s": "with preempt: false no balancer is preempted",
	} {
		if _, err := Parse("f", []byte("vrrp: {"+fields+"}\n"+vrrpServices)); err == nil ||
			!strings.Contains(err.Error(), says) {
			t.Errorf("%s: the error is %v, and should say %q", fields, err, says)
		}
	}
}

// TestVRRPBounds: more VIPs than a packet has room for move together all the same.
func TestVRRPBounds(t *testing.T) {
	var text strings.Builder
	text.WriteString("vrrp: {id: 51}\ninterface: eth0\nservices:\n")
	for i := range 91 {
		fmt.Fprintf(&text,
			"  - {name: s%d, vip: '2001:db8::1:%x', port: 80, backends: [{name: a, address: '2001:db8::21'}]}\n", i,
			i+1)
	}
	cfg, err := Parse("f", []byte(text.String()))
	if err != nil || len(cfg.Warnings) != 1 || !strings.Contains(cfg.Warnings[0].Error(),
		"room for 90 of the 91 IPv6 VIPs") {
		t.Errorf("91 VIPs: %v, %v", cfg.Warnings, err)
	}
}
