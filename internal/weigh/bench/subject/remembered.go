// SPDX-License-Identifier: Apache-2.0

package subject

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Remembering is a running subject that keeps something for each flow, and can
// tell how much that is.
type Remembering interface {
	Remembered(ctx context.Context) (Remembered, error)
}

// Remembered is what a subject keeps for flows at a moment.
type Remembered struct {
	// What says what is counted, in words.
	What string
	// Flows is how many there are, Limit how many there can be; 0 if that is not
	// bounded, or not known.
	Flows, Limit uint64
	// Bytes is the kernel's memory for them, free places included; 0 if the subject
	// does not tell.
	Bytes uint64
}

// Remembered counts the flows in the balancer's tables. The daemon walks over them in
// some seconds; those that have not ended are counted as they come, which shows more
// while there come many.
func (r *runningJeoul) Remembered(ctx context.Context) (Remembered, error) {
	status, err := r.client.Status(ctx)
	if err != nil {
		return Remembered{}, err
	}
	all := Remembered{What: "flows in jeoul's tables, as its status has them"}
	if f := status.Flows; f != nil {
		all.Flows, all.Limit, all.Bytes = f.Proven+f.Unproven, f.ProvenLimit+f.UnprovenLimit, f.Bytes
	}
	var active uint64
	for _, service := range status.Services {
		active += uint64(service.Active)
	}
	all.Flows = max(all.Flows, active)
	return all, nil
}

// Remembered counts the connections that the balancer's kernel tracks. Their bound
// is the machine's.
func (r *kernelNAT) Remembered(context.Context) (Remembered, error) {
	n, err := r.setup.Lab.Balancer.Conntrack()
	if err != nil {
		return Remembered{}, err
	}
	all := Remembered{What: "connections that the balancer's kernel tracks (nf_conntrack)", Flows: uint64(n)}
	const path = "/proc/sys/net/netfilter/nf_conntrack_max"
	text, err := os.ReadFile(path)
	if err == nil {
		all.Limit, err = strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	}
	if err != nil {
		return all, fmt.Errorf("reading how many connections can be tracked: %w", err)
	}
	return all, nil
}

// Remembered counts the balancer's sockets that are not listening: those of clients,
// half-open ones included, and those towards servers.
func (r *runningProxy) Remembered(context.Context) (Remembered, error) {
	count, err := r.setup.Lab.Balancer.Sockets()
	if err != nil {
		return Remembered{}, err
	}
	return Remembered{What: "TCP sockets on the balancer, half-open and closing ones included",
		Flows: uint64(count.Open())}, nil
}
