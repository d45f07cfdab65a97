// SPDX-License-Identifier: Apache-2.0

// Package ipvsadm reads the configuration of IPVS: the rules that ipvsadm-save prints, and command lines of ipvsadm(8).
package ipvsadm

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/google/shlex"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/move/importer/draft"
	"github.com/jeoul/jeoul/internal/move/remark"
)

// reader reads one input.
type reader struct {
	*draft.Draft
	services map[string]*service
	order    []*service
}

// service is a virtual service of IPVS.
type service struct {
	*draft.Service
	// spec is the service's address or mark as the input writes it.
	spec string
	// scheduler is the name of IPVS's scheduler, and flags are its flags.
	scheduler, flags string
	at               remark.At
	// places has each backend's index in the list.
	places map[netip.AddrPort]int
	// dropped: a later command deletes the service.
	dropped bool
}

// Read reads a file into a draft.
func Read(d *draft.Draft, file draft.File) error {
	lines, err := d.Lines(file)
	if err != nil {
		return err
	}
	if err := d.CheckDialect(lines); err != nil {
		return err
	}
	r := &reader{Draft: d, services: map[string]*service{}}
	for _, line := range lines {
		if !line.Blank("#") {
			r.line(line)
		}
	}
	r.finish()
	return nil
}

// line reads a command.
func (r *reader) line(line draft.Line) {
	words, err := shlex.Split(line.Text)
	if err != nil {
		r.Left(line.At, "a quotation that does not end; look at it by hand")
		return
	}
	words = command(words)
	if len(words) == 0 {
		r.Left(line.At, "no command of ipvsadm; look at it by hand")
		return
	}
	o, err := parse(words)
	if err != nil {
		r.Left(line.At, "%v; look at it by hand", err)
		return
	}
	r.run(line.At, o)
}

// command returns the words after the program's name, or nil for another program.
func command(words []string) []string {
	for len(words) > 0 && (words[0] == "sudo" || words[0] == "$") {
		words = words[1:]
	}
	if len(words) > 0 && (words[0] == "ipvsadm" || strings.HasSuffix(words[0], "/ipvsadm")) {
		words = words[1:]
	}
	if len(words) == 0 || !strings.HasPrefix(words[0], "-") {
		return nil
	}
	return words
}

// run executes a command on the services read so far.
func (r *reader) run(at remark.At, o options) {
	switch o.command {
	case "A", "E":
		r.setService(at, o)
	case "a", "e":
		r.setServer(at, o)
	case "D":
		if s := r.of(at, o); s != nil {
			s.dropped = true
			delete(r.services, s.spec)
			r.Carry(at)
		}
	case "d":
		r.deleteServer(at, o)
	case "C":
		for _, s := range r.order {
			s.dropped = true
		}
		clear(r.services)
		r.Carry(at)
	case "set":
		r.setTimeouts(at, o)
	case "start-daemon":
		r.Left(at, "balancers tell each other of flows as members: write members, with their addresses and a key of `jeoul members key`, which the rules do not have")
	default:
		r.Needless(at, "configures nothing")
	}
}

// of returns the service that a command names. If there is none, it leaves the command out.
func (r *reader) of(at remark.At, o options) *service {
	s, known := r.services[o.kind+o.service]
	switch {
	case known:
		return s
	case o.kind == "f":
		r.Left(at, "of a service by firewall mark, which is left out")
	case o.kind == "sctp":
		r.Left(at, "of a service of SCTP, which is left out")
	default:
		r.Left(at, "names the service %s, which no line before it adds, or which is left out", o.service)
	}
	return nil
}

// deleteServer removes a backend.
func (r *reader) deleteServer(at remark.At, o options) {
	s := r.of(at, o)
	if s == nil {
		return
	}
	b, err := r.server(s, o)
	place := netip.AddrPortFrom(b.Address, b.Port)
	j, there := s.places[place]
	if err != nil || !there {
		r.Left(at, "names the backend %s, which no line before it adds", o.server)
		return
	}
	s.Backends, s.BackendAt = slices.Delete(s.Backends, j, j+1), slices.Delete(s.BackendAt, j, j+1)
	delete(s.places, place)
	for place, k := range s.places {
		if k > j {
			s.places[place]--
		}
	}
	r.Carry(at)
}

// finish puts the services that remain after all commands into the draft.
func (r *reader) finish() {
	for _, s := range r.order {
		if !s.dropped {
			if s.Protocol == lb.UDP && r.Timeouts.UDP == 0 {
				r.Idle(s.at, lb.UDP, UsualUDP)
			}
			Schedule(r.Draft, s.Service, s.at, s.scheduler, s.flags)
			r.Services = append(r.Services, s.Service)
		}
	}
}
