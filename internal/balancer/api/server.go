// SPDX-License-Identifier: Apache-2.0

// Package api is the balancer's API: HTTP over a unix socket and, with TLS and credentials, over TCP. GET /v1/status
// answers with a ops.Status as JSON, POST /v1/explain with the outcome that a packet would have, POST /v1/trace with
// real packets, a line each, and POST /v1/capture with their bytes, too.
//
// POST /v1/services/SERVICE/backends/BACKEND/drain, …/enable and …/weight change a backend, POST /v1/operations/undo
// takes the latest change back, and GET /v1/operations lists them. POST /v1/services/SERVICE/backends/BACKEND/check
// checks a backend now, and reports every step. POST /v1/reload has the daemon read its file again. /v1/config has the
// configuration, whole, by source, by service and by backend, and changes it. /openapi.json describes all of it. Errors
// are problems (RFC 9457).
package api

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/api/access"
	"github.com/jeoul/jeoul/internal/balancer/dashboard"
	"github.com/jeoul/jeoul/internal/host/httpserve"
)

// shutdownTimeout bounds the wait for requests when the server ends. A trace loads the plain eBPF program again, which
// takes seconds on a busy machine.
const shutdownTimeout = 15 * time.Second

// socketMode gives the owner and the group access.
const socketMode fs.FileMode = 0o660

// Listen opens the unix socket at path. A socket of a dead process is removed; a socket on which a process answers
// (ErrInUse), and a file that is not a socket, are left alone. Closing the listener removes the socket. Errors:
// ErrInUse, ErrNoRights.
func Listen(ctx context.Context, path string) (net.Listener, error) {
	doing := func(err error) error {
		if errors.Is(err, fs.ErrPermission) {
			err = fmt.Errorf("%w; run as root, or choose a socket in a directory of your own", ErrNoRights)
		}
		return fmt.Errorf("listen on the unix socket %s: %w", path, err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, doing(err)
	}
	if err := removeStaleSocket(ctx, path); err != nil {
		return nil, doing(err)
	}
	// bind takes the mode of the file from the descriptor: with a chmod
	// afterwards alone, any process could connect in between.
	listen := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var err error
		if controlErr := c.Control(func(fd uintptr) {
			err = syscall.Fchmod(int(fd), uint32(socketMode))
		}); controlErr != nil {
			return controlErr
		}
		return err
	}}
	listener, err := listen.Listen(ctx, "unix", path)
	if err != nil {
		return nil, doing(err)
	}
	// The umask may have taken the group's bits.
	if err := os.Chmod(path, socketMode); err != nil {
		listener.Close()
		return nil, doing(err)
	}
	return listener, nil
}

// removeStaleSocket removes a socket on which no process answers.
func removeStaleSocket(ctx context.Context, path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode().Type() != fs.ModeSocket {
		return errors.New("there is a file of that name that is not a socket; remove it or choose another path")
	}
	conn, err := new(net.Dialer).DialContext(ctx, "unix", path)
	if err == nil {
		conn.Close()
		return fmt.Errorf("%w; stop it, or give this one another socket", ErrInUse)
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return err
	}
	return os.Remove(path)
}

// Serve answers requests on the unix socket until the context ends; then it waits for the requests in progress, within
// a bound, and closes the listener.
func Serve(ctx context.Context, listener net.Listener, b Balancer) error {
	router, _ := newRouter(b)
	limited := limitConnections(listener, maxConnections)
	return serveOn(ctx, limited, limited, router)
}

// ServeTLS is Serve over TCP, for clients that the guard knows. The dashboard's files are served without credentials:
// they are the same on every balancer, and the dashboard gets all data from the API with its user's credentials.
func ServeTLS(ctx context.Context, listener net.Listener, b Balancer, guard *access.Guard) error {
	router, _ := newRouter(b)
	limited := limitConnections(listener, maxConnections)
	handler := dashboard.Handler(authenticate(router, guard, b.Denied))
	return serveOn(ctx, limited, tls.NewListener(limited, guard.TLS()), handler)
}

// serveOn answers requests on a listener, whose connections are bounded.
func serveOn(ctx context.Context, limited *limitedListener, listener net.Listener, handler http.Handler) error {
	server := &http.Server{
		Handler: handler,
		// A trace lasts until its client hangs up: the server's end must end it.
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ConnContext:       withCaller,
		ConnState:         limited.trackState,
		ReadHeaderTimeout: 5 * time.Second, // that of a TLS handshake, too
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       10 * time.Second,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          log.New(serverLog{os.Stderr}, "", 0),
	}
	if err := httpserve.Until(ctx, server, listener, shutdownTimeout); err != nil {
		return fmt.Errorf("serve the API on %s: %w", listener.Addr(), err)
	}
	return nil
}

// serverLog passes on the log lines of an HTTP server, without those about clients that hang up in a handshake or speak
// another protocol.
type serverLog struct{ to io.Writer }

func (p serverLog) Write(line []byte) (int, error) {
	if bytes.HasPrefix(line, []byte("http: panic")) {
		return p.to.Write(line)
	}
	return len(line), nil
}
