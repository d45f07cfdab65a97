// SPDX-License-Identifier: Apache-2.0

package load

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/jeoul/jeoul/internal/weigh/bench/probe"
)

func TestIPerf3Parse(t *testing.T) {
	for name, tc := range map[string]struct {
		file  string
		share Share
		want  Outcome
	}{
		"two streams": {"iperf3.json", Share{Concurrency: 2}, Outcome{
			Transfer: Transfer{Bytes: 1 << 20, BitsPerSecond: 16352062378.167641},
			Taken:    513 * time.Microsecond, Notes: []string{"congestion control was bbr"}}},
		"fewer than asked": {"iperf3.json", Share{Concurrency: 3}, Outcome{
			Transfer: Transfer{Bytes: 1 << 20, BitsPerSecond: 16352062378.167641},
			Taken:    513 * time.Microsecond, Problems: []string{"iperf3 had 2 streams, not 3"},
			Notes: []string{"congestion control was bbr"}}},
		"refused": {"iperf3-refused.json", Share{Concurrency: 1}, Outcome{
			Problems: []string{"iperf3 says: unable to connect to server: Connection refused"}}},
	} {
		got, err := IPerf3{}.Parse(tc.share, read(t, tc.file))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if diff := cmp.Diff(tc.want, *got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestIPerf3RefusesOtherText(t *testing.T) {
	good := string(read(t, "iperf3.json"))
	for name, text := range map[string]string{
		"empty":            "",
		"text":             "Connecting to host 127.0.0.1",
		"cut off":          good[:len(good)/2],
		"negative":         strings.ReplaceAll(good, `"seconds":	0.000513`, `"seconds":	-1`),
		"absurd":           strings.ReplaceAll(good, "16352062378.167641", "1e300"),
		"many retransmits": strings.ReplaceAll(good, `"retransmits":	0`, `"retransmits":	99999999`),
		"another kind":     strings.ReplaceAll(good, `"sum_received":	{`, `"sum_received":	[], "x": {`),
	} {
		if text == good {
			t.Fatalf("%s: the test changes nothing", name)
		}
		if _, err := (IPerf3{}).Parse(Share{Concurrency: 2}, []byte(text)); !errors.Is(err, ErrOutput) {
			t.Errorf("%s: got %v, want ErrOutput", name, err)
		}
	}
}

func TestIPerf3Trial(t *testing.T) {
	if err := (IPerf3{}).Arrived(read(t, "iperf3.json")); err != nil {
		t.Error(err)
	}
	if err := (IPerf3{}).Arrived(read(t, "iperf3-refused.json")); err == nil ||
		!strings.Contains(err.Error(), "refused") {
		t.Errorf("got %v, want why nothing arrived", err)
	}
}

func TestIPerf3Command(t *testing.T) {
	share := Share{Target: netip.MustParseAddrPort("198.18.0.100:5201"), Concurrency: 4, Duration: 3 * time.Second}
	for _, tc := range []struct {
		cpus *CPUs
		end  string
	}{{nil, "-t 3"}, {&CPUs{0, 1}, "-t 3 -A 0,1"}} {
		share.CPUs = tc.cpus
		got, err := IPerf3{}.Prepare(share)
		if err != nil {
			t.Fatal(err)
		}
		want := "iperf3 -J -i 0 --connect-timeout 5000 -c 198.18.0.100 -p 5201 -P 4 " + tc.end
		if diff := cmp.Diff(want, strings.Join(got, " ")); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

func TestIPerf3SkipReason(t *testing.T) {
	limits := probe.Limits{OpenFiles: 100, LocalPorts: 50}
	for streams, says := range map[int]string{1: "", 49: "", 50: "local ports", 68: "open files",
		129: "iperf3 can have 128"} {
		got := IPerf3{}.SkipReason(Share{Concurrency: streams}, limits)
		if (says == "") != (got == "") || !strings.Contains(got, says) {
			t.Errorf("%d streams: skip reason %q, want it to say %q", streams, got, says)
		}
	}
}

// FuzzParseIPerf3 checks that an accepted report yields a sum that can be added.
func FuzzParseIPerf3(f *testing.F) {
	for _, name := range []string{"iperf3.json", "iperf3-refused.json"} {
		f.Add(read(f, name))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		outcome, err := IPerf3{}.Parse(Share{Concurrency: 1}, text)
		if err != nil {
			if !errors.Is(err, ErrOutput) {
				t.Errorf("got %v, want ErrOutput", err)
			}
			return
		}
		moved := outcome.Transfer
		if !(moved.BitsPerSecond >= 0 && moved.BitsPerSecond <= maxBitsPerSecond) || outcome.Taken < 0 ||
			moved.Bytes > maxBytes {
			t.Errorf("accepted %+v in %v", moved, outcome.Taken)
		}
	})
}
