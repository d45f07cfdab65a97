// SPDX-License-Identifier: Apache-2.0

package live

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/net/ipv4"
	"golang.org/x/sync/errgroup"

	"github.com/jeoul/jeoul/internal/host/httpserve"
)

// Server answers requests with a name, at a TCP and a UDP port of all IPv4 addresses of its host. At another TCP port,
// unless that is 0, it answers health checks over HTTP. Both are in one process, so that stopping one stops the other.
type Server struct {
	Name         string
	Port, Health uint16
	// Proxies has the names of proxies, by their addresses. Connections from a proxy are answered with its name,
	// because the proxy is what clients have connected to.
	Proxies map[netip.Addr]string

	own     answerer
	proxies map[netip.Addr]answerer
}

// Serve answers requests until ctx ends.
func (s Server) Serve(ctx context.Context) error {
	if err := s.prepare(); err != nil {
		return err
	}
	a, health := s.own, s.Health
	at := ":" + strconv.Itoa(int(s.Port))
	// Without keep-alives: whichever server gets their packets would answer them.
	config := net.ListenConfig{KeepAlive: -1}
	listener, err := config.Listen(ctx, "tcp4", at)
	if err != nil {
		return fmt.Errorf("serving: %w", err)
	}
	defer listener.Close()
	packets, err := config.ListenPacket(ctx, "udp4", at)
	if err != nil {
		return fmt.Errorf("serving: %w", err)
	}
	defer packets.Close()
	group, ctx := errgroup.WithContext(ctx)
	if health != 0 {
		checks, err := config.Listen(ctx, "tcp", ":"+strconv.Itoa(int(health)))
		if err != nil {
			return fmt.Errorf("serving health checks: %w", err)
		}
		group.Go(func() error { return serveChecks(ctx, checks) })
	}
	context.AfterFunc(ctx, func() { listener.Close(); packets.Close() })
	group.Go(func() error { return s.serveTCP(ctx, listener) })
	group.Go(func() error { return a.serveUDP(ctx, packets) })
	return group.Wait()
}

// prepare makes the answerers.
func (s *Server) prepare() (err error) {
	if s.own, err = newAnswerer(s.Name); err != nil {
		return err
	}
	s.proxies = map[netip.Addr]answerer{}
	for addr, name := range s.Proxies {
		if s.proxies[addr], err = newAnswerer(name); err != nil {
			return err
		}
	}
	return nil
}

// answerer returns the answerer for a connection.
func (s *Server) answerer(conn net.Conn) answerer {
	if from, ok := conn.RemoteAddr().(*net.TCPAddr); ok {
		if proxy, known := s.proxies[from.AddrPort().Addr().Unmap()]; known {
			return proxy
		}
	}
	return s.own
}

// serveChecks answers every HTTP request with status 200, and closes each connection afterwards, as a server without
// keep-alive for checks does.
func serveChecks(ctx context.Context, listener net.Listener) error {
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusOK)
	})}
	server.SetKeepAlivesEnabled(false)
	return httpserve.Until(ctx, server, listener, time.Second)
}

func (s *Server) serveTCP(ctx context.Context, listener net.Listener) error {
	var accepted atomic.Uint64
	for {
		conn, err := listener.Accept()
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, net.ErrClosed):
			return err
		case err != nil:
			continue // the connection is gone already, or no file descriptor is left for it
		}
		go s.answerer(conn).answerTCP(conn, accepted.Add(1))
	}
}

// answerTCP answers the requests of a connection until it ends.
func (a answerer) answerTCP(conn net.Conn, number uint64) {
	defer conn.Close()
	request, answer := make([]byte, requestBytes), make([]byte, 0, answerBytes)
	for {
		if _, err := io.ReadFull(conn, request); err != nil {
			return
		}
		if _, err := conn.Write(a.answer(answer[:0], request, number)); err != nil {
			return
		}
		switch closeMode(request[endingAt]) {
		case closeByFIN:
			return
		case closeByReset:
			// Wait until the client has the answer: through two queues of a device, the reset may overtake it. The
			// client signals that it has; if it has gone instead, the reset is for that.
			_, _ = io.ReadFull(conn, request[:1])
			reset(conn)
			return
		}
	}
}

// serveUDP answers queries, each from the address that the query was sent to: the VIP, with direct server return.
func (a answerer) serveUDP(ctx context.Context, conn net.PacketConn) error {
	packets := ipv4.NewPacketConn(conn)
	if err := packets.SetControlMessage(ipv4.FlagDst, true); err != nil {
		return fmt.Errorf("serving UDP: %w", err)
	}
	query, answer := make([]byte, requestBytes+1), make([]byte, 0, answerBytes)
	for {
		n, asked, from, err := packets.ReadFrom(query)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, net.ErrClosed):
			return err
		case err != nil, n != requestBytes, asked == nil:
			continue
		}
		// An answer that cannot be sent is lost, as on any network.
		_, _ = packets.WriteTo(a.answer(answer[:0], query[:n], 0), &ipv4.ControlMessage{Src: asked.Dst}, from)
	}
}
