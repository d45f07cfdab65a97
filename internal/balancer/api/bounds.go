// SPDX-License-Identifier: Apache-2.0

package api

import (
	"container/list"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/config"
)

// Bounds of connections and requests.
const (
	// maxConnections bounds connections, of each listener.
	maxConnections = 512
	// maxRequest bounds the body of a request, in bytes, unless it is a configuration.
	maxRequest = 64 << 10
	// largeBody is the size in bytes from which a body is large, and maxLarge how many requests with
	// one are read at a time: each is a configuration with a hundred thousand backends.
	largeBody = 1 << 20
	maxLarge  = 2
	// bodyTimeout bounds the time in which a body has to arrive.
	bodyTimeout = time.Minute
	// retryAfter is the Retry-After of refusals, in seconds.
	retryAfter = "5"
)

// limitBodies bounds the concurrent requests with a body of a large or unknown size.
func limitBodies(next http.Handler) http.Handler {
	slots := make(chan struct{}, maxLarge)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength >= 0 && r.ContentLength <= largeBody {
			next.ServeHTTP(w, r)
			return
		}
		if r.ContentLength > config.MaxBytes {
			tooLarge(w, r)
			return
		}
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
			next.ServeHTTP(w, r)
		default:
			w.Header().Set("Retry-After", retryAfter)
			w.Header().Set("Connection", "close")
			newProblem(http.StatusServiceUnavailable, "other requests with a large body are being read; try again in "+
				retryAfter+" s").write(w)
		}
	})
}

// tooLarge answers a request whose body is too large. The answer goes first; the body is then read and discarded,
// because many clients read no answer before they have sent everything.
func tooLarge(w http.ResponseWriter, r *http.Request) {
	control := http.NewResponseController(w)
	_ = control.EnableFullDuplex()
	_ = control.SetReadDeadline(time.Now().Add(bodyTimeout))
	w.Header().Set("Connection", "close")
	newProblem(http.StatusRequestEntityTooLarge, fmt.Sprintf("a body of %d bytes; a configuration has up to %d",
		r.ContentLength, config.MaxBytes)).write(w)
	if control.Flush() == nil && r.Header.Get("Expect") == "" {
		_, _ = io.Copy(io.Discard, r.Body)
	}
}

// limitedListener is a listener with a bound on its connections. When it is reached, the connection that has been idle
// for longest is closed for a new one.
type limitedListener struct {
	net.Listener
	max int
	// freed has a value when a connection has ended.
	freed chan struct{}
	// done is closed with the listener.
	done  chan struct{}
	close sync.Once

	mu   sync.Mutex
	open int
	// idle are *limitedConn without a request, the longest idle first.
	idle *list.List
}

// limitConnections bounds the connections of a listener; its trackState is to be the server's ConnState.
func limitConnections(listener net.Listener, most int) *limitedListener {
	return &limitedListener{Listener: listener, max: most, freed: make(chan struct{}, 1), done: make(chan struct{}),
		idle: list.New()}
}

// Accept waits for a connection, and for room for it if all others have a request in progress.
func (l *limitedListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	for !l.tryAdd() {
		select {
		case <-l.freed:
		case <-l.done:
			conn.Close()
			return nil, net.ErrClosed
		}
	}
	return &limitedConn{Conn: conn, listener: l}, nil
}

// tryAdd counts one more connection, if there is room or an idle one can be closed.
func (l *limitedListener) tryAdd() bool {
	l.mu.Lock()
	if l.open < l.max {
		l.open++
		l.mu.Unlock()
		return true
	}
	longest := l.idle.Front()
	if longest == nil {
		l.mu.Unlock()
		return false
	}
	// From here on it reads nothing, so that no request begins that would get no answer.
	out := longest.Value.(*limitedConn)
	out.closed = true
	l.removeIdle(out)
	l.mu.Unlock()
	out.Conn.Close()
	return true
}

// trackState records the states of connections.
func (l *limitedListener) trackState(conn net.Conn, state http.ConnState) {
	secured, isTLS := conn.(*tls.Conn)
	if isTLS {
		conn = secured.NetConn()
	}
	s, ok := conn.(*limitedConn)
	if !ok {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	s.handshaken = s.handshaken || !isTLS || state == http.StateIdle
	idle := (state == http.StateNew || state == http.StateIdle) && !s.closed
	switch {
	case idle && s.idleElement == nil:
		s.idleElement = l.idle.PushBack(s)
	case !idle:
		l.removeIdle(s)
	}
}

// removeIdle removes a connection from the idle ones.
func (l *limitedListener) removeIdle(s *limitedConn) {
	if s.idleElement != nil {
		l.idle.Remove(s.idleElement)
		s.idleElement = nil
	}
}

// Close ends Accept, too.
func (l *limitedListener) Close() error {
	l.close.Do(func() { close(l.done) })
	return l.Listener.Close()
}

// limitedConn is a connection that is no longer counted when it is closed.
type limitedConn struct {
	net.Conn
	listener *limitedListener
	// idleElement is its element of idle; nil: it has a request in progress, or is closed.
	idleElement *list.Element
	closed      bool
	// handshaken: the bytes that it reads are requests. Over TLS, that holds after the first answer: before, they may
	// be a handshake, during which it stays idle.
	handshaken bool
}

// Read marks the connection as busy before the server gets a request's first bytes. A connection that was closed for
// another one in between reads nothing.
func (s *limitedConn) Read(b []byte) (int, error) {
	n, err := s.Conn.Read(b)
	s.listener.mu.Lock()
	defer s.listener.mu.Unlock()
	if s.closed {
		return 0, net.ErrClosed
	}
	if n > 0 && s.handshaken {
		s.listener.removeIdle(s)
	}
	return n, err
}

func (s *limitedConn) Close() error {
	s.listener.mu.Lock()
	first := !s.closed
	s.closed = true
	if first {
		s.listener.open--
		s.listener.removeIdle(s)
	}
	s.listener.mu.Unlock()
	if first {
		select {
		case s.listener.freed <- struct{}{}:
		default:
		}
	}
	return s.Conn.Close()
}
