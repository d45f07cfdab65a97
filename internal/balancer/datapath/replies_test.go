// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/test/testenv"
)

// natClient is a client and the backends of one service of mode NAT, packet by packet.
type natClient struct {
	*testing.T
	*rig
	service lb.RoutedService
	client  netip.Addr
}

// newNATClient begins one on a rig, with that many backends, and forgets earlier flows.
func newNATClient(t *testing.T, r *rig, vip netip.Addr, protocol lb.Protocol, backends int) *natClient {
	t.Helper()
	s := modeService(vip, portNAT, protocol, lb.RoundRobin)
	s.MSS = 0
	s.Backends, s.Paths = s.Backends[:backends], s.Paths[:backends]
	k := &natClient{T: t, rig: r, service: s, client: clientOf(0, vip.Is6(), 7)}
	k.apply(t, lb.State{Services: []lb.RoutedService{s}})
	k.advance(t, time.Hour)
	return k
}

// sendClient sends a packet of the client to the service.
func (k *natClient) sendClient(port uint16, flags string) verdict {
	k.Helper()
	p := packetSpec{from: k.client, at: k.service.VIP, sport: port, dport: k.service.Port, flags: flags,
		udp: k.service.Protocol == lb.UDP, payload: 10}
	return expectOutcome(k.T, k.rig, p.build(k.T), "forwarded")
}

// from is a packet of a backend to a port of the client.
func (k *natClient) from(b lb.Backend, port uint16, flags string) packetSpec {
	return packetSpec{from: b.Address, at: k.client, sport: b.Port, dport: port, flags: flags,
		udp: k.service.Protocol == lb.UDP, payload: 10}
}

// expect expects an outcome of such a packet.
func (k *natClient) expect(b lb.Backend, port uint16, flags, want string) {
	k.Helper()
	expectOutcome(k.T, k.rig, k.from(b, port, flags).build(k.T), want)
}

// ofVerdict returns the backend that a packet went to, and another one.
func (k *natClient) ofVerdict(v verdict) (its, other lb.Backend) {
	_, i := k.model.find(v.backend)
	return k.service.Backends[i], k.service.Backends[(i+1)%len(k.service.Backends)]
}

