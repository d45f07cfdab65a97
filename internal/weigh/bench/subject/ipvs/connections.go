// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"
)

// forgottenTimeout is how long the kernel may take to delete connections whose servers were removed.
const forgottenTimeout = time.Minute

// awaitNoConnections waits until the kernel has no connection to the servers that stayed in its table: a machine that
// has died has none either.
func (b *ipvsBalancer) awaitNoConnections(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, forgottenTimeout)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		n, err := b.connections(func(server netip.AddrPort) bool {
			return b.table.has(server) && !b.removedBefore[server]
		})
		if err != nil || n == 0 {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("IPVS on %s still remembers %d connections without their servers: %w", b.at.Name,
				n, ctx.Err())
		}
	}
}

// connections counts the kernel's connections to servers, including those that other balancers have synchronised.
func (b *ipvsBalancer) connections(of func(server netip.AddrPort) bool) (n int, err error) {
	var table []byte
	err = b.at.Do(func() (err error) {
		table, err = os.ReadFile("/proc/thread-self/net/ip_vs_conn")
		return err
	})
	if err == nil {
		n, err = countConnections(table, of)
	}
	if err != nil {
		return 0, fmt.Errorf("counting the connections of IPVS on %s: %w", b.at.Name, err)
	}
	return n, nil
}

// countConnections reads the kernel's ip_vs_conn. After a heading, each line has the protocol and then three addresses
// in hexadecimal digits, each with its port: the client's, the VIP and the server's.
func countConnections(table []byte, of func(server netip.AddrPort) bool) (n int, err error) {
	const serverAt = 5
	for i, line := range strings.Split(strings.TrimSpace(string(table)), "\n") {
		if i == 0 {
			continue
		}
		fields := strings.Fields(line)
		if len(fields) < serverAt+2 {
			return 0, fmt.Errorf("ip_vs_conn has the line %q", line)
		}
		address, wrong := strconv.ParseUint(fields[serverAt], 16, 32)
		port, wrongPort := strconv.ParseUint(fields[serverAt+1], 16, 16)
		if err := errors.Join(wrong, wrongPort); err != nil {
			return 0, fmt.Errorf("ip_vs_conn has the line %q: %w", line, err)
		}
		if of(netip.AddrPortFrom(netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, uint32(address)))),
			uint16(port))) {
			n++
		}
	}
	return n, nil
}
