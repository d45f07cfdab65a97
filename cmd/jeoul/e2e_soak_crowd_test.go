// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jeoul/jeoul/cmd/jeoul/e2e/soak"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

const (
	// clientRequests is the mean interval of a connection's requests, and clientTimeout bounds the wait for an answer:
	// it leaves time for several retransmissions.
	clientRequests = time.Second
	clientTimeout  = 45 * time.Second
	// shortLife is the longest life of connections that come and go.
	shortLife = 20 * time.Second
	// clientPause is how long a client waits after an end, and before it begins again.
	clientPause = 500 * time.Millisecond
)

// backendListeners are a backend's listeners, which can close with all connections that they accepted.
type backendListeners struct {
	host  *lab.Host
	ports []uint16

	mu        sync.Mutex
	listeners []net.Listener
	inside    map[net.Conn]bool
}

// open begins to listen.
func (d *backendListeners) open() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.inside = map[net.Conn]bool{}
	return d.host.Do(func() error {
		for _, port := range d.ports {
			listener, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
			if err != nil {
				return err
			}
			d.listeners = append(d.listeners, listener)
			go d.serve(listener)
		}
		return nil
	})
}

// close closes all of them, as the end of a server's process does.
func (d *backendListeners) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, listener := range d.listeners {
		listener.Close()
	}
	d.listeners = nil
	for connection := range d.inside {
		connection.(*net.TCPConn).SetLinger(0)
		connection.Close()
	}
	d.inside = nil
}

// serve answers each line with the server's name.
func (d *backendListeners) serve(listener net.Listener) {
	for {
		connection, err := listener.Accept()
		if err != nil {
			return
		}
		d.mu.Lock()
		if d.inside == nil {
			d.mu.Unlock()
			connection.Close()
			continue
		}
		d.inside[connection] = true
		d.mu.Unlock()
		go func() {
			for lines := bufio.NewScanner(connection); lines.Scan(); {
				fmt.Fprintln(connection, d.host.Name)
			}
			connection.Close()
			d.mu.Lock()
			delete(d.inside, connection)
			d.mu.Unlock()
		}()
	}
}

// soakClients are connections that repeat requests.
type soakClients struct {
	clients  []*lab.Host
	vip      netip.Addr
	services []soakService
	backends map[string]int // by name
	broke    func(soak.Connection)
	refused  func(soakService, soak.Span, error)

	group            sync.WaitGroup
	opened, answered atomic.Uint64
	openNow          atomic.Int64
}

// begin opens connections to each service: some that stay as long as they can, and others that come and go.
func (c *soakClients) begin(ctx context.Context, long, short int) {
	for _, service := range c.services {
		for i := range long + short {
			c.group.Go(func() {
				for ctx.Err() == nil {
					life := time.Duration(0)
					if i >= long {
						life = time.Duration(rand.Int64N(int64(shortLife)))
					}
					c.live(ctx, c.clients[i%len(c.clients)], service, life)
					pause(ctx, clientPause/2+time.Duration(rand.Int64N(int64(clientPause))))
				}
			})
		}
	}
}

// pause waits for a duration, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// errMoved means that another server answered.
var errMoved = errors.New("another server answered")

