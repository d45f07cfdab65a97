// SPDX-License-Identifier: Apache-2.0

package local_test

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

const (
	// sharedServices is the number of services that the threads of one socket ask for: more than it remembers.
	sharedServices = 7
	sharedThreads  = 4
	sharedRounds   = 10
	sharedAsks     = 60
)

// sharedPort is the port of a service of one socket's threads, and sharedBackendPort that of its backends, which have
// no other service.
func sharedPort(service int) uint16        { return uint16(80 + service) }
func sharedBackendPort(service int) uint16 { return uint16(9000 + service) }

// sharedService is a service that only datagrams with its number are for.
func (r *testBalancer) sharedService(number int) lb.RoutedService {
	s := service(false, lb.UDP, lb.RoundRobin)
	s.Name, s.Port = fmt.Sprint("shared-", number), sharedPort(number)
	for i := range s.Backends {
		s.Backends[i].Port = sharedBackendPort(number)
		r.echo(netip.AddrPortFrom(s.Backends[i].Address, sharedBackendPort(number)))
	}
	return s
}

// echo answers each datagram with its content.
func (r *testBalancer) echo(at netip.AddrPort) {
	var socket net.PacketConn
	r.in(func() (err error) {
		socket, err = net.ListenPacket("udp", at.String())
		return err
	})
	r.t.Cleanup(func() { socket.Close() })
	go func() {
		buffer := make([]byte, 64)
		for {
			n, from, err := socket.ReadFrom(buffer)
			if err != nil {
				return
			}
			_, _ = socket.WriteTo(fmt.Appendf(nil, "%s by %d", buffer[:n], at.Port()), from)
		}
	}()
}

// askShared sends a datagram for a service and reads an answer, which may be of another thread's: each went to a
// backend of the service that it was for, and comes from its VIP, or from a backend of it that is not remembered.
func (c *client) askShared(number int) (bool, error) {
	queried := fmt.Sprint(number)
	if err := unix.Sendto(c.fd, []byte(queried), 0, c.sockaddr(vip4, int(sharedPort(number)))); err != nil {
		return false, err
	}
	word, from, err := c.receive()
	if err != nil {
		return false, err
	}
	var of, by int
	if _, err := fmt.Sscanf(word, "%d by %d", &of, &by); err != nil {
		return false, fmt.Errorf("%q: %w", word, err)
	}
	switch {
	case by != int(sharedBackendPort(of)):
		return false, fmt.Errorf("a datagram for service %d went to port %d", of, by)
	case from == netip.AddrPortFrom(vip4, sharedPort(of)):
		return true, nil
	case from.Addr() != vip4 && int(from.Port()) == by:
		return false, nil
	}
	return false, fmt.Errorf("an answer of service %d comes from %s", of, from)
}

// askAll has threads ask all services on the socket. It counts the answers that came from a VIP, and keeps an error.
func (c *client) askAll(asking *sync.WaitGroup, seed uint64, byVIP *atomic.Uint64, failed *atomic.Pointer[error]) {
	for thread := range sharedThreads {
		asking.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(thread)))
			for range sharedAsks {
				received, err := c.askShared(rng.IntN(sharedServices))
				if err != nil {
					failed.Store(&err)
					return
				}
				if received {
					byVIP.Add(1)
				}
			}
		})
	}
}

// TestSocketsMeanwhile: threads send to more services on one socket than are remembered of it, while backends come and
// go. Each datagram gets to its service, each answer comes from the address that was asked, and the counts of the
// socket are undone when it is closed.
func TestSocketsMeanwhile(t *testing.T) {
	r := newTestBalancer(t)
	var services []lb.RoutedService
	for number := range sharedServices {
		services = append(services, r.sharedService(number))
	}
	r.apply(services...)
	var byVIP atomic.Uint64
	var failed atomic.Pointer[error]
	for round := range sharedRounds {
		c := r.socket(families[0], unix.SOCK_DGRAM)
		var asking sync.WaitGroup
		c.askAll(&asking, uint64(round), &byVIP, &failed)
		for change := range backends {
			var fewer []lb.RoutedService
			for _, s := range services {
				fewer = append(fewer, without(s, 1+change))
			}
			r.apply(fewer...)
		}
		asking.Wait()
		if err := failed.Load(); err != nil {
			t.Fatal(*err)
		}
		c.close()
		for key, s := range r.counters().Services {
			if s.Active != 0 {
				t.Fatalf("round %d: %d are active of %v, and the socket is closed", round, s.Active, key)
			}
		}
	}
	if byVIP.Load() == 0 {
		t.Error("no answer came from a VIP: the test has shown nothing")
	}
	t.Logf("%d answers of %d came from a VIP; %d got a backend, %d another", byVIP.Load(),
		sharedRounds*sharedThreads*sharedAsks, r.event("served"), r.event("moved"))
}
