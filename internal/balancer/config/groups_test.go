// SPDX-License-Identifier: Apache-2.0

package config

import (
	"strings"
	"testing"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// grouped are two services of a group; the second's lines are the test's.
const grouped = `interface: eth0
services:
  - name: sip
    vip: 192.0.2.100
    port: 5060
    protocol: udp
    persistence: {timeout: 10m, prefix: 24, group: phones}
    backends:
      - {name: a, address: 192.0.2.1}
      - {name: b, address: 192.0.2.2}
  - name: sips
    vip: VIP
    port: 5061
    mode: nat
    persistence: PERSISTENCE
    backends:
      - {name: a, address: ONE}
      - {name: b, address: 192.0.2.2, port: 9}
`

func groupedFile(vip, persistence, one string) []byte {
	return []byte(strings.NewReplacer("VIP", vip, "PERSISTENCE", persistence, "ONE", one).Replace(grouped))
}

func TestGroups(t *testing.T) {
	got, err := Parse("f", groupedFile("192.0.2.101", "{timeout: 600s, prefix: 24, group: phones}", "192.0.2.3"))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range got.Services {
		if want := (lb.Persistence{Timeout: 10 * time.Minute, Prefix: 24, Group: "phones"}); s.Persistence != want {
			t.Errorf("%s: %+v, want %+v", s.Name, s.Persistence, want)
		}
	}
	for name, test := range map[string]struct{ vip, persistence, one, line, field, says string }{
		"timeout": {"192.0.2.101", "{timeout: 11m, prefix: 24, group: phones}", "192.0.2.3", "15",
			"services[1].persistence.timeout", "10m0s (services[0].persistence.group (line 7))"},
		"prefix": {"192.0.2.101", "{timeout: 10m, prefix: 25, group: phones}", "192.0.2.3", "15",
			"services[1].persistence.prefix", "/24"},
		"no prefix": {"192.0.2.101", "{timeout: 10m, group: phones}", "192.0.2.3", "15", "services[1].persistence",
			"/32, and the group phones has /24"},
		"family": {"\"2001:db8::1\"", "{timeout: 10m, prefix: 24, group: phones}", "192.0.2.3", "15",
			"services[1].persistence.group", "one for each family"},
		"a host twice": {"192.0.2.101", "{timeout: 10m, prefix: 24, group: phones}", "192.0.2.2", "18",
			"services[1].backends[1].address", "knows a host by its address alone"},
		"not a name": {"192.0.2.101", "{timeout: 10m, prefix: 24, group: my phones}", "192.0.2.3", "15",
			"services[1].persistence.group", "letters, digits"},
		"without a time": {"192.0.2.101", "{group: phones}", "192.0.2.3", "15", "services[1].persistence.timeout",
			"missing"},
	} {
		_, err := Parse("f", groupedFile(test.vip, test.persistence, test.one))
		if err == nil {
			t.Errorf("%s: accepted", name)
			continue
		}
		if text := err.Error(); !strings.Contains(text, "f:"+test.line+": "+test.field) ||
			!strings.Contains(text, test.says) {
			t.Errorf("%s: %v; want line %s, %s and %q", name, err, test.line, test.field, test.says)
		}
	}
}
