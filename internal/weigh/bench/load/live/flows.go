// SPDX-License-Identifier: Apache-2.0

package live

import (
	"context"
	"net"
	"syscall"

	"golang.org/x/sync/errgroup"
)

// flows opens a connection from each of a range of local ports, sends a request over it, and resets it, so that the
// port is free again. It returns which server answered at which port. Ports in use are left out.
func (h *loadClient) flows(ctx context.Context, first, count int) (map[int]string, error) {
	servers := make([]string, count)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(openers)
	for i := range count {
		group.Go(func() (err error) {
			servers[i], err = h.serverAt(ctx, first+i)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	at := map[int]string{}
	for i, server := range servers {
		if server != "" {
			at[first+i] = server
		}
	}
	return at, nil
}

// serverAt returns the server of a new connection from a local port; "" if the port is in use.
func (h *loadClient) serverAt(ctx context.Context, port int) (string, error) {
	dialer := h.dialer
	dialer.LocalAddr = &net.TCPAddr{Port: port}
	dialer.Control = func(_, _ string, raw syscall.RawConn) error { return reusable(raw) }
	conn, err := dialer.DialContext(ctx, "tcp4", h.load.Target.String())
	if isPortInUse(err) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if tcp, ok := conn.(*net.TCPConn); ok {
		if err := tcp.SetLinger(0); err != nil {
			return "", err
		}
	}
	from, err := (&clientConn{conn: conn, flow: uint64(port)}).ask(h.load.Timeout)
	return from.Server, err
}
