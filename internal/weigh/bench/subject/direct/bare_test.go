// SPDX-License-Identifier: Apache-2.0

package direct

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/test/testenv"
	"github.com/jeoul/jeoul/internal/weigh/bench/subject"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// TestBareForwards sends a kernel's connections through the bare forwarder. Consecutive connections reach the servers
// in turn, and both sides close them.
func TestBareForwards(t *testing.T) {
	testenv.Root(t)
	for _, s := range []bare{{lb.HookXDP}, {lb.HookTC}} {
		t.Run(s.Name(), func(t *testing.T) { forwards(t, s) })
	}
}

func forwards(t *testing.T, s bare) {
	l, err := lab.New(t.Context(), lab.Spec{Clients: 1, Servers: 2, Wire: s.hook == lb.HookXDP})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}()
	running, err := s.Start(t.Context(),
		subject.Setup{Lab: l, Services: []subject.Service{{Port: 80, Servers: l.Servers}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	accepted := make(chan string, 10)
	for _, server := range l.Servers {
		greet(t, server, netip.AddrPortFrom(l.VIP4, 80), accepted)
	}
	counts := map[string]int{}
	const connections = 6
	for i := range connections {
		err := l.Clients[0].Do(func() error {
			dialer := net.Dialer{Timeout: 10 * time.Second, LocalAddr: &net.TCPAddr{IP: l.Clients[0].IPv4.AsSlice(),
				Port: 20000 + i}}
			connection, err := dialer.DialContext(t.Context(), "tcp", running.Target(0).String())
			if err == nil {
				err = connection.Close()
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		counts[<-accepted]++
	}
	for _, server := range l.Servers {
		if counts[server.Name] != connections/2 {
			t.Errorf("the connections were not spread evenly: %v", counts)
		}
	}
	if err := running.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}

// greet accepts connections on a host and sends the host's name to a channel for each.
func greet(t *testing.T, host *lab.Host, at netip.AddrPort, accepted chan<- string) {
	t.Helper()
	var listener net.Listener
	if err := host.Do(func() (err error) {
		listener, err = net.Listen("tcp", at.String())
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			connection.Close()
			accepted <- host.Name
		}
	}()
}