// TestPacketsOfNoFlow: where a service of mode NAT tracks every flow, a packet from a backend's port is a reply where
// it is part of a flow, and stays as it is elsewhere.
func TestPacketsOfNoFlow(t *testing.T) {
	tests := map[string]struct {
		protocol lb.Protocol
		run      func(k *natClient)
		// alone: there is one backend, and not two.
		alone bool
	}{
		"of a connection, and of none": {protocol: lb.TCP, run: func(k *natClient) {
			k.expect(k.service.Backends[0], 1000, "A", unknown)
			its, other := k.ofVerdict(k.sendClient(1000, "S"))
			k.expect(its, 1000, "SA", "returned")
			k.expect(other, 1000, "SA", unknown)
			k.expect(its, 1001, "SA", unknown)
			k.sendClient(1000, "A")
			k.expect(its, 1000, "PA", "returned")
			k.expect(its, 1000, "PA", "returned")
			k.expect(its, 1001, "PA", unknown)
			k.expect(other, 1000, "R", unknown)
			k.expect(its, 1000, "R", "returned")
		}},
		"by UDP, as long as one of the two speaks": {protocol: lb.UDP, run: func(k *natClient) {
			its, other := k.ofVerdict(k.sendClient(1000, ""))
			k.sendClient(1000, "")
			for range 3 {
				k.advance(k.T, testTimeouts.UDP-time.Second)
				k.expect(other, 1000, "", unknown)
				k.expect(its, 1000, "", "returned")
			}
			k.advance(k.T, testTimeouts.UDP)
			k.expect(its, 1000, "", unknown)
		}},
		"a stream that answers one datagram": {protocol: lb.UDP, run: func(k *natClient) {
			its, _ := k.ofVerdict(k.sendClient(1000, ""))
			for range 3 {
				k.advance(k.T, testTimeouts.First-time.Second)
				k.expect(its, 1000, "", "returned")
			}
			k.advance(k.T, testTimeouts.First)
			k.expect(its, 1000, "", unknown)
		}},
		"a half-open connection does not live by what its backend sends": {protocol: lb.TCP, run: func(k *natClient) {
			its, _ := k.ofVerdict(k.sendClient(1000, "S"))
			k.advance(k.T, testTimeouts.Opening-time.Second)
			k.expect(its, 1000, "SA", "returned")
			k.advance(k.T, time.Second)
			k.expect(its, 1000, "SA", unknown)
		}},
		"of a client's packet in the middle of a flow that is not known": {protocol: lb.TCP, run: func(k *natClient) {
			its, other := k.ofVerdict(k.sendClient(1000, "A"))
			k.expect(its, 1000, "R", "returned")
			k.expect(other, 1000, "R", unknown)
			k.advance(k.T, transitionWindow(&k.service))
			k.expect(its, 1000, "R", unknown)
			k.sendClient(1000, "R")
			k.expect(its, 1000, "R", unknown)
		}},
		"late, of a connection that was silent for too long": {protocol: lb.TCP, run: func(k *natClient) {
			only := k.service.Backends[0]
			k.sendClient(1000, "S")
			k.expect(only, 1000, "SA", "returned")
			k.sendClient(1000, "A")
			k.advance(k.T, testTimeouts.Established)
			k.expect(only, 1000, "PA", "returned")
			k.advance(k.T, transitionWindow(&k.service))
			k.expect(only, 1000, "PA", unknown)
		}, alone: true},
		"fragments": {protocol: lb.UDP, run: func(k *natClient) {
			its, other := k.ofVerdict(k.sendClient(1000, ""))
			for id, test := range []struct {
				from lb.Backend
				want string
			}{{its, "returned"}, {other, unknown}} {
				p := k.from(test.from, 1000, "")
				p.payload = 200
				later := test.want
				if test.want == unknown {
					later = unserved
				}
				expectOutcome(k.T, k.rig, fragment(p.build(k.T), uint32(100+id), 0, 96), test.want)
				expectOutcome(k.T, k.rig, fragment(p.build(k.T), uint32(100+id), 96, 1<<16), later)
			}
		}},
		"ICMP errors": {protocol: lb.TCP, run: func(k *natClient) {
			its, other := k.ofVerdict(k.sendClient(1000, "S"))
			router := transitRouter(k.client.Is6())
			expectOutcome(k.T, k.rig, icmpError(k.T, router, k.from(its, 1000, "A").answer().build(k.T), 100),
				"returned")
			expectOutcome(k.T, k.rig, icmpError(k.T, router, k.from(other, 1000, "A").answer().build(k.T), 100),
				unknown)
			expectOutcome(k.T, k.rig, icmpError(k.T, router, k.from(its, 1001, "A").answer().build(k.T), 100), unknown)
		}},
		"of before the service remembered": {protocol: lb.TCP, run: func(k *natClient) {
			state := func(scheduler lb.Scheduler) lb.State {
				s := k.service
				s.Scheduler = scheduler
				return lb.State{Services: []lb.RoutedService{s}}
			}
			k.apply(k.T, state(lb.Maglev))
			its, other := k.ofVerdict(k.sendClient(1000, "S"))
			k.expect(other, 1000, "A", "returned")
			k.apply(k.T, state(lb.RoundRobin))
			k.expect(its, 1000, "A", "returned")
			k.expect(other, 1000, "A", unknown)
			k.advance(k.T, transitionWindow(&k.service))
			k.expect(its, 1000, "A", unknown)
			k.sendClient(1000, "A")
			k.expect(its, 1000, "A", "returned")
		}},
		"of a backend that leaves, and comes back": {protocol: lb.TCP, run: func(k *natClient) {
			its, other := k.ofVerdict(k.sendClient(1000, "S"))
			all, fewer := lb.State{Services: []lb.RoutedService{k.service}}, k.service
			fewer.Backends, fewer.Paths = nil, nil
			for i, b := range k.service.Backends {
				if b != its {
					fewer.Backends, fewer.Paths = append(fewer.Backends, b), append(fewer.Paths, k.service.Paths[i])
				}
			}
			k.apply(k.T, lb.State{Services: []lb.RoutedService{fewer}})
			k.expect(its, 1000, "PA", "returned")
			k.expect(its, 1001, "PA", "returned")
			k.expect(other, 1001, "PA", unknown)
			k.apply(k.T, all)
			// Now by the hash alone, which names one of them.
			named, _ := k.ofVerdict(k.sendClient(1002, "A"))
			k.expect(named, 1002, "PA", "returned")
		}},
	}
	oneHook(t, func(t *testing.T, hook lb.Hook) {
		r := newRig(t, hook, lb.State{})
		for name, test := range tests {
			for _, vip := range vips {
				t.Run(name+" at "+vip.String(), func(t *testing.T) {
					enterTestNet(t)
					backends := 2
					if test.alone {
						backends = 1
					}
					test.run(newNATClient(t, r, vip, test.protocol, backends))
				})
			}
		}
	})
}

// startEcho makes a program at an address answer each datagram with the address that it came from.
func startEcho(t *testing.T, at netip.AddrPort) error {
	packets, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
	if err != nil {
		return err
	}
	t.Cleanup(func() { packets.Close() })
	go func() {
		for buffer := make([]byte, 64); ; {
			_, from, err := packets.ReadFromUDPAddrPort(buffer)
			if err != nil {
				return
			}
			packets.WriteToUDPAddrPort([]byte(from.String()), from)
		}
	}()
	return nil
}

