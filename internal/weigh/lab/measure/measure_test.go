// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestParseNetStat(t *testing.T) {
	tests := []struct {
		name, text string
		want       map[string]uint64
		bad        bool
	}{
		{"pairs", "Tcp: ActiveOpens MaxConn\nTcp: 3 -1\nTcpExt: ListenDrops\nTcpExt: 7\n",
			map[string]uint64{"TcpActiveOpens": 3, "TcpExtListenDrops": 7}, false},
		{"odd lines", "Tcp: A\nTcp: 1\nIp: B\n", nil, true},
		{"fewer values", "Tcp: A B\nTcp: 1\n", nil, true},
		{"different prefixes", "Tcp: A\nIp: 1\n", nil, true},
		{"empty", "", nil, true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got := map[string]uint64{}
			err := ParseNetStat(test.text, got)
			if (err != nil) != test.bad {
				t.Fatalf("error %v, want one: %v", err, test.bad)
			}
			if diff := cmp.Diff(test.want, got); !test.bad && diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func FuzzParseNetStat(f *testing.F) {
	f.Add("Tcp: ActiveOpens MaxConn\nTcp: 3 -1\n")
	f.Add("Tcp:\nTcp:\n")
	f.Add("\n\n")
	f.Fuzz(func(t *testing.T, text string) {
		counters := map[string]uint64{}
		if err := ParseNetStat(text, counters); err != nil {
			return
		}
		for name := range counters {
			if !strings.Contains(text, name[len(name)-1:]) {
				t.Errorf("counter %q is not from %q", name, text)
			}
		}
	})
}

func TestDropsTotal(t *testing.T) {
	before := Drops{HostReceive: 1, HostTransmit: 2, PortReceive: 2, PortTransmit: 0}
	after := Drops{HostReceive: 4, HostTransmit: 12, PortReceive: 12, PortTransmit: 1}
	if got := after.Sub(before).Total(); got != 10+3 {
		t.Errorf("Total = %d, want ten one way, counted at both ends, and three the other", got)
	}
}

func TestCPUSub(t *testing.T) {
	before := CPU{Total: 10, Threads: map[string]time.Duration{"a/1": 4, "b/2": 6}}
	after := CPU{Total: 30, Threads: map[string]time.Duration{"a/1": 4, "b/2": 10, "c/3": 4}}
	want := CPU{Total: 20, Threads: map[string]time.Duration{"b/2": 4, "c/3": 4}}
	got := after.Sub(before)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Sub (-want +got):\n%s", diff)
	}
	if name, used := got.Busiest(); name != "b/2" || used != 4 {
		t.Errorf("Busiest = %s, %v", name, used)
	}
	if name, used := (CPU{}).Busiest(); name != "" || used != 0 {
		t.Errorf("Busiest of nothing = %s, %v", name, used)
	}
}
