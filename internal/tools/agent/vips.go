// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"strconv"

	"github.com/jeoul/jeoul/internal/host/hostnet"
)

// silenceARP sets the sysctls, except where a value is there that serves as
// well or better. lo's own values are set along with those of "all", as every
// guide to direct server return has it and as an operator will look for; the
// kernel asks those of the interface that a request comes in on or goes out
// by, which lo never is.
func silenceARP(changes *hostnet.Changes) error {
	for _, s := range silences {
		old, err := changes.Sysctl(s.name)
		if err != nil {
			return fmt.Errorf("keep ARP quiet: %w", err)
		}
		if level, err := strconv.Atoi(old); err == nil && s.enough(level) {
			continue
		}
		if err := changes.SetSysctl(s.name, s.value); err != nil {
			return fmt.Errorf("keep ARP quiet: %w", err)
		}
	}
	return nil
}

// silences are the sysctls that keep ARP quiet about VIPs.
var silences = []struct {
	name, value string
	enough      func(int) bool
}{
	{"net.ipv4.conf.all.arp_ignore", "1", ignoresVIP},
	{"net.ipv4.conf.lo.arp_ignore", "1", ignoresVIP},
	{"net.ipv4.conf.all.arp_announce", "2", hidesVIP},
	{"net.ipv4.conf.lo.arp_announce", "2", hidesVIP},
}

// ignoresVIP reports whether a level of arp_ignore keeps an address of lo with
// host scope unanswered (Documentation/networking/ip-sysctl.rst): 1 and 2
// answer for the incoming interface's addresses only, 3 for none of host scope,
// 8 for none. The levels between are reserved, and the kernel answers.
func ignoresVIP(level int) bool { return level >= 1 && level <= 3 || level == 8 }

// hidesVIP reports whether a level of arp_announce keeps the VIP out of the
// sender field of ARP requests; above 2 the kernel does as for 2.
func hidesVIP(level int) bool { return level >= 2 }
