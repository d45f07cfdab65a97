// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/jeoul/jeoul/internal/weigh/bench/load"
	"github.com/jeoul/jeoul/internal/weigh/bench/probe"
	"github.com/jeoul/jeoul/internal/weigh/bench/subject"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// firstBulkPort is iperf3's port. Each client has a service of its own, at the
// port after the last client's: an iperf3 server serves one client at a time, and
// a client's connections (one of control, the others of data) must all reach the
// same server.
const firstBulkPort = 5201

// bulkServices are a service for each client, of one server.
func bulkServices(l *lab.Lab) []subject.Service {
	var services []subject.Service
	for i := range l.Clients {
		n := i % len(l.Servers)
		services = append(services, subject.Service{Port: uint16(firstBulkPort + i), Servers: l.Servers[n : n+1]})
	}
	return services
}

// webServices is the one service of all web servers.
func webServices(l *lab.Lab) []subject.Service {
	return []subject.Service{{Port: servicePort, Servers: l.Servers}}
}

// tlsServices is that service over TLS.
func tlsServices(l *lab.Lab) []subject.Service {
	return []subject.Service{{Port: tlsPort, PlainPort: servicePort, Servers: l.Servers}}
}

// bulkObstacle says what keeps the machine from a bulk load of p.
func (p Point) bulkObstacle(limits probe.Limits) string {
	if need := 2 * p.participants(); p.Pinned && limits.Cores < need {
		return fmt.Sprintf("pinned: a core for each client and each server are %d, and this machine has %d", need,
			limits.Cores)
	}
	return ""
}

// cpus are the cores of client i, from 0; nil if it is not pinned.
func (p Point) cpus(i int) *load.CPUs {
	if !p.Pinned {
		return nil
	}
	return &load.CPUs{Client: 2 * i, Server: 2*i + 1}
}

// startBulk starts an iperf3 server for each client and waits until it serves.
// They are stopped with the laboratory.
func startBulk(ctx context.Context, l *lab.Lab) error {
	for _, service := range bulkServices(l) {
		server := service.Servers[0]
		at := netip.AddrPortFrom(server.IPv4, service.Port)
		command := load.IPerf3{}.Server(service.Port)
		process, err := server.Start(context.WithoutCancel(ctx), lab.Command{Path: command[0], Args: command[1:]})
		if err != nil {
			return err
		}
		err = pollAlive(ctx, process, func() error { return transfer(ctx, server, at) })
		if err != nil {
			return fmt.Errorf("starting iperf3 on %s: %w", server.Name, err)
		}
	}
	return nil
}

// transfer moves a little from a host of the laboratory to an iperf3 server, and
// checks that it arrived.
func transfer(ctx context.Context, from *lab.Host, to netip.AddrPort) error {
	var stdout bytes.Buffer
	command := load.IPerf3{}.Trial(to)
	process, err := from.Start(ctx, lab.Command{Path: command[0], Args: command[1:], Stdout: &stdout})
	if err != nil {
		return giveUp{err}
	}
	select {
	case <-process.Done():
	case <-ctx.Done():
		return errors.Join(ctx.Err(), process.Stop(context.WithoutCancel(ctx)))
	}
	if err := (load.IPerf3{}).Arrived(stdout.Bytes()); err != nil {
		return fmt.Errorf("%s sending to %s: %w", from.Name, to, err)
	}
	return nil
}
