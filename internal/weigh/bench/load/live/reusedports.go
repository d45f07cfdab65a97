// SPDX-License-Identifier: Apache-2.0

package live

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// ReusedPorts are connections from reused local ports: from each port, a connection is opened, used for one request and
// ended, and then another one from the same port. A balancer that stores flows sees every port again while it has an
// entry of an earlier connection.
type ReusedPorts struct {
	// First is the first of Ports ports. They should be outside of the kernel's range of local ports, or other sockets
	// use some of them.
	First, Ports int
	// Pace is the time between a port's connections.
	Pace time.Duration
	// UDP makes one in that many ports also send a UDP query, each time from a new socket; 0 means none.
	UDP int
}

// closeModes are the ways in which the connections of a port end, one for each connection in turn. None leaves the
// client in TIME-WAIT, so the port is free at once. The client's own reset and FIN pass the balancer; with direct
// server return the server's do not.
var closeModes = []closeMode{staysOpen, closeByReset, closeByFIN}

// openReused are a client's connections from reused ports.
type openReused struct {
	mu sync.Mutex
	// release is closed when connections no longer have to stay open; nil if they need not.
	release chan struct{}
	// serverByPort has the servers of the connections that are open now, by port.
	serverByPort map[int]string
}

// reusePort opens connections from one port, one after another.
func (h *loadClient) reusePort(port int) {
	wait := time.Duration(rand.Int64N(int64(h.load.ReusedPorts.Pace)))
	// Whether the server ended the previous connection, which had to stay open.
	again := false
	for lap := uint64(1); h.sleep(wait); lap++ {
		wait = h.load.ReusedPorts.Pace
		if udp := h.load.ReusedPorts.UDP; udp > 0 && (port-h.load.ReusedPorts.First)%udp == 0 {
			h.group.Go(func() { h.queryFrom(port) })
		}
		var conn net.Conn
		h.trackRequest(func(mark uint64) { conn = h.reuseOnce(port, lap, again, mark) })
		switch {
		case conn == nil:
			again = false
		case h.holdUntilReleased(port, conn):
			again, wait = true, 0
		default:
			// All ports continue at the same time, and must not stay in step.
			again, wait = false, time.Duration(rand.Int64N(int64(h.load.ReusedPorts.Pace)))
		}
	}
}

// reuseOnce opens a connection from a port, sends a request over it and ends it. If connections have to stay open, it
// returns the connection instead.
func (h *loadClient) reuseOnce(port int, number uint64, again bool, mark uint64) net.Conn {
	began := time.Now()
	conn, lost, err := h.dialFrom(port)
	if isPortInUse(err) {
		h.counter.change(func() { h.counter.counts.PortsInUse++ })
		return nil
	}
	how := closeModes[(uint64(port)+number)%uint64(len(closeModes))]
	stays := h.mustHold()
	if stays {
		how = staysOpen
	}
	var from peer
	if err == nil {
		from, err = (&clientConn{conn: conn, flow: uint64(port), number: how.numbered(number)}).ask(h.load.Timeout)
	}
	if h.ctx.Err() == nil {
		h.counter.addReused(reuseResult{began: began, from: from, lost: lost, again: again, err: err},
			mark == h.mark.Load())
	}
	switch {
	case err == nil && stays:
		h.openReused.keep(port, from.Server)
		return conn
	case conn == nil:
	case err != nil || how == staysOpen || !h.ended(conn, how):
		reset(conn)
	default:
		conn.Close()
	}
	return nil
}

// isPortInUse reports whether a port could not be used because another socket still has it.
func isPortInUse(err error) bool {
	return errors.Is(err, unix.EADDRINUSE) || errors.Is(err, unix.EADDRNOTAVAIL)
}

// reset ends a connection by a reset, so that its port is free.
func reset(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		// If it cannot be set, the connection ends with a FIN.
		_ = tcp.SetLinger(0)
	}
	conn.Close()
}

// confirmAnswer signals to the server that its answer has arrived: until then the server delays its reset.
func (e closeMode) confirmAnswer(conn net.Conn) error {
	if e != closeByReset {
		return nil
	}
	_, err := conn.Write(make([]byte, 1))
	return err
}

// ended waits until the server has ended a connection, and reports whether it did.
func (h *loadClient) ended(conn net.Conn, how closeMode) bool {
	if err := how.confirmAnswer(conn); err != nil {
		return causeOf(err) == Reset
	}
	if err := conn.SetReadDeadline(time.Now().Add(h.load.Timeout)); err != nil {
		return false
	}
	_, err := conn.Read(make([]byte, 1))
	cause := causeOf(err)
	return errors.Is(err, io.EOF) || cause == Reset
}

// mustHold reports whether connections have to stay open.
func (h *loadClient) mustHold() bool {
	h.openReused.mu.Lock()
	defer h.openReused.mu.Unlock()
	return h.openReused.release != nil
}

func (l *openReused) keep(port int, server string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.serverByPort == nil {
		l.serverByPort = map[int]string{}
	}
	l.serverByPort[port] = server
}

// holdUntilReleased keeps a connection open until release is closed or the server ends the connection. It reports
// whether the server ended it.
func (h *loadClient) holdUntilReleased(port int, conn net.Conn) bool {
	h.openReused.mu.Lock()
	over := h.openReused.release
	h.openReused.mu.Unlock()
	if over != nil {
		stop := make(chan struct{})
		defer close(stop)
		go func() {
			select {
			case <-over:
			case <-h.ctx.Done():
			case <-stop:
				return
			}
			_ = conn.SetReadDeadline(time.Now())
		}()
	}
	err := conn.SetReadDeadline(time.Time{})
	if err == nil && over != nil {
		_, err = conn.Read(make([]byte, 1))
	}
	h.openReused.mu.Lock()
	delete(h.openReused.serverByPort, port)
	h.openReused.mu.Unlock()
	cause := causeOf(err)
	reset(conn)
	return cause == Reset || cause == Closed
}

// releaseReused lets connections end again.
func (h *loadClient) releaseReused() {
	h.openReused.mu.Lock()
	defer h.openReused.mu.Unlock()
	if h.openReused.release != nil {
		close(h.openReused.release)
		h.openReused.release = nil
	}
}

// holdReused makes connections stay open from now on. It returns how many each server has when every port has one, or
// when ctx ends.
func (h *loadClient) holdReused(ctx context.Context) map[string]uint64 {
	h.openReused.mu.Lock()
	if h.openReused.release == nil {
		h.openReused.release = make(chan struct{})
	}
	h.openReused.mu.Unlock()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		if by := h.openReused.byServer(); len(by) > 0 && total(by) >= uint64(h.load.ReusedPorts.Ports) {
			return by
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return h.openReused.byServer()
		}
	}
}

// byServer counts the connections that stay open, by server.
func (l *openReused) byServer() map[string]uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	by := map[string]uint64{}
	for _, server := range l.serverByPort {
		by[server]++
	}
	return by
}

func total(by map[string]uint64) (n uint64) {
	for _, of := range by {
		n += of
	}
	return n
}

// queryFrom sends a UDP query from the given port.
func (h *loadClient) queryFrom(port int) {
	h.trackRequest(func(uint64) {
		dialer := h.dialer
		dialer.LocalAddr = &net.UDPAddr{Port: port}
		conn, err := dialer.DialContext(h.ctx, "udp4", h.load.Target.String())
		if isPortInUse(err) {
			return // the previous query is still waiting
		}
		if err != nil {
			h.countQuery(time.Now(), false)
			return
		}
		defer conn.Close()
		h.query(conn, request{uint64(port), rand.Uint64() >> 8})
	})
}
