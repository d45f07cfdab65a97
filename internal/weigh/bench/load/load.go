// SPDX-License-Identifier: Apache-2.0

// Package load drives servers from many clients at once with the load generators of the trade, and reads their reports.
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
	// VersionFlag makes the program tell its version.
	VersionFlag() string
	// Counted says whether the generator can stop after a number of requests, and not only after a time.
	Counted() bool
	// Bulk: the generator transfers bytes to a server of its own kind,
	// and does not make requests of a web server.
	Bulk() bool
	// Obstacle names the limit that keeps the machine from carrying share; empty if there is none.
	Obstacle(share Share, limits probe.Limits) string
	// Prepare returns the command line (the program first) that carries share, and writes the program's files to
	// share.Dir.
	Prepare(share Share) ([]string, error)
	// Parse reads the program's output and its files in share.Dir. An error says why that is not a report (and wraps
	// ErrOutput then).
	Parse(share Share, stdout []byte) (*Outcome, error)
}

// Requesting is the part of a [Kind] that makes requests for a time, as most do.
type Requesting struct{}

// Counted returns false: it cannot stop after a number of requests.
func (Requesting) Counted() bool { return false }

// Bulk returns false: it transfers nothing in bulk.
func (Requesting) Bulk() bool { return false }

// Share is one client's part of a load.
type Share struct {
	// URL is the file that a web load asks for, Target where a bulk load goes.
	URL    string
	Target netip.AddrPort
	// FileBytes is the length that the body of every answer must have.
	FileBytes int
	// Concurrency is the number of connections open at once.
	Concurrency int
	// Requests ends the load after so many requests; 0 if Duration does.
	Requests int
	// Duration ends the load after a time, in whole seconds; 0 if Requests does.
	Duration time.Duration
	// Rate is how many requests are due each second, whether the last are answered
	// or not, and Delay when the first is; 0 where answers decide.
	Rate  float64
	Delay time.Duration
	// CPUs are the cores that a bulk load's client and server are pinned to; nil
	// leaves them free.
	CPUs *CPUs
	// Dir is a directory that is the client's own, Executable the path of jeoul there,
	// for the generators that are parts of it.
	Dir, Executable string
}

// CPUs are a core for a client and one for its server.
type CPUs struct{ Client, Server int }

// Outcome has the measurements of one client's generator.
type Outcome struct {
	// Requests counts the good ones only, Failed all others.
	Requests, Failed uint64
	// Transfer is the transfer of a bulk load.
	Transfer Transfer
	// Taken is the time from the first request to the last answer, as the
	// generator clocked it.
	Taken time.Duration
	// Latency is nil for a bulk load, and where the generator tells no distribution.
	Latency *Latency
	// Waits are the latencies that it tells then.
	Waits Waits
	// Lost counts requests without an answer, where those are no failure of their own.
	Lost uint64
	// Problems describe the causes of failed requests, in words.
	Problems []string
	// Notes are for a reader of the latencies.
	Notes []string
}

// Waits are latencies of which there is no distribution; zero where there are none.
type Waits struct{ Min, Mean, Max time.Duration }

// add merges the waits of so many requests into those of count others.
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
	// Bytes is the number of bytes that arrived, BitsPerSecond the rate at which they did.
	Bytes         uint64
	BitsPerSecond float64
	// Retransmits are the TCP segments that were sent again.
	Retransmits uint64
}

func (t *Transfer) add(other Transfer) {
	t.Bytes += other.Bytes
	t.BitsPerSecond += other.BitsPerSecond
	t.Retransmits += other.Retransmits
}

// spareFiles are the files that a generator opens besides its connections: standard streams, an epoll instance,
// libraries' files.
const spareFiles = 32

// Obstacle names the machine's limit that share exceeds, for any program that holds one socket a connection.
func Obstacle(program string, share Share, limits probe.Limits) string {
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
