// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"testing"

	"github.com/jeoul/jeoul/cmd/jeoul/e2e"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// The numbers of connections that are held, and that come after that.
const heldConnections, laterConnections = 20, 100

// TestDeadProgram: one of three backends has no listening program, and its kernel resets each connection. The others
// hold connections, so that the dead one has the fewest. It gets a few of the next hundred, and when its program is
// back, it soon gets some.
func TestDeadProgram(t *testing.T) {
	t.Parallel()
	forAHook(t, func(t *testing.T, hook lb.Hook) {
		l := newLab(t, lab.Spec{Clients: 1, Servers: 3})
		b := newBalancer(t, l.Balancer)
		modes := []lb.Mode{lb.NAT, lb.FullNAT}
		var services []entry
		for i, mode := range modes {
			var backends []entry
			for _, server := range l.Servers {
				backends = append(backends, entry{"name": server.Name, "address": server.IPv4.String(),
					"port": 8080 + i})
			}
			services = append(services, entry{"name": string(mode), "vip": "198.18.0.105", "port": 80 + i,
				"mode": string(mode), "scheduler": "lc", "backends": backends})
		}
		b.configure(t, hook, entry{"services": services,
			"fullnat": entry{"addresses": []string{"198.18.0.99"}, "ports": "20000-29999"}})
		for _, server := range l.Servers {
			if err := server.RouteThrough(l.Balancer, netip.PrefixFrom(l.Clients[0].IPv4, 32), true); err != nil {
				t.Fatal(err)
			}
		}
		b.start(t)
		for i, mode := range modes {
			t.Run(string(mode), func(t *testing.T) {
				deadProgram(t, l, netip.AddrPortFrom(netip.MustParseAddr("198.18.0.105"), uint16(80+i)), uint16(8080+i))
			})
		}
	})
}

func deadProgram(t *testing.T, l *lab.Lab, vip netip.AddrPort, port uint16) {
	client := l.Clients[0]
	for _, server := range l.Servers[1:] {
		listen(t, server, port)
	}
	for held := 0; held < heldConnections; {
		if hold(t, client, vip) != nil {
			held++
		}
	}
	refused := 0
	for range laterConnections {
		if c := hold(t, client, vip); c != nil {
			c.Close()
		} else {
			refused++
		}
	}
	t.Logf("%d of %d connections went to the dead program", refused, laterConnections)
	if refused > laterConnections/4 {
		t.Errorf("%d of %d connections went to the dead program: more than those that tell that it is dead", refused,
			laterConnections)
	}
	back := listen(t, l.Servers[0], port)
	for i := 0; ; i++ {
		hold(t, client, vip)
		if back.accepted() > 0 {
			t.Logf("%d connections until it got one again", i+1)
			return
		}
		if i > 10*heldConnections {
			t.Fatalf("%d connections since the program is back, and none went to it", i)
		}
	}
}

// hold opens a connection that lasts as long as the test; nil if it was refused.
func hold(t *testing.T, client *lab.Host, to netip.AddrPort) (c net.Conn) {
	t.Helper()
	err := client.Do(func() (err error) {
		c, err = (&net.Dialer{Timeout: e2e.WaitLimit}).Dial("tcp", to.String())
		return err
	})
	if errors.Is(err, syscall.ECONNREFUSED) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// holder accepts connections and holds them until their clients close them.
type holder struct {
	mu sync.Mutex
	n  int
}

// listenOn listens for TCP on a host's own IPv4 address.
func listenOn(t *testing.T, host *lab.Host, port uint16) (l net.Listener) {
	t.Helper()
	within(t, host, func() (err error) {
		l, err = net.Listen("tcp", netip.AddrPortFrom(host.IPv4, port).String())
		return err
	})
	return l
}

// listen starts a listener on a host.
func listen(t *testing.T, host *lab.Host, port uint16) *holder {
	t.Helper()
	l := listenOn(t, host, port)
	p, done := &holder{}, make(chan struct{})
	var held []net.Conn
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			held = append(held, c)
			p.mu.Lock()
			p.n++
			p.mu.Unlock()
			go func() { // until the client closes it
				io.Copy(io.Discard, c)
				c.Close()
			}()
		}
	}()
	t.Cleanup(func() {
		l.Close()
		<-done
		for _, c := range slices.Backward(held) {
			c.Close()
		}
	})
	return p
}

func (p *holder) accepted() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.n
}
