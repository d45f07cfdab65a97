// SPDX-License-Identifier: Apache-2.0

package l2switch

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"

	"github.com/jeoul/jeoul/internal/weigh/lab/netdev"
)

// Wires is the switch of a lab for loads of packets (lab.Spec.Wire).
type Wires struct {
	objects labWireObjects
}

// NewWires attaches the program to the hosts' ports. It runs inside the switch.
func NewWires(ports []Port) (*Wires, error) {
	spec, err := loadLabWire()
	if err != nil {
		return nil, fmt.Errorf("read the switch's program: %w", err)
	}
	if err := numberPorts(spec); err != nil {
		return nil, err
	}
	s := &Wires{}
	if err := spec.LoadAndAssign(&s.objects, nil); err != nil {
		return nil, fmt.Errorf("load the switch's program: %w", err)
	}
	for _, h := range ports {
		if err := s.addPort(h); err != nil {
			return nil, errors.Join(fmt.Errorf("plug %s into the switch: %w", h.Host, err), s.Close())
		}
	}
	return s, nil
}

func (s *Wires) addPort(h Port) error {
	port, err := netlink.LinkByName(h.Name)
	if err != nil {
		return err
	}
	if err := s.objects.Ports.Put(portPlace(h.MAC), uint32(port.Attrs().Index)); err != nil {
		return err
	}
	return netdev.AttachXDP(h.Name, s.objects.LabWire.FD())
}

// Close closes the program's descriptors; the program stays on the ports as long as they exist.
func (s *Wires) Close() error { return s.objects.Close() }

// Program is the XDP program of a port while no other program is on it.
func (s *Wires) Program() *ebpf.Program { return s.objects.LabWire }
