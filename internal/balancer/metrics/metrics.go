// SPDX-License-Identifier: Apache-2.0

// Package metrics shows a running balancer to Prometheus. Each scrape is made of one status
// of the balancer, so that its series are of one moment and agree with `jeoul status`.
// families.go is the one list of metrics; docs/reference/metrics.md is generated from it.
package metrics

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/host/httpserve"
)

// Path is where the metrics are.
const Path = "/metrics"

// Metrics are the metrics of one balancer.
type Metrics struct {
	gatherer *gatherer
	reloads  *reloads
	denials  *prometheus.CounterVec
}

// New returns the metrics of a balancer, asked by status at each scrape. Backends have series
// of their own where there are at most so many of them in all.
func New(status func() (ops.Status, error), backends int) *Metrics {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		collectors.NewGoCollector())
	m := &Metrics{gatherer: &gatherer{status: status, backends: backends, others: registry}, reloads: newReloads(),
		denials: newDenials()}
	m.reloads.register(registry)
	registry.MustRegister(m.denials)
	return m
}

// Reloaded counts a reload of the configuration; a nil error is one that was applied.
func (m *Metrics) Reloaded(err error) { m.reloads.record(err, time.Now()) }

// Bounds of scrapes. Prometheus asks every 10 s or less often; a faster client must not keep the balancer busy.
const (
	maxScrapes    = 3
	scrapeTimeout = 20 * time.Second
)

// Handler answers a scrape, in the Prometheus text format or, where that is asked for,
// OpenMetrics. A balancer that cannot be read is answered with 500.
func (m *Metrics) Handler() http.Handler {
	library := promhttp.HandlerFor(m.gatherer, promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError,
		EnableOpenMetrics: true, DisableCompression: true})
	// The handler of the timeout keeps the whole answer, so it is given the compressed one.
	return http.TimeoutHandler(gzipped(&textHandler{m.gatherer, library, make(chan struct{}, maxScrapes)}),
		scrapeTimeout, fmt.Sprintf("the scrape took longer than %v\n", scrapeTimeout))
}

// Listen opens a TCP address for Serve.
func Listen(ctx context.Context, address string) (net.Listener, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen for scrapes of metrics: %w", err)
	}
	return listener, nil
}

// shutdownTimeout is how long scrapes under way have when the server shuts down.
const shutdownTimeout = time.Second

// Serve answers scrapes on the listener, and nothing else, until the context ends; it closes
// the listener.
func (m *Metrics) Serve(ctx context.Context, listener net.Listener) error {
	mux := http.NewServeMux()
	mux.Handle("GET "+Path, m.Handler())
	server := &http.Server{
		Handler:           mux,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       5 * time.Second,
		WriteTimeout:      scrapeTimeout + 10*time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    16 << 10,
	}
	if err := httpserve.Until(ctx, server, listener, shutdownTimeout); err != nil {
		return fmt.Errorf("serve metrics on %s: %w", listener.Addr(), err)
	}
	return nil
}
