// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"net"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
)

// wireSwitch is the switch of a lab for loads of packets ([Spec.Wire]).
type wireSwitch struct {
	objects labWireObjects
	hosts   []*Host
}

// wireMAC is what the MAC addresses of all hosts have in common, and which bytes
// those are: see hostMAC. The program takes the others for the port's place.
var (
	wireMAC     = hostMAC(0, 0)
	wireMACBits = net.HardwareAddr{0xff, 0xff, 0xff, 0, 0xff, 0}
)

// wirePlace is the place of a host's port in the program's table.
func wirePlace(mac net.HardwareAddr) uint32 { return uint32(mac[3])<<8 | uint32(mac[5]) }

// newWireSwitch plugs the hosts in. It runs inside the switch.
func newWireSwitch(hosts []*Host) (*wireSwitch, error) {
	spec, err := loadLabWire()
	if err != nil {
		return nil, fmt.Errorf("read the switch's program: %w", err)
	}
	bits := macKey(wireMACBits)
	if err := errors.Join(spec.Variables["common_bits"].Set(bits), spec.Variables["common_values"].Set(macKey(wireMAC)&bits)); err != nil {
		return nil, fmt.Errorf("set up the switch's program: %w", err)
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
	if err := s.objects.Ports.Put(wirePlace(h.MAC), uint32(port.Attrs().Index)); err != nil {
		return err
	}
	return attachXDP(h.Port, s.objects.LabWire.FD())
}

// close forgets the program, which stays with the ports as long as they live.
func (s *wireSwitch) close() error { return s.objects.Close() }

// program is what a port has while nothing else is on it.
func (s *wireSwitch) program() *ebpf.Program { return s.objects.LabWire }
