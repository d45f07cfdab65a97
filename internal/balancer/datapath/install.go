// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"slices"
	"syscall"

	"github.com/cilium/ebpf"

	"github.com/jeoul/jeoul/internal/balancer/datapath/libxdp"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// loader makes a generation of one of the programs.
type loader func(programKind) (*generation, error)

// install loads a generation and puts it in the place of the current one.
func (d *Datapath) install(ports []port, wish lb.Hook, load loader) (*generation, error) {
	switch {
	case d.detached:
		return load(d.programs(d.attachments[0].Hook))
	case d.holds == nil:
		return d.installFirst(ports, wish, load)
	case wish != d.hook || !slices.EqualFunc(ports, d.current.ports, port.sameInterface):
		return d.rehook(ports, wish, load)
	}
	made, _, err := d.renew(ports, load)
	return made, err
}

// renew loads a generation and puts it to work by the way that is in use. The lack that it
// returns with an error says why another way may do.
func (d *Datapath) renew(ports []port, load loader) (made *generation, lack string, err error) {
	kind := d.kindOf(d.way)
	kind.unspecific = d.unspecific
	made, lack, err = d.loadAndReach(kind, ports, load)
	if err == nil || !d.current.adopted || !errors.Is(err, syscall.EINVAL) {
		return made, lack, err
	}
	// The links take the program of the other attach type: see programKind.
	kind.unspecific = !kind.unspecific
	made, lack, err = d.loadAndReach(kind, ports, load)
	if err == nil {
		d.unspecific = kind.unspecific
	}
	return made, lack, err
}

func (d *Datapath) loadAndReach(kind programKind, ports []port, load loader) (*generation, string, error) {
	made, err := load(kind)
	if err != nil {
		return nil, "", err
	}
	lack, err := d.reach(ports, made)
	if err != nil {
		made.close()
		return nil, lack, err
	}
	return made, "", nil
}

// installFirst attaches, and removes what a killed balancer left, unless its
// place was taken: until then the packets of its connections are in good hands.
func (d *Datapath) installFirst(ports []port, wish lb.Hook, load loader) (*generation, error) {
	made, used, err := d.attachFirst(ports, wish, load)
	if used == tcFilter {
		return made, nil
	}
	left := removeFilters(ports)
	if left != nil && err == nil {
		left = errors.Join(left, d.detach())
		made.close()
	}
	if err := errors.Join(err, left); err != nil {
		return nil, err
	}
	return made, nil
}

// attachFirst tries the ways to attach in turn, and returns the one that it took,
// if any. One way serves all interfaces.
func (d *Datapath) attachFirst(ports []port, wish lb.Hook, load loader) (*generation, way, error) {
	var lacks []string
	var last error
	for _, a := range d.ways(wish, ports) {
		made, err := load(d.kindOf(a.way))
		if a.way.dispatched && errors.Is(err, libxdp.ErrUnsupported) {
			last = cannotJoin(err, ports)
			lacks = append(lacks, lackOfXDP(ports))
			continue
		}
		if err != nil {
			return nil, way{}, err
		}
		holds, refused, err := d.attachAll(made.programs, ports, a.way)
		if err == nil {
			if err = d.showTags(ports, a.way); err == nil {
				d.holds, d.attachments = holds, attachments(ports, a.way, a.because(lacks))
				d.hook, d.way = wish, a.way
				return made, a.way, nil
			}
			made.close()
			last = errors.Join(err, closeAll(holds), d.hideTags(nil))
			lacks = append(lacks, err.Error())
			continue
		}
		made.close()
		last = attachError(err, refused, a.way)
		if wish == lb.HookAuto && a.way.hook == lb.HookXDP && heldByAnother(err, refused) {
			lacks = append(lacks, lackOfXDP([]port{refused}))
			continue
		}
		if !unsupported(err) {
			break
		}
		lacks = append(lacks, a.way.lack(refused))
	}
	return nil, way{}, last
}

// swapAll puts programs in the place of those before. If one interface refuses, those
// that have the new program get the old one again.
func swapAll(holds []hold, ports []port, to, from []*ebpf.Program) error {
	for i, h := range holds {
		err := h.Update(to[i])
		if err == nil {
			continue
		}
		err = fmt.Errorf("swapping the program on %s (the old one goes on): %w", ports[i].name, err)
		for back := range i {
			if again := holds[back].Update(from[back]); again != nil {
				err = errors.Join(err, fmt.Errorf("swapping back the program on %s (it has the new one now): %v", ports[back].name, again))
			}
		}
		return err
	}
	return nil
}
