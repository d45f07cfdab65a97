// SPDX-License-Identifier: Apache-2.0

package api

import (
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
)

// pipeListener is a listener whose connections are given to it.
type pipeListener chan net.Conn

func (p pipeListener) Accept() (net.Conn, error) { return <-p, nil }
func (p pipeListener) Close() error              { return nil }
func (p pipeListener) Addr() net.Addr            { return &net.UnixAddr{} }

// TestRoomIsMadeBetweenRequests: a connection whose request has begun makes no room for another one, also before the
// server has said so; one that has made room reads no request any more.
func TestRoomIsMadeBetweenRequests(t *testing.T) {
	given := make(pipeListener, 1)
	l := limitConnections(given, 2)
	accept := func() (client net.Conn, server *limitedConn) {
		t.Helper()
		client, end := net.Pipe()
		t.Cleanup(func() { client.Close() })
		given <- end
		conn, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		l.trackState(conn, http.StateNew)
		return client, conn.(*limitedConn)
	}
	asking, began := accept()
	_, idle := accept()
	go io.WriteString(asking, "G")
	if n, err := began.Read(make([]byte, 1)); n != 1 || err != nil {
		t.Fatalf("a request begins: %d, %v", n, err)
	}
	// The first one is the longest without a request, but for the bytes just read, which the server has not reported
	// yet.
	_, third := accept()
	if began.closed || !idle.closed || third.closed {
		t.Errorf("room is made: the asking one %t, the idle one %t, the new one %t", began.closed, idle.closed,
			third.closed)
	}
	if n, err := idle.Read(make([]byte, 1)); n != 0 || !errors.Is(err, net.ErrClosed) {
		t.Errorf("the one that made room reads %d, %v", n, err)
	}
	if l.open != 2 || l.idle.Len() != 1 {
		t.Errorf("%d are open, %d of them idle", l.open, l.idle.Len())
	}
	for _, s := range []*limitedConn{began, idle, third} {
		s.Close()
	}
	if l.open != 0 || l.idle.Len() != 0 {
		t.Errorf("after all: %d are open, %d of them idle", l.open, l.idle.Len())
	}
}