// live keeps one connection open, until its time is over or it breaks.
func (c *soakClients) live(ctx context.Context, client *lab.Host, service soakService, life time.Duration) {
	began := time.Now()
	connection, reader, server, err := c.open(ctx, client, service)
	if err != nil {
		if ctx.Err() == nil {
			c.refused(service, soak.Span{From: began, To: time.Now()}, err)
		}
		return
	}
	defer connection.Close()
	c.opened.Add(1)
	c.openNow.Add(1)
	defer c.openNow.Add(-1)
	stop := context.AfterFunc(ctx, func() { connection.Close() })
	defer stop()
	proven := time.Now()
	answered := proven
	for life == 0 || time.Since(began) < life {
		pause(ctx, clientRequests*7/10+time.Duration(rand.Int64N(int64(clientRequests*6/10))))
		if ctx.Err() != nil {
			return
		}
		got, err := askOn(connection, reader)
		if err == nil && got != server {
			err = fmt.Errorf("%w: %s", errMoved, got)
		}
		if err != nil {
			if ctx.Err() == nil {
				local, _ := netip.ParseAddrPort(connection.LocalAddr().String())
				c.broke(soak.Connection{Service: service.name, Client: local, Computes: !service.scheduler.Remembers(),
					Backend: c.backends[server],
					Opened:  began, Proven: proven, Answered: answered, Broke: time.Now(),
					Error: fmt.Sprintf("from %s to %s: %v", connection.LocalAddr(), server, err)})
			}
			return
		}
		answered = time.Now()
		c.answered.Add(1)
	}
}

// open connects and sends one request.
func (c *soakClients) open(ctx context.Context, client *lab.Host, service soakService) (connection net.Conn,
	reader *bufio.Reader, server string, err error) {
	ctx, cancel := context.WithTimeout(ctx, clientTimeout)
	defer cancel()
	err = client.Do(func() (err error) {
		connection, err = (&net.Dialer{KeepAlive: -1}).DialContext(ctx, "tcp",
			netip.AddrPortFrom(c.vip, service.port).String())
		return err
	})
	if err != nil {
		return nil, nil, "", err
	}
	reader = bufio.NewReader(connection)
	if server, err = askOn(connection, reader); err != nil {
		connection.Close()
	}
	return connection, reader, server, err
}

// askOn sends a request for the server's name.
func askOn(connection net.Conn, reader *bufio.Reader) (string, error) {
	if err := connection.SetDeadline(time.Now().Add(clientTimeout)); err != nil {
		return "", err
	}
	if _, err := fmt.Fprintln(connection, "who"); err != nil {
		return "", err
	}
	line, err := reader.ReadString('\n')
	return strings.TrimSpace(line), err
}

// TestSoakNotesProof: a connection that takes long to open, such as one whose first SYN went to a removed backend,
// counts as proven from its first answer on.
func TestSoakNotesProof(t *testing.T) {
	t.Parallel()
	l := newLab(t, lab.Spec{Clients: 1, Servers: 1})
	var listener net.Listener
	if err := l.Servers[0].Do(func() (err error) {
		listener, err = net.Listen("tcp", ":7000")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	asked, answer := make(chan time.Time, 1), make(chan struct{})
	go func() {
		connection, err := listener.Accept()
		if err != nil {
			return
		}
		lines := bufio.NewScanner(connection)
		lines.Scan()
		asked <- time.Now()
		<-answer
		fmt.Fprintln(connection, "web01")
		lines.Scan()
		connection.(*net.TCPConn).SetLinger(0)
		connection.Close()
	}()
	ctx, cancel := context.WithTimeout(t.Context(), clientTimeout)
	defer cancel()
	broken := make(chan soak.Connection, 1)
	crowd := soakClients{clients: l.Clients, vip: l.Servers[0].IPv4, backends: map[string]int{"web01": 0},
		broke:   func(c soak.Connection) { broken <- c },
		refused: func(_ soakService, _ soak.Span, err error) { t.Error(err); cancel() }}
	crowd.group.Go(func() {
		crowd.live(ctx, l.Clients[0], soakService{name: "rr", port: 7000, scheduler: lb.RoundRobin}, 0)
	})
	defer crowd.group.Wait()
	var opened, proven time.Time
	select {
	case opened = <-asked:
	case <-ctx.Done():
		t.Fatal("it does not ask")
	}
	proven = time.Now()
	close(answer)
	select {
	case c := <-broken:
		if c.Opened.After(opened) || c.Proven.Before(proven) || c.Proven.After(c.Answered) {
			t.Errorf("asked at %v and answered after %v, it was %+v", opened, proven, c)
		}
	case <-ctx.Done():
		t.Error("it does not break")
	}
}
