// SPDX-License-Identifier: Apache-2.0

package nat

import (
	"errors"
	"github.com/google/go-cmp/cmp"
	"github.com/jeoul/jeoul/internal/weigh/bench/subject"
	"github.com/jeoul/jeoul/internal/weigh/bench/subject/subjecttest"
	"strings"
	"testing"
)

func TestIPTablesRules(t *testing.T) {
	setup := subjecttest.Paper()
	setup.Services = append(setup.Services, subjecttest.BulkPaper().Services[1])
	want := `*nat
-A PREROUTING -d 198.18.0.100 -p tcp -m tcp --dport 80 -m statistic --mode nth --every 2 --packet 0 -j DNAT --to-destination 198.18.2.1:80
-A PREROUTING -d 198.18.0.100 -p tcp -m tcp --dport 80 -j DNAT --to-destination 198.18.2.2:80
-A PREROUTING -d 198.18.0.100 -p tcp -m tcp --dport 5202 -j DNAT --to-destination 198.18.2.2:5202
COMMIT
`
	if diff := cmp.Diff(want, string(iptablesRules{to: toServer}.text(setup, false))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestIPTablesRulesOfContainers checks the rules for a host that runs its servers and its clients.
func TestIPTablesRulesOfContainers(t *testing.T) {
	setup := subjecttest.Paper()
	setup.Lab.Balancer.Bridge, setup.Local = "br0", true
	setup.Services[0].Servers = setup.Services[0].Servers[:1]
	want := `*nat
-F PREROUTING
-F OUTPUT
-F POSTROUTING
-A PREROUTING -d 198.18.0.100 -p tcp -m tcp --dport 80 -j DNAT --to-destination 198.18.2.1:80
-A OUTPUT -d 198.18.0.100 -p tcp -m tcp --dport 80 -j DNAT --to-destination 198.18.2.1:80
-A POSTROUTING -s 198.19.0.0/16 -d 198.19.0.0/16 -m conntrack --ctstate DNAT -j MASQUERADE
COMMIT
`
	if diff := cmp.Diff(want, string(iptablesRules{to: toServer}.text(setup, true))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestNFTRules(t *testing.T) {
	setup := subjecttest.ChangedPaper()
	setup.Services[0].Weights["web01"] = 1
	setup.Services = append(setup.Services, subjecttest.BulkPaper().Services[1])
	want := `table ip jeoul_bench
delete table ip jeoul_bench
table ip jeoul_bench {
	chain prerouting {
		type nat hook prerouting priority dstnat; policy accept;
		ip daddr 198.18.0.100 tcp dport 80 dnat to numgen inc mod 4 map { 0 : 198.18.2.1, 1-3 : 198.18.2.2 }
		ip daddr 198.18.0.100 udp dport 80 dnat to numgen inc mod 4 map { 0 : 198.18.2.1, 1-3 : 198.18.2.2 }
		ip daddr 198.18.0.100 tcp dport 5202 dnat to 198.18.2.2
	}
}
`
	if diff := cmp.Diff(want, string(nftRules{}.text(setup))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	none := subjecttest.ChangedPaper()
	none.Services[0].Weights["web02"] = 0
	if text := string(nftRules{}.text(none)); strings.Contains(text, "dnat to") {
		t.Errorf("a rule where no server takes connections:\n%s", text)
	}
}

func TestRelaysHavePortsOfTheirOwn(t *testing.T) {
	setup := subjecttest.BulkPaper()
	want := `*nat
-A PREROUTING -d 198.18.0.100 -p tcp -m tcp --dport 5201 -j DNAT --to-destination 198.18.0.1:10000
-A PREROUTING -d 198.18.0.100 -p tcp -m tcp --dport 5202 -j DNAT --to-destination 198.18.0.1:10001
COMMIT
`
	if diff := cmp.Diff(want, string(iptablesRules{to: toRelay}.text(setup, false))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestIPTablesLeavesOutWhatDrains(t *testing.T) {
	setup := subjecttest.ChangedPaper()
	want := `*nat
-A PREROUTING -d 198.18.0.100 -p tcp -m tcp --dport 80 -j DNAT --to-destination 198.18.2.2:80
-A PREROUTING -d 198.18.0.100 -p udp -m udp --dport 80 -j DNAT --to-destination 198.18.2.2:80
COMMIT
`
	if diff := cmp.Diff(want, string(iptablesRules{to: toServer}.text(setup, false))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	err := (&kernelNAT{rules: iptablesRules{}}).Change(t.Context(), setup.Services)
	if !errors.Is(err, subject.ErrCannot) || !strings.Contains(err.Error(), "web02 into 3 rules") {
		t.Errorf("weights: got %v, want that it cannot", err)
	}
}
