// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/api"
	"github.com/jeoul/jeoul/internal/balancer/config"
	"github.com/jeoul/jeoul/internal/balancer/metrics"
	"github.com/jeoul/jeoul/internal/host/durable"
	"github.com/jeoul/jeoul/internal/host/standin"
)

// listeners are where a balancer is asked.
type listeners struct {
	// socket is the unix socket of the API; nil where it could not be made yet, because of socketErr.
	socket    net.Listener
	socketErr error
	// metrics is where Prometheus asks, and tcp answers the API over TCP; nil where the configuration has none.
	metrics net.Listener
	tcp     *tcpServer
}

// open opens them; those that are open after an error are for close.
func (l *listeners) open(ctx context.Context, cfg *config.Config, log *slog.Logger) (err error) {
	// First, for it says at once whether another balancer runs.
	socket, err := api.Listen(ctx, cfg.Socket)
	if err != nil && !durable.Unwritable(err) {
		return err
	}
	if l.socketErr = err; err == nil {
		l.socket = socket
	}
	if l.metrics, err = listenForMetrics(ctx, cfg); err != nil {
		return err
	}
	l.tcp, err = listenOverTCP(ctx, cfg, log)
	return err
}

func (l *listeners) close() {
	if l.socket != nil {
		l.socket.Close()
	}
	if l.metrics != nil {
		l.metrics.Close()
	}
	if l.tcp != nil {
		l.tcp.listener.Close()
	}
}

// listenForMetrics opens the address that Prometheus asks at; nil where the configuration has
// none.
func listenForMetrics(ctx context.Context, cfg *config.Config) (net.Listener, error) {
	if !cfg.Metrics.Listen.IsValid() {
		return nil, nil
	}
	listener, err := metrics.Listen(ctx, cfg.Metrics.Listen.String())
	if err != nil {
		return nil, cfg.At("metrics.listen", "%v", err)
	}
	return listener, nil
}

// socketRetryEvery is the interval at which a socket that could not be made is tried again.
const socketRetryEvery = 2 * time.Second

// serveSocket serves the API at the unix socket. Where that could not be made, because its directory cannot be written
// to, a stand-in serves until the socket can be made.
func serveSocket(ctx context.Context, listener net.Listener, unheard error, path string, b api.Balancer,
	files *durable.Files, log *slog.Logger) error {
	const what = "the unix socket of the API"
	standinContext, end := context.WithCancel(ctx)
	var standins sync.WaitGroup
	defer standins.Wait()
	defer end()
	if listener == nil {
		standins.Go(func() { retrySocket(standinContext, path, b, log) })
	}
	for listener == nil {
		files.RecordResult(what, path, unheard, false)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(socketRetryEvery):
		}
		if listener, unheard = api.Listen(ctx, path); unheard != nil {
			listener = nil
		}
	}
	files.RecordResult(what, path, nil, false)
	end()
	return api.Serve(ctx, listener, b)
}

// retrySocket makes the unix socket once that is possible, and serves the API on it until the context ends.
func retrySocket(ctx context.Context, path string, b api.Balancer, log *slog.Logger) {
	listener, err := standin.Listen(ctx, path)
	if err == nil {
		err = api.Serve(ctx, listener, b)
	}
	if err != nil {
		log.Warn("answering the API without its unix socket: " + err.Error())
	}
}
