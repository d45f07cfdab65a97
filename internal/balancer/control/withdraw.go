// SPDX-License-Identifier: Apache-2.0

package control

import (
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// A VIP whose services all have on_empty: withdraw is on the interface only while a backend of one
// of them serves. Which VIPs are withdrawn follows from the desired state alone, so a start, a
// reload and a verdict come to the same.

// findYielding finds the VIPs that can be withdrawn.
func (l *layout) findYielding() {
	stay := map[netip.Addr]bool{}
	for _, s := range l.cfg.Services {
		if s.OnEmpty != lb.WithdrawVIP {
			stay[s.VIP] = true
		}
	}
	for i, s := range l.cfg.Services {
		if stay[s.VIP] {
			continue
		}
		if l.yielding == nil {
			l.yielding = map[netip.Addr][]int{}
		}
		l.yielding[s.VIP] = append(l.yielding[s.VIP], i)
	}
}

// withdrawn says whether a VIP is not to be held, for no backend serves.
func (v *view) withdrawn(vip netip.Addr) bool {
	services, yields := v.yielding[vip]
	return yields && !slices.ContainsFunc(services, func(i int) bool {
		return i < len(v.state.Services) && v.state.Services[i].Serves()
	})
}

// tellWithdrawn logs which VIPs are withdrawn, and which are held again.
func tellWithdrawn(log *slog.Logger, before, next *view) {
	var gone, back []netip.Addr
	for _, vip := range next.addresses {
		switch was, is := before.withdrawn(vip), next.withdrawn(vip); {
		case is && !was:
			gone = append(gone, vip)
		case was && !is:
			back = append(back, vip)
		}
	}
	if len(gone) > 0 {
		log.Warn("no backend serves, so the VIP is withdrawn: " + some(gone))
	}
	if len(back) > 0 {
		log.Info("a backend serves, so the VIP is held again: " + some(back))
	}
}

// some lists a few addresses and counts the others.
func some(addrs []netip.Addr) string {
	var text []string
	for _, a := range addrs[:min(len(addrs), mostTold)] {
		text = append(text, a.String())
	}
	if more := len(addrs) - len(text); more > 0 {
		text = append(text, fmt.Sprintf("%d more", more))
	}
	return strings.Join(text, ", ")
}
