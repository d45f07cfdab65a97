// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// NetStat6 returns the IPv6 counters of a network namespace since it was made, by
// the names that nstat(8) uses: "Ip6ReasmOKs", "Icmp6OutPktTooBigs".
func NetStat6(where Inside) (map[string]uint64, error) {
	counters := map[string]uint64{}
	err := where.Do(func() error {
		text, err := os.ReadFile("/proc/thread-self/net/snmp6")
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(text)) {
			fields := strings.Fields(line)
			if len(fields) != 2 {
				return fmt.Errorf("/proc/net/snmp6: not a name and a number: %q", line)
			}
			if counters[fields[0]], err = strconv.ParseUint(fields[1], 10, 64); err != nil {
				return fmt.Errorf("/proc/net/snmp6: %w", err)
			}
		}
		return nil
	})
	return counters, err
}
