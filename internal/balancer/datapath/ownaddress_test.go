// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"testing"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/test/testenv"
)

// TestOwnConnectionsToBackends: with a service of mode nat, a backend's answers to the balancer itself are not
// translated, whichever flows the scheduler tracks.
func TestOwnConnectionsToBackends(t *testing.T) {
	balancerAt := []string{"198.18.0.1/16", "2001:2::1/64"}
	for _, scheduler := range []lb.Scheduler{lb.Maglev, lb.RoundRobin} {
		oneHook(t, func(t *testing.T, hook lb.Hook) {
			balancer, host := testenv.Namespace(t), testenv.Namespace(t)
			var ours, theirs []netip.Prefix
			for i, text := range balancerAt {
				ours = append(ours, netip.MustParsePrefix(text))
				backend := modeService(vips[i], portNAT, lb.TCP, scheduler).Backends[0].Address
				theirs = append(theirs, netip.PrefixFrom(backend, ours[i].Bits()))
			}
			testenv.Veth(t, testenv.End{Namespace: balancer, Name: "in", Addresses: ours},
				testenv.End{Namespace: host, Name: "out", Addresses: theirs})
			var state lb.State
			testenv.In(t, host, func() error {
				for _, vip := range vips {
					s := modeService(vip, portNAT, lb.TCP, scheduler)
					state.Services = append(state.Services, s)
					listener, err := net.Listen("tcp",
						netip.AddrPortFrom(s.Backends[0].Address, s.Backends[0].Port).String())
					if err != nil {
						return err
					}
					t.Cleanup(func() { listener.Close() })
					go echo(listener)
				}
				return nil
			})
			testenv.In(t, balancer, func() error {
				for _, name := range []string{"net/ipv4/conf/in/forwarding", "net/ipv6/conf/all/forwarding"} {
					if err := testenv.WriteSysctl(name, "1"); err != nil {
						return err
					}
				}
				d, err := Open(Options{Interfaces: []string{"in"}, Hook: hook, TableSize: testTableSize})
				if err != nil {
					return err
				}
				t.Cleanup(func() { d.Close() })
				if err := d.Apply(state); err != nil {
					return err
				}
				for _, s := range state.Services {
					b := s.Backends[0]
					if err := exchange("tcp", netip.AddrPortFrom(b.Address, b.Port)); err != nil {
						return fmt.Errorf("from the balancer to %v: %v", b.Address, err)
					}
				}
				counters, err := d.Counters()
				if err != nil {
					return err
				}
				leftAlone := uint64(0)
				for _, outcome := range counters.Outcomes {
					if outcome.Name == notForwarded || outcome.Name == unknown && scheduler == lb.RoundRobin {
						leftAlone += outcome.Packets
					}
				}
				if leftAlone < 4 {
					return fmt.Errorf("%d packets were left alone", leftAlone)
				}
				return nil
			})
		})
	}
}

// echo sends back all data on each connection.
func echo(listener net.Listener) {
	for {
		connection, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer connection.Close()
			io.Copy(connection, connection)
		}()
	}
}
