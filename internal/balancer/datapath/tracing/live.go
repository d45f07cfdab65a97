// SPDX-License-Identifier: Apache-2.0

package tracing

import (
	"errors"
	"net/netip"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/capture"
	"github.com/jeoul/jeoul/internal/balancer/datapath/flowtable"
	"github.com/jeoul/jeoul/internal/balancer/datapath/generation"
	"github.com/jeoul/jeoul/internal/balancer/datapath/mapmem"
	"github.com/jeoul/jeoul/internal/balancer/datapath/sharedmaps"
	"github.com/jeoul/jeoul/internal/balancer/datapath/traced"
)

// Loaded has the maps of a traced program, and the running captures. A nil *Loaded is the plain program.
type Loaded struct {
	*traced.Tracing
	// Live are the running captures.
	Live []*Capture
}

// Capture is a running capture or live trace.
type Capture struct {
	*traced.Capture
	Loaded  *Loaded
	Request capture.Request
}

// Maps returns the maps of traced programs; nil for the plain program.
func (t *Loaded) Maps() *traced.Tracing {
	if t == nil {
		return nil
	}
	return t.Tracing
}

// overrunLimit is for how long after its end the data plane still captures packets if no process stops the capture.
const overrunLimit = time.Minute

// windowSeconds is a window of a capture's rate, in seconds: 2^CAPTURE_WINDOW ns.
const windowSeconds = float64(1<<27) / 1e9

// FilterOf translates a request into the program's filter, without the numbers of services and backends. Error:
// capture.ErrBadRequest.
func FilterOf(r capture.Request) (traced.XdpCaptureFilter, error) {
	f := traced.XdpCaptureFilter{
		Sample: r.Sample, MostPackets: r.Packets, MostBytes: r.Bytes,
		ClientPort: mapmem.NetworkOrder(r.SourcePort), VipPort: mapmem.NetworkOrder(r.DestinationPort),
		Protocol: uint8(r.Protocol), Family: uint8(r.Family), Snap: uint32(r.SnapLength()),
		Until: uint64(flowtable.Monotonic() + r.For() + overrunLimit),
	}
	if r.Service != "" {
		f.ByService = 1
	}
	if r.Backend != "" {
		f.ByBackend = 1
	}
	if r.Rate > 0 {
		f.Rate = max(1, uint32(float64(r.Rate)*windowSeconds))
	}
	for _, end := range []struct {
		prefix     netip.Prefix
		wanted, at *[4]uint32
	}{{r.Source, &f.Client, &f.ClientMask}, {r.Destination, &f.Vip, &f.VipMask}} {
		if !end.prefix.IsValid() {
			continue
		}
		f.Family = 6
		if end.prefix.Addr().Is4() {
			f.Family = 4
		}
		*end.wanted = mapmem.OfAddress(end.prefix.Masked().Addr())
		*end.at = generation.MaskWords(end.prefix)
	}
	names, err := sharedmaps.OutcomeNames()
	if err != nil {
		return f, err
	}
	f.Outcomes, err = capture.OutcomeBits(r.Outcomes, names)
	return f, err
}

// Resolve looks up the services and backends of captures again: a change may have renumbered them. A capture of a
// removed service captures no packets until the service is added again.
func (t *Loaded) Resolve(r *generation.Register) {
	if t == nil {
		return
	}
	for _, live := range t.Live {
		// An error means that there is no such service.
		_ = live.Resolve(r)
	}
}

// Resolve makes a capture match the packets of its service and backends. Errors: capture.ErrNoService, and those of the
// kernel.
func (c *Capture) Resolve(r *generation.Register) error {
	if c.Request.Service == "" {
		return c.Start(nil, nil, netip.AddrPort{})
	}
	services, backends, err := numbersOf(r, c.Request.Service, c.Request.Backend)
	return errors.Join(err, c.Start(services, backends, addressOf(r, c.Request.Service)))
}

// addressOf returns the address and port of the services of a name, invalid if they differ.
func addressOf(r *generation.Register, service string) (at netip.AddrPort) {
	for _, record := range r.Records {
		if record.Service.Name != service {
			continue
		}
		one := netip.AddrPortFrom(record.Service.VIP, record.Service.Port)
		if at.IsValid() && at != one {
			return netip.AddrPort{}
		}
		at = one
	}
	return at
}

// numbersOf returns the ids of a service and of its hairpin, and the indices of its backends of a name, or of all.
// Error: capture.ErrNoService.
func numbersOf(r *generation.Register, service, backend string) (ids, indices []uint32, err error) {
	var services, backends []string
	for _, record := range r.Records {
		services = append(services, record.Service.Name)
		if record.Service.Name != service {
			continue
		}
		ids = append(ids, record.ID)
		for i, b := range record.Service.Backends {
			backends = append(backends, b.Name)
			if backend == "" || b.Name == backend {
				indices = append(indices, record.Places[i].Index)
			}
		}
	}
	switch {
	case len(ids) == 0:
		return nil, nil, capture.NotFound("service", service, services)
	case backend != "" && len(indices) == 0:
		return nil, nil, capture.NotFound("backend of "+service, backend, backends)
	}
	return ids, indices, nil
}