// TestBackendsAreReachedThemselves: in namespaces, a client reaches the backend of a service
// that remembers its flows by its own address through the balancer, and the backend's program
// a server that it asks from the port of the service, under its own address.
func TestBackendsAreReachedThemselves(t *testing.T) {
	oneHook(t, func(t *testing.T, hook lb.Hook) {
		web, ntp := modeService(vip4, portNAT, lb.TCP, lb.RoundRobin), modeService(vip4, portNAT, lb.UDP, lb.RoundRobin)
		for _, s := range []*lb.RoutedService{&web, &ntp} {
			s.Backends, s.Paths = s.Backends[:1], s.Paths[:1]
			// From then on only flows that are known are the services'.
			s.Transition.Window = time.Second
		}
		backend := netip.AddrPortFrom(web.Backends[0].Address, web.Backends[0].Port)
		server := netip.MustParseAddrPort("192.0.2.7:9123")
		balancer, host, client := testenv.Namespace(t), testenv.Namespace(t), testenv.Namespace(t)
		ours, theirs := testenv.Veth(t,
			testenv.End{Namespace: balancer, Name: "in", Addresses: prefixes("198.18.0.1/16")},
			testenv.End{Namespace: host, Name: "out", Addresses: []netip.Prefix{netip.PrefixFrom(backend.Addr(), 16)}})
		testenv.Veth(t, testenv.End{Namespace: balancer, Name: "front", Addresses: prefixes("192.0.2.1/24")},
			testenv.End{Namespace: client, Name: "out", Addresses: prefixes("192.0.2.7/24")})
		var peer *net.UDPConn
		testenv.In(t, host, func() error {
			listener, err := net.Listen("tcp", backend.String())
			if err != nil {
				return err
			}
			t.Cleanup(func() { listener.Close() })
			go echo(listener)
			if peer, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(backend)); err != nil {
				return err
			}
			t.Cleanup(func() { peer.Close() })
			return defaultRoute("out", "198.18.0.1")
		})
		testenv.In(t, client, func() error {
			if err := startEcho(t, server); err != nil {
				return err
			}
			return defaultRoute("out", "192.0.2.1")
		})
		testenv.In(t, balancer, func() error {
			if err := testenv.WriteSysctl("net/ipv4/ip_forward", "1"); err != nil {
				return err
			}
			in, err := net.InterfaceByName("in")
			if err != nil {
				return err
			}
			path := lb.Path{Interface: in.Index, MAC: theirs, Source: ours}
			web.Paths[0], ntp.Paths[0] = path, path
			interfaces := []string{"in"}
			if hook == lb.HookTC {
				interfaces = append(interfaces, "front")
			}
			d, err := Open(Options{Interfaces: interfaces, Hook: hook, TableSize: testTableSize})
			if err != nil {
				return err
			}
			t.Cleanup(func() { d.Close() })
			return d.Apply(lb.State{Services: []lb.RoutedService{web, ntp}})
		})
		testenv.Eventually(t, testenv.WaitLimit, "a client reaches the backend itself", func() (reached bool) {
			testenv.In(t, client, func() error {
				reached = dialQuickly(backend) == nil
				return nil
			})
			return reached
		})
		testenv.Eventually(t, testenv.WaitLimit, "the backend's program reaches a server under its own address", func() bool {
			seen, err := peerAsks(peer, server)
			return err == nil && seen == backend.String()
		})
		if hook == lb.HookXDP {
			return // the frame would be lost at a veth whose peer has no program
		}
		testenv.In(t, client, func() error {
			if err := exchange("tcp", serviceAt(&web)); err != nil {
				return fmt.Errorf("the service: %v", err)
			}
			return nil
		})
	})
}

// dialQuickly connects and exchanges some bytes, or gives up before long.
func dialQuickly(to netip.AddrPort) error {
	connection, err := net.DialTimeout("tcp", to.String(), 500*time.Millisecond)
	if err != nil {
		return err
	}
	defer connection.Close()
	if err := connection.SetDeadline(time.Now().Add(500 * time.Millisecond)); err != nil {
		return err
	}
	if _, err := connection.Write([]byte("who")); err != nil {
		return err
	}
	_, err = connection.Read(make([]byte, 8))
	return err
}

// peerAsks asks a server from a port, and returns its answer.
func peerAsks(from *net.UDPConn, server netip.AddrPort) (string, error) {
	if _, err := from.WriteToUDPAddrPort([]byte("who"), server); err != nil {
		return "", err
	}
	if err := from.SetReadDeadline(time.Now().Add(500 * time.Millisecond)); err != nil {
		return "", err
	}
	buffer := make([]byte, 64)
	n, _, err := from.ReadFromUDPAddrPort(buffer)
	return string(buffer[:n]), err
}
