// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
)

// loader makes a generation of one of the programs.
type loader func(programKind) (*generation, error)

// install loads a generation and puts it in the place of the current one.
func (d *Datapath) install(ports []port, load loader) (*generation, error) {
	if d.holds == nil && !d.detached {
		return d.installFirst(ports, load)
	}
	made, err := load(programOf(d.attachments[0].Hook))
	if err != nil || d.detached {
		return made, err
	}
	if err := d.swap(ports, made); err != nil {
		made.close()
		return nil, err
	}
	return made, nil
}

// installFirst attaches, and removes what a killed balancer left, unless its
// place was taken: until then the packets of its connections are in good hands.
func (d *Datapath) installFirst(ports []port, load loader) (*generation, error) {
	made, used, err := d.attachFirst(ports, load)
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
func (d *Datapath) attachFirst(ports []port, load loader) (*generation, way, error) {
	var lacks []string
	var last error
	for _, a := range d.ways(d.options.Hook, ports) {
		made, err := load(programOf(a.way.hook))
		if err != nil {
			return nil, way{}, err
		}
		holds, refused, err := attachAll(made.programs, ports, a.way)
		if err == nil {
			if err = d.showTags(ports, a.way); err == nil {
				d.holds, d.attachments = holds, attachments(ports, a.way, a.because(lacks))
				return made, a.way, nil
			}
			made.close()
			last = errors.Join(err, closeAll(holds))
			lacks = append(lacks, err.Error())
			continue
		}
		made.close()
		last = attachError(err, refused, a.way)
		if !unsupported(err) {
			break
		}
		lacks = append(lacks, a.way.lack(refused))
	}
	return nil, way{}, last
}

// swap puts the programs of a new generation in the place of the old ones. If
// one interface refuses, those that have the new program get the old one again.
func (d *Datapath) swap(ports []port, made *generation) error {
	for i, h := range d.holds {
		err := h.Update(made.programs[i])
		if err == nil {
			continue
		}
		err = fmt.Errorf("swapping the program on %s (the old one goes on): %v", ports[i].name, err)
		for back := range i {
			if again := d.holds[back].Update(d.current.programs[back]); again != nil {
				err = errors.Join(err, fmt.Errorf("swapping back the program on %s (it has the new one now): %v", ports[back].name, again))
			}
		}
		return err
	}
	return nil
}
