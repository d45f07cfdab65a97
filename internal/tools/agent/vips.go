// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"strconv"

	"github.com/jeoul/jeoul/internal/host/hostnet"
)

// silenceARP sets the sysctls, unless the present value serves as well or better. It sets lo's own values along with
// those of "all", because every guide to direct server return does so and operators look for them. The kernel uses the
// values of the interface that a request arrives on or leaves by, which is never lo.
func silenceARP(changes *hostnet.Changes) error {
	for _, s := range arpSysctls {
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

// arpSysctls are the sysctls that suppress ARP for VIPs.
var arpSysctls = []struct {
	name, value string
	enough      func(int) bool
}{
	{"net.ipv4.conf.all.arp_ignore", "1", ignoresVIP},
	{"net.ipv4.conf.lo.arp_ignore", "1", ignoresVIP},
	{"net.ipv4.conf.all.arp_announce", "2", hidesVIP},
	{"net.ipv4.conf.lo.arp_announce", "2", hidesVIP},
}

// ignoresVIP reports whether a level of arp_ignore keeps the kernel from answering for an address of lo with host scope
// (Documentation/networking/ip-sysctl.rst): 1 and 2 answer only for addresses of the incoming interface, 3 for none of
// host scope, 8 for none. The levels in between are reserved, and the kernel answers.
func ignoresVIP(level int) bool { return level >= 1 && level <= 3 || level == 8 }

// hidesVIP reports whether a level of arp_announce keeps the VIP out of the sender field of ARP requests. The kernel
// treats levels above 2 like 2.
func hidesVIP(level int) bool { return level >= 2 }
