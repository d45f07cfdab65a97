// SPDX-License-Identifier: Apache-2.0

package transact

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jeoul/jeoul/internal/weigh/bench/load"
)

// netperfText is the output of netperf 2.7.0 for TCP_CRR over one second.
const netperfText = "14855.12,1.00,32,66.93,35,92,969,12034\n"

func TestNetperf(t *testing.T) {
	kind := Netperf{Kind: Kind{Test: CRR}, DataPort: 12866}
	share := load.Share{Target: netip.MustParseAddrPort("198.18.0.100:12865"), Duration: 2 * time.Second}
	command, err := kind.Prepare(share)
	if want := "netperf -4 -H 198.18.0.100 -p 12865 -t TCP_CRR -l 2 -P 0 -- -P ,12866 -o THROUGHPUT,ELAPSED_TIME,MIN_LATENCY,"; err != nil || !strings.HasPrefix(strings.Join(command, " "), want) {
		t.Errorf("%q, %v; want it to begin with %q", command, err, want)
	}
	for _, text := range []string{netperfText, "WARNING: something\n" + netperfText} {
		got, err := kind.Parse(share, []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		l := got.Latency
		figures := []float64{l.MinMs(), l.Ms(50), l.Ms(99), l.MaxMs()}
		if got.Requests != 14855 || got.Taken != time.Second || l.Count() != 14855 || l.MeanMs() != 0.06693 ||
			!slices.EqualFunc(figures, []float64{0.032, 0.035, 0.969, 12.034}, func(a, b float64) bool {
				return a > b*0.98 && a < b*1.02
			}) {
			t.Errorf("%+v with latencies %v, mean %v", got, figures, l.MeanMs())
		}
	}
}

func FuzzNetperf(f *testing.F) {
	for _, seed := range []string{netperfText, "", "1,2\n", "1,1,9,9,8,7,6,5\n", "1e9,1e9,0,0,0,0,0,0",
		"NaN,1,1,1,1,1,1,1", "establish control: are you sure there is a netserver listening"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		outcome, err := Netperf{}.Parse(load.Share{}, text)
		if err != nil {
			if !errors.Is(err, load.ErrOutput) {
				t.Errorf("%v does not say that it is no report", err)
			}
			return
		}
		if outcome.Latency.Count() != int64(outcome.Requests) || outcome.Taken < 0 {
			t.Errorf("accepted %+v", outcome)
		}
	})
}
