// SPDX-License-Identifier: Apache-2.0

// Package load drives servers from many clients at once with standard load generators, and reads their reports.
package load

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/jeoul/jeoul/internal/weigh/bench/probe"
)

// Kind is a load generator: a program, with its abilities and its formats.
type Kind interface {
	// Name is the kind's name in a suite, and the program's.
	Name() string
	// VersionFlag is the argument that makes the program print its version.
	VersionFlag() string
	// Counted reports whether the generator can stop after a number of requests, and not only after a time.
	Counted() bool
	// Bulk reports whether the generator transfers bytes to a server of its own kind, instead of sending requests to a
	// web server.
	Bulk() bool
	// SkipReason names the limit that keeps the machine from carrying share; empty if there is none.
	SkipReason(share Share, limits probe.Limits) string
	// Prepare returns the command line (the program first) that carries share, and writes the program's files to
	// share.Dir.
	Prepare(share Share) ([]string, error)
	// Parse reads the program's output and its files in share.Dir. An error says why they are no report (and then wraps
	// ErrOutput).
	Parse(share Share, stdout []byte) (*Outcome, error)
}

// Requesting is the part of a [Kind] that sends requests for a time, as most kinds do.
type Requesting struct{}

// Counted returns false: the generator cannot stop after a number of requests.
func (Requesting) Counted() bool { return false }

// Bulk returns false: the generator makes no bulk transfers.
func (Requesting) Bulk() bool { return false }

// Share is one client's part of a load.
type Share struct {
	// URL is the file that a web load requests, Target the destination of a bulk load.
	URL    string
	Target netip.AddrPort
	// FileBytes is the length that the body of every answer must have.
	FileBytes int
	// Concurrency is the number of connections open at once.
	Concurrency int
	// Requests ends the load after that many requests; 0 if Duration ends it.
	Requests int
	// Duration ends the load after a time, in whole seconds; 0 if Requests ends it.
	Duration time.Duration
	// Rate is the number of requests that are due per second, whether the previous ones have been answered or not.
	// Delay is when the first is due. 0 if answers trigger requests.
	Rate  float64
	Delay time.Duration
	// CPUs are the cores that a bulk load's client and server are pinned to; nil means no pinning.
	CPUs *CPUs
	// Dir is a directory of this client alone. Executable is the path of jeoul on the client, for the generators that
	// are parts of jeoul.
	Dir, Executable string
}

// CPUs has a core for a client and one for its server.
type CPUs struct{ Client, Server int }

// Outcome has the measurements of one client's generator.
type Outcome struct {
	// Requests counts good requests only, Failed all others.
	Requests, Failed uint64
	// Transfer is the transfer of a bulk load.
	Transfer Transfer
	// Taken is the time from the first request to the last answer, as the generator measured it.
	Taken time.Duration
	// Drained is how long the generator went on after Taken, for answers that it does not count.
	Drained time.Duration
	// Latency is nil for a bulk load, and if the generator reports no distribution.
	Latency *Latency
	// Waits are the latencies that the generator reports in that case.
	Waits Waits
	// Lost counts requests without an answer, if the kind does not count those as failures.
	Lost uint64
	// Problems describe the causes of failed requests, in words.
	Problems []string
	// Notes are for readers of the latencies.
	Notes []string
}

// Waits are latencies without a distribution; zero if there are none.
type Waits struct{ Min, Mean, Max time.Duration }

// add merges the waits of more requests into those of count requests.
func (w *Waits) add(count uint64, other Waits, more uint64) {
	switch {
	case more == 0:
	case count == 0:
		*w = other
	default:
		all := float64(count) + float64(more)
		w.Mean = time.Duration(float64(w.Mean)*(float64(count)/all) + float64(other.Mean)*(float64(more)/all))
		w.Min, w.Max = min(w.Min, other.Min), max(w.Max, other.Max)
	}
}

// Transfer has the bytes of a bulk load, and their rate.
type Transfer struct {
	// Bytes is the number of bytes that arrived, BitsPerSecond their rate.
	Bytes         uint64
	BitsPerSecond float64
	// Retransmits is the number of retransmitted TCP segments.
	Retransmits uint64
}

func (t *Transfer) add(other Transfer) {
	t.Bytes += other.Bytes
	t.BitsPerSecond += other.BitsPerSecond
	t.Retransmits += other.Retransmits
}

// spareFiles is the number of files that a generator opens besides its connections: standard streams, an epoll
// instance, files of libraries.
const spareFiles = 32

// SkipReason names the limit of the machine that share exceeds, for any program with one socket per connection.
func SkipReason(program string, share Share, limits probe.Limits) string {
	files := uint64(share.Concurrency) + spareFiles
	switch {
	case files > limits.OpenFiles:
		return fmt.Sprintf("%d connections per client: %s needs %d open files, and a process may have %d here",
			share.Concurrency, program, files, limits.OpenFiles)
	case share.Concurrency > limits.LocalPorts:
		return fmt.Sprintf("%d connections per client: a client has %d local ports here", share.Concurrency,
			limits.LocalPorts)
	}
	return ""
}
