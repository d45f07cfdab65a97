// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/jeoul/jeoul/internal/balancer/capture"
	"github.com/jeoul/jeoul/internal/balancer/datapath"
	"github.com/jeoul/jeoul/internal/balancer/events"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/balancer/trace"
)

// loggedTrace is the daemon's part: it says in its log when packets are traced,
// for that slows them down.
func loggedTrace(d *datapath.Datapath, log *slog.Logger) func(context.Context, trace.Filter,
	func(trace.Event) error) error {
	return func(ctx context.Context, filter trace.Filter, notify func(trace.Event) error) error {
		err := d.Trace(ctx, filter, func(event trace.Event) error {
			if event.Started {
				log.Info("tracing packets for a client")
			}
			return notify(event)
		})
		if !errors.Is(err, trace.ErrBusy) && !errors.Is(err, trace.ErrBadQuestion) {
			log.Info("the trace has ended")
		}
		return err
	}
}

// loggedCapture is the daemon's part of a capture: its log and events say when one begins and ends, and for whom.
// Status says which services the data plane does not serve.
func loggedCapture(d *datapath.Datapath, status func() (ops.Status, error), log *slog.Logger) func(context.Context,
	capture.Request, string, func(capture.Event) error) error {
	return func(ctx context.Context, request capture.Request, by string, notify func(capture.Event) error) error {
		about := events.About{Kind: events.KindCapture, Service: request.Service, Backend: request.Backend,
			By: by}.Attr()
		var id uint32
		err := d.Capture(ctx, request, func(event capture.Event) error {
			if s := event.Started; s != nil {
				id = s.ID
				log.Info(fmt.Sprintf("capture %d begins, for %s: %s; for %v, at most %d packets/s", id, by,
					s.Request.Describe(), s.Request.For(), s.Request.Rate), about)
			}
			if event.Ended != "" {
				c := event.Counts
				log.Info(fmt.Sprintf("capture %d ends, for %s (%s): %d packets, %d left out by the rate, %d lost", id,
					by, event.Ended, c.Captured, c.Limited, c.Lost), about)
				id = 0
			}
			return notify(event)
		})
		if id != 0 {
			log.Info(fmt.Sprintf("capture %d ends, for %s: the client has gone, or does not read", id, by), about)
		}
		if errors.Is(err, capture.ErrNoService) {
			return explainProxied(err, request.Service, status)
		}
		return err
	}
}

// explainProxied explains that packets of a service of mode proxy cannot be captured.
func explainProxied(err error, service string, status func() (ops.Status, error)) error {
	now, statusErr := status()
	if statusErr != nil {
		return err
	}
	for _, s := range now.Services {
		if s.Name == service && s.Mode.Proxied() {
			return fmt.Errorf(
				"%w: %s is of mode proxy: the kernel and HAProxy serve it at their sockets, and the data plane has no packet of it; "+
					"capture with tcpdump, or read `jeoul describe service %s`", capture.ErrNoService, service, service)
		}
	}
	return err
}
