// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

// Pass is an XDP program that passes every packet, on interfaces whose peer is a port of a tester: without a program
// there, a veth loses the port's frames.
type Pass struct {
	program *ebpf.Program
	devices []*device
}

// NewPass attaches the program to interfaces. The caller must close the Pass. Errors: ErrPort.
func NewPass(ports []Port) (*Pass, error) {
	const xdpPass = 2 // linux/bpf.h
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "wire_pass", Type: ebpf.XDP, License: "Dual BSD/GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, xdpPass), asm.Return()}})
	if err != nil {
		return nil, fmt.Errorf("loading a program that lets everything pass: %w", err)
	}
	p := &Pass{program: program}
	for _, port := range ports {
		d, err := port.find()
		if err == nil {
			err = d.attach(program)
		}
		if err != nil {
			return nil, errors.Join(err, p.Close())
		}
		p.devices = append(p.devices, d)
	}
	return p, nil
}

// Close detaches the program.
func (p *Pass) Close() error {
	var errs []error
	for _, d := range p.devices {
		errs = append(errs, d.detach())
	}
	return errors.Join(append(errs, p.program.Close())...)
}
