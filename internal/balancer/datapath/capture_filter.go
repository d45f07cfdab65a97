// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/cilium/ebpf"

	"github.com/jeoul/jeoul/internal/balancer/capture"
	"github.com/jeoul/jeoul/internal/text/nearest"
)

// captureWindow is a window of a capture's rate, in seconds: 2^CAPTURE_WINDOW ns.
const captureWindow = float64(1<<27) / 1e9

// noServiceID is the id plus 1 of no service.
const noServiceID = 0xffffffff

// numbered writes a request as the program reads it, but for what resolve and portOf look up.
func numbered(r capture.Request) (tracedXdpCaptureFilter, error) {
	f := tracedXdpCaptureFilter{
		Sample: r.Sample, Until: monotonicNow() + uint64(untilBound), MostPackets: r.Packets, MostBytes: r.Bytes,
		ClientPort: networkOrder(r.SourcePort), VipPort: networkOrder(r.DestinationPort),
		Protocol: uint8(r.Protocol), Family: uint8(r.Family), Snap: uint32(r.Snap),
		ByService: flagOf(r.Service != ""), ByBackend: flagOf(r.Backend != ""),
		Rate: uint32(float64(r.Rate)*captureWindow) + flagOf32(r.Rate > 0),
	}
	if r.For() > 0 {
		if r.Snap == 0 {
			f.Snap = capture.HeaderSnap
		}
		f.Until = monotonicNow() + uint64(r.For()) + uint64(untilBound-capture.MaxFor)
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
		*end.wanted = addressWords(end.prefix.Masked().Addr())
		*end.at = maskWords(end.prefix)
	}
	var err error
	f.Outcomes, err = outcomeBits(r.Outcomes)
	return f, err
}

// portOf returns the index of the interface that a request names, 0 where it names none. Error: capture.ErrBadRequest.
func (d *Datapath) portOf(r capture.Request) (uint32, error) {
	if r.Interface == "" {
		return 0, nil
	}
	at, err := portNamed(d.current.ports, r.Interface)
	if err != nil {
		return 0, fmt.Errorf("%w: %v", capture.ErrBadRequest, err)
	}
	return uint32(d.current.ports[at].index), nil
}

func flagOf(is bool) uint8 {
	if is {
		return 1
	}
	return 0
}

func flagOf32(is bool) uint32 { return uint32(flagOf(is)) }

// outcomeBits has a bit for each outcome that one of the words is the name of, or that begins with it. No words stand
// for all. Error: capture.ErrBadRequest.
func outcomeBits(words []string) (bits uint64, err error) {
	if len(words) == 0 {
		return ^uint64(0), nil
	}
	names, err := outcomeNames()
	if err != nil {
		return 0, err
	}
	var known []string
	for _, name := range names {
		group, _, _ := strings.Cut(name, "_")
		known = append(known, group, name)
	}
	for _, word := range words {
		found := false
		for number, name := range names {
			if name == word || strings.HasPrefix(name, word+"_") {
				bits |= 1 << number
				found = true
			}
		}
		if found {
			continue
		}
		hint := ""
		if near := nearest.Word(word, known); near != "" {
			hint = fmt.Sprintf("; did you mean %s?", near)
		}
		slices.Sort(known)
		return 0, fmt.Errorf("%w: there is no outcome %q%s The outcomes are %s", capture.ErrBadRequest, word, hint,
			strings.Join(slices.Compact(known), ", "))
	}
	return bits, nil
}

// resolve looks up names anew in all filters: a change may have given other numbers. A capture of a service that is gone
// takes none of its packets until it is back.
func (t *tracing) resolve(r *register) {
	if t == nil {
		return
	}
	for _, c := range t.slots {
		if c != nil && !c.stopped {
			// It fails where there is no such service, or the map is full, which it was not at the start.
			_ = c.resolve(r)
		}
	}
}

// resolve writes the filter with the numbers of the service and the backends that it names. Errors: capture.ErrNoService, and
// the kernel's.
func (c *liveCapture) resolve(r *register) error {
	var err error
	var backends []uint32
	if c.request.Service != "" {
		var services []uint32
		services, backends, err = r.numbersOf(c.request.Service, c.request.Backend)
		c.filter.Services = [2]uint32{noServiceID, noServiceID}
		copy(c.filter.Services[:], services)
	}
	return errors.Join(err, c.putBackends(backends), c.of.write())
}

// numbersOf returns the ids plus 1 of a service and of its hairpin, and the indices of its backends of a name, or of all.
// Error: capture.ErrNoService.
func (r *register) numbersOf(service, backend string) (ids, indices []uint32, err error) {
	var services, backends []string
	for _, record := range r.records {
		services = append(services, record.service.Name)
		if record.service.Name != service {
			continue
		}
		ids = append(ids, record.id+1)
		for i, b := range record.service.Backends {
			backends = append(backends, b.Name)
			if backend == "" || b.Name == backend {
				indices = append(indices, record.places[i].index)
			}
		}
	}
	switch {
	case len(ids) == 0:
		return nil, nil, missing("service", service, services)
	case backend != "" && len(indices) == 0:
		return nil, nil, missing("backend of "+service, backend, backends)
	}
	return ids, indices, nil
}

// missing says that there is none of a name, and which there are.
func missing(what, name string, names []string) error {
	slices.Sort(names)
	names = slices.Compact(names)
	more := ""
	if len(names) > mostServices {
		more = fmt.Sprintf(", and %d more", len(names)-mostServices)
	}
	hint := ""
	if near := nearest.Word(name, names); near != "" {
		hint = fmt.Sprintf("; did you mean %s?", near)
	}
	return fmt.Errorf("%w: no %s is named %q%s; there are: %s%s", capture.ErrNoService, what, name, hint,
		strings.Join(names[:min(len(names), mostServices)], ", "), more)
}

// putBackends writes which backends' packets the capture takes, in place of those that it took.
func (c *liveCapture) putBackends(indices []uint32) error {
	m := c.of.maps[tracedXdpMapCaptureBackends]
	bit := uint32(1) << c.slot
	change := func(index uint32, with func(uint32) uint32) error {
		var slots uint32
		if err := m.Lookup(index, &slots); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("reading the backends of captures: %v", err)
		}
		if slots = with(slots); slots == 0 {
			if err := m.Delete(index); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
				return fmt.Errorf("removing a backend of a capture: %v", err)
			}
			return nil
		}
		if err := m.Put(index, slots); err != nil {
			return fmt.Errorf("writing a backend of a capture: %v", err)
		}
		return nil
	}
	var errs []error
	for _, index := range c.backends {
		if !slices.Contains(indices, index) {
			errs = append(errs, change(index, func(s uint32) uint32 { return s &^ bit }))
		}
	}
	for _, index := range indices {
		errs = append(errs, change(index, func(s uint32) uint32 { return s | bit }))
	}
	c.backends = indices
	return errors.Join(errs...)
}
