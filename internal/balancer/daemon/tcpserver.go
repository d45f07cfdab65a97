// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"log/slog"
	"net"

	"github.com/jeoul/jeoul/internal/balancer/api"
	"github.com/jeoul/jeoul/internal/balancer/api/access"
	"github.com/jeoul/jeoul/internal/balancer/config"
	"github.com/jeoul/jeoul/internal/balancer/ops"
)

// tcpServer answers the API over TCP.
type tcpServer struct {
	listener net.Listener
	guard    *access.Guard
}

// listenOverTCP opens the address of the API, and reads the credentials of its clients; nil where the configuration has
// no such address.
func listenOverTCP(ctx context.Context, cfg *config.Config, log *slog.Logger) (*tcpServer, error) {
	if !cfg.API.Listen.IsValid() {
		return nil, nil
	}
	guard, err := access.New(cfg, log)
	if err != nil {
		return nil, err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", cfg.API.Listen.String())
	if err != nil {
		return nil, cfg.At("api.listen", "%v", err)
	}
	return &tcpServer{listener, guard}, nil
}

// serve answers requests until the context ends.
func (s *tcpServer) serve(ctx context.Context, b api.Balancer) error {
	return api.ServeTLS(ctx, s.listener, b, s.guard)
}

// Prepare reads certificates and tokens again, and refuses those that cannot be used.
func (s *tcpServer) Prepare(cfg *config.Config) (commit func(), err error) {
	if !cfg.API.Listen.IsValid() {
		return func() {}, nil // the controller refuses that: the address is chosen at the start
	}
	return s.guard.Prepare(cfg)
}

// FillStatus adds the problems of certificates and tokens to a status.
func (s *tcpServer) FillStatus(to *ops.Status) {
	to.Problems = append(to.Problems, s.guard.Problems()...)
}
