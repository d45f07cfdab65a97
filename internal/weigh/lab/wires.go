// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"

	"github.com/jeoul/jeoul/internal/weigh/lab/netdev"
)

// wireSwitch is the switch of a lab for loads of packets ([Spec.Wire]).
type wireSwitch struct {
	objects labWireObjects
	hosts   []*Host
}

// newWireSwitch plugs the hosts in. It runs inside the switch.
func newWireSwitch(hosts []*Host) (*wireSwitch, error) {
	spec, err := loadLabWire()
	if err != nil {
		return nil, fmt.Errorf("read the switch's program: %w", err)
	}
	if err := numberPorts(spec); err != nil {
		return nil, err
	}
	s := &wireSwitch{hosts: hosts}
	if err := spec.LoadAndAssign(&s.objects, nil); err != nil {
		return nil, fmt.Errorf("load the switch's program: %w", err)
	}
	for _, h := range hosts {
		if err := s.plug(h); err != nil {
			return nil, errors.Join(fmt.Errorf("plug %s into the switch: %w", h.Name, err), s.close())
		}
	}
	return s, nil
}

func (s *wireSwitch) plug(h *Host) error {
	port, err := netlink.LinkByName(h.Port)
	if err != nil {
		return err
	}
	if err := s.objects.Ports.Put(portPlace(h.MAC), uint32(port.Attrs().Index)); err != nil {
		return err
	}
	return netdev.AttachXDP(h.Port, s.objects.LabWire.FD())
}

// close forgets the program, which stays with the ports as long as they live.
func (s *wireSwitch) close() error { return s.objects.Close() }

// program is the XDP program of a port while nothing else is on it.
func (s *wireSwitch) program() *ebpf.Program { return s.objects.LabWire }
