// SPDX-License-Identifier: Apache-2.0

package web

import (
	"fmt"

	"github.com/jeoul/jeoul/internal/weigh/bench"
	"github.com/jeoul/jeoul/internal/weigh/bench/probe"
)

// The kernel memory of an answer over TCP on its way from the queue of one end to that of the other.
const (
	pageBytes = 4096
	// headerBytes is the length of nginx's headers before the file, rounded up.
	headerBytes = 300
	// windowBytes is TCP's initial window: ten segments of Ethernet (RFC 6928). The rest of an answer waits in its
	// file.
	windowBytes = 10 * 1448
)

// connectionsPerKernel returns the number of the point's connections whose server ends are in one kernel: all, if the
// hosts are namespaces of one machine.
func connectionsPerKernel(p bench.Point) int {
	if p.Form.Remote {
		return bench.Part(p.Concurrency, p.Form.Lab.Servers, 0)
	}
	return p.Concurrency
}

// crowdSkipReason names the memory of the kernel where the answers to all connections at once, as clients of a closed
// loop request them, need more than it has without pressure. Beyond that the kernel drops segments that have arrived,
// and the trial would measure their retransmissions, if it ended at all (tcp(7), tcp_mem).
func crowdSkipReason(p bench.Point, limits probe.Limits) string {
	each := (min(p.Form.Web.FileBytes+headerBytes, windowBytes) + pageBytes - 1) / pageBytes
	if pages := connectionsPerKernel(p) * each; limits.TCPPages > 0 && pages > limits.TCPPages {
		return fmt.Sprintf(
			"%d connections at once: their answers take %d pages of a kernel's memory for TCP, which drops what arrives beyond %d here (the second of net.ipv4.tcp_mem, which is the machine's)",
			connectionsPerKernel(p), pages, limits.TCPPages)
	}
	return ""
}

// lingerDir has a second copy of the file. For requests below it, the web servers wait for the client's FIN before they
// close (nginx: lingering_close).
const lingerDir = "patient/"

// mustLinger reports whether the web servers must wait for clients before they close. A server that closes first leaves
// the rest of its answer to the kernel, and the kernel resets such connections beyond tcp_max_orphans. ab does not
// notice some of those resets, and waits forever.
func mustLinger(p bench.Point, limits probe.Limits) bool {
	return limits.Orphans > 0 && connectionsPerKernel(p) > limits.Orphans
}

// lingerNote describes the lingering servers, for the trials that use them.
func lingerNote(limits probe.Limits) string {
	return fmt.Sprintf(
		"servers wait for a client's end of a connection before they close theirs (nginx: lingering_close always): of connections closed before all was acknowledged the kernel keeps %d at once (net.ipv4.tcp_max_orphans), and resets others", limits.Orphans)
}
