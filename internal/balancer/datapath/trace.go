// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"net/netip"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/capture"
	"github.com/jeoul/jeoul/internal/balancer/datapath/flowtable"
	"github.com/jeoul/jeoul/internal/balancer/datapath/generation"
	"github.com/jeoul/jeoul/internal/balancer/datapath/loader"
	"github.com/jeoul/jeoul/internal/balancer/datapath/mapmem"
	"github.com/jeoul/jeoul/internal/balancer/datapath/sharedmaps"
	"github.com/jeoul/jeoul/internal/balancer/datapath/traced"
)

// tracing is what a program that tells of packets is loaded with. A nil *tracing stands for the plain program.
type tracing struct {
	*traced.Tracing
	// captures are those that run.
	captures []*liveCapture
}

// liveCapture is a capture, or a live trace, that runs.
type liveCapture struct {
	*traced.Capture
	of      *tracing
	request capture.Request
}

// maps returns what programs are loaded with; nil for the plain program.
func (t *tracing) maps() *traced.Tracing {
	if t == nil {
		return nil
	}
	return t.Tracing
}

// untilAfter is how long after its end the data plane takes packets for a capture that no process ends.
const untilAfter = time.Minute

// windowSeconds is a window of a capture's rate, in seconds: 2^CAPTURE_WINDOW ns.
const windowSeconds = float64(1<<27) / 1e9

// filterOf writes a request as the program reads it, but for numbers of this configuration. Error:
// capture.ErrBadRequest.
func filterOf(r capture.Request) (traced.XdpCaptureFilter, error) {
	f := traced.XdpCaptureFilter{
		Sample: r.Sample, MostPackets: r.Packets, MostBytes: r.Bytes,
		ClientPort: mapmem.NetworkOrder(r.SourcePort), VipPort: mapmem.NetworkOrder(r.DestinationPort),
		Protocol: uint8(r.Protocol), Family: uint8(r.Family), Snap: uint32(r.SnapLength()),
		Until: uint64(flowtable.Monotonic() + r.For() + untilAfter),
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

// resolve looks up anew what captures name: a change may have given other numbers. A capture of a service that is gone
// takes none of its packets until it is back.
func (t *tracing) resolve(r *generation.Register) {
	if t == nil {
		return
	}
	for _, live := range t.captures {
		// It fails where there is no such service.
		_ = live.resolve(r)
	}
}

// resolve has a capture take the packets of the service and the backends that it names. Errors: capture.ErrNoService,
// and the kernel's.
func (c *liveCapture) resolve(r *generation.Register) error {
	if c.request.Service == "" {
		return c.Take(nil, nil)
	}
	services, backends, err := numbersOf(r, c.request.Service, c.request.Backend)
	return errors.Join(err, c.Take(services, backends))
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
		return nil, nil, capture.Missing("service", service, services)
	case backend != "" && len(indices) == 0:
		return nil, nil, capture.Missing("backend of "+service, backend, backends)
	}
	return ids, indices, nil
}

// reload loads the program again, as d.tracing wants it now, and puts that in place of
// what forwards. Its memory stays. On an error, what forwards goes on.
func (d *Datapath) reload() error {
	last := d.current
	made, err := d.install(last.Ports, d.hook, func(kind loader.Kind) (*loader.Programs, error) {
		return d.load(kind, last.Ports, last.Memory, d.shared)
	})
	if err != nil {
		return err
	}
	d.current = made
	d.keeper.RemoveOld(made)
	last.Close()
	return nil
}

// ready says why there is nothing to trace yet, or no more.
func (d *Datapath) ready() error {
	if d.closed {
		return ErrClosed
	}
	if d.current == nil {
		return errors.New("the balancer has no configuration yet")
	}
	return nil
}
