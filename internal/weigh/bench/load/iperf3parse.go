// SPDX-License-Identifier: Apache-2.0

package load

import (
	"encoding/json"
	"fmt"
)

// iperf3Report is the part of the JSON of `iperf3 -J` that jeoul reads. If the transfer failed, it has an error, and
// the counts until then.
type iperf3Report struct {
	Start struct {
		Connected []struct{} `json:"connected"`
	} `json:"start"`
	End struct {
		Sent     iperf3Sum `json:"sum_sent"`
		Received iperf3Sum `json:"sum_received"`
		// CongestionControl is that of the client.
		CongestionControl string `json:"sender_tcp_congestion"`
	} `json:"end"`
	Error string `json:"error"`
}

// iperf3Sum is the sum of all streams of a client.
type iperf3Sum struct {
	Seconds       float64 `json:"seconds"`
	Bytes         uint64  `json:"bytes"`
	BitsPerSecond float64 `json:"bits_per_second"`
	Retransmits   uint64  `json:"retransmits"`
}

// More than any machine can have moved: an hour at 10 Tbit/s.
const (
	maxSeconds       = 2 * 3600
	maxBitsPerSecond = 1e13
	maxBytes         = uint64(maxBitsPerSecond / 8 * maxSeconds)
)

// parseIPerf3 reads iperf3's output. Its error wraps ErrOutput.
func parseIPerf3(text []byte) (iperf3Report, error) {
	var report iperf3Report
	if err := json.Unmarshal(text, &report); err != nil {
		return iperf3Report{}, fmt.Errorf("%w: iperf3's output is not the JSON that we know: %w", ErrOutput, err)
	}
	for _, sum := range []iperf3Sum{report.End.Sent, report.End.Received} {
		if sum.Seconds < 0 || sum.Seconds > maxSeconds || sum.BitsPerSecond < 0 ||
			sum.BitsPerSecond > maxBitsPerSecond ||
			sum.Bytes > maxBytes || sum.Retransmits > sum.Bytes {
			return iperf3Report{}, fmt.Errorf("%w: iperf3 claims %d bytes in %g s, %g bits/s, %d retransmits",
				ErrOutput, sum.Bytes, sum.Seconds, sum.BitsPerSecond, sum.Retransmits)
		}
	}
	return report, nil
}
