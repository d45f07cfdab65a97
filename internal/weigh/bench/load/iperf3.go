// SPDX-License-Identifier: Apache-2.0

package load

import (
	"fmt"
	"net/netip"
	"strconv"
	"time"

	"github.com/jeoul/jeoul/internal/weigh/bench/probe"
)

// IPerf3 sends as fast as TCP allows over a number of connections to an iperf3 server, which serves one client at a
// time (https://software.es.net/iperf/).
type IPerf3 struct{ Requesting }

// Bounds of iperf3.
const (
	// iperf3MaxStreams is MAX_STREAMS of iperf3.
	iperf3MaxStreams = 128
	// iperf3ConnectMs is the time limit for connecting, in milliseconds.
	iperf3ConnectMs = 5000
	// iperf3TrialBytes is the size of a trial transfer: enough for many full packets both ways through everything in
	// between.
	iperf3TrialBytes = 1 << 20
)

// Name returns the generator's name in a suite, which is also the program's.
func (IPerf3) Name() string { return "iperf3" }

// VersionFlag returns the argument that makes iperf3 print its version.
func (IPerf3) VersionFlag() string { return "--version" }

// Bulk reports whether iperf3 transfers bytes to a server of its own kind.
func (IPerf3) Bulk() bool { return true }

// SkipReason also counts the control connection.
func (IPerf3) SkipReason(share Share, limits probe.Limits) string {
	if share.Concurrency > iperf3MaxStreams {
		return fmt.Sprintf("%d streams per client: iperf3 can have %d", share.Concurrency, iperf3MaxStreams)
	}
	share.Concurrency++
	return SkipReason("iperf3", share, limits)
}

// Server returns the command line of a server for one client at a time, at every IPv4 address of its host. With direct
// server return the VIP is one of them.
func (IPerf3) Server(port uint16) []string {
	return []string{"iperf3", "-s", "-4", "-p", strconv.Itoa(int(port))}
}

// Trial returns the command line of a short transfer to a server. Arrived reads its output.
func (k IPerf3) Trial(to netip.AddrPort) []string {
	return append(k.client(to, 1), "-n", strconv.Itoa(iperf3TrialBytes))
}

// Arrived returns nil if the output of Trial shows that all bytes arrived.
func (IPerf3) Arrived(stdout []byte) error {
	report, err := parseIPerf3(stdout)
	if err != nil {
		return err
	}
	if got := report.End.Received.Bytes; report.Error != "" || got < iperf3TrialBytes {
		return fmt.Errorf("of %d bytes %d arrived%s", iperf3TrialBytes, got, behindColon(report.Error))
	}
	return nil
}

// client returns the first part of a client's command line. The client prints no intervals: with many streams they
// would be megabytes.
func (IPerf3) client(to netip.AddrPort, streams int) []string {
	return []string{"iperf3", "-J", "-i", "0", "--connect-timeout", strconv.Itoa(iperf3ConnectMs),
		"-c", to.Addr().String(), "-p", strconv.Itoa(int(to.Port())), "-P", strconv.Itoa(streams)}
}

// Prepare needs no files.
func (k IPerf3) Prepare(share Share) ([]string, error) {
	command := append(k.client(share.Target, share.Concurrency), "-t", strconv.Itoa(int(share.Duration.Seconds())))
	if share.CPUs != nil {
		command = append(command, "-A", fmt.Sprintf("%d,%d", share.CPUs.Client, share.CPUs.Server))
	}
	return command, nil
}

// Parse counts the bytes that the server received: bytes that the client sent may still be on the way when it ends.
func (IPerf3) Parse(share Share, stdout []byte) (*Outcome, error) {
	report, err := parseIPerf3(stdout)
	if err != nil {
		return nil, err
	}
	received := report.End.Received
	outcome := &Outcome{
		Transfer: Transfer{Bytes: received.Bytes, BitsPerSecond: received.BitsPerSecond,
			Retransmits: report.End.Sent.Retransmits},
		Taken: time.Duration(received.Seconds * float64(time.Second)),
	}
	switch streams := len(report.Start.Connected); {
	case report.Error != "":
		outcome.Problems = append(outcome.Problems, "iperf3 says: "+report.Error)
	case streams != share.Concurrency:
		outcome.Problems = append(outcome.Problems, fmt.Sprintf("iperf3 had %d streams, not %d", streams,
			share.Concurrency))
	}
	if control := report.End.CongestionControl; control != "" && control != "cubic" {
		outcome.Notes = append(outcome.Notes, "congestion control was "+control)
	}
	return outcome, nil
}

// behindColon returns ": " and the text, or "" if the text is empty.
func behindColon(text string) string {
	if text == "" {
		return ""
	}
	return ": " + text
}
