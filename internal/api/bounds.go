// SPDX-License-Identifier: Apache-2.0

package api

import (
	"net"
	"net/http"
	"sync"
	"time"
)

// How much of clients there can be at a time.
const (
	// maxConnections bounds connections; others wait until one ends.
	maxConnections = 512
	// largeBody is the size in bytes from which a body is large, and maxLarge how many requests with
	// one are read at a time: each is a configuration with a hundred thousand backends.
	largeBody = 1 << 20
	maxLarge  = 2
	// bodyBound bounds the time in which a body has to arrive.
	bodyBound = time.Minute
	// retryAfter is when to try again, in seconds.
	retryAfter = "5"
)

// bounded lets in only so many requests with a large body, or with one of unknown size.
func bounded(next http.Handler) http.Handler {
	slots := make(chan struct{}, maxLarge)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength >= 0 && r.ContentLength <= largeBody {
			next.ServeHTTP(w, r)
			return
		}
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
			next.ServeHTTP(w, r)
		default:
			w.Header().Set("Retry-After", retryAfter)
			w.Header().Set("Connection", "close")
			(&Problem{Title: http.StatusText(http.StatusServiceUnavailable), Status: http.StatusServiceUnavailable,
				Detail: "other requests with a large body are being read; try again in " + retryAfter + " s"}).write(w)
		}
	})
}

// limited is a listener with a bound on its connections.
type limited struct {
	net.Listener
	slots chan struct{}
	// done is closed with the listener.
	done  chan struct{}
	close sync.Once
}

// limit bounds the connections of a listener.
func limit(listener net.Listener, most int) *limited {
	return &limited{Listener: listener, slots: make(chan struct{}, most), done: make(chan struct{})}
}

// Accept waits for a connection, and before that until there may be one more.
func (l *limited) Accept() (net.Conn, error) {
	select {
	case l.slots <- struct{}{}:
	case <-l.done:
		return nil, net.ErrClosed
	}
	conn, err := l.Listener.Accept()
	if err != nil {
		<-l.slots
		return nil, err
	}
	return &slot{Conn: conn, release: sync.OnceFunc(func() { <-l.slots })}, nil
}

// Close ends Accept, too.
func (l *limited) Close() error {
	l.close.Do(func() { close(l.done) })
	return l.Listener.Close()
}

// slot is a connection that gives its place back when it is closed.
type slot struct {
	net.Conn
	release func()
}

func (s *slot) Close() error {
	defer s.release()
	return s.Conn.Close()
}
