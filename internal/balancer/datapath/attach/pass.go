// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/jeoul/jeoul/internal/balancer/datapath/libxdp"
	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
)

// PassProgram loads an XDP program that passes everything, and that ours can replace in a change to XDP, or that can
// replace ours in a change from it.
func PassProgram(to, from Method, ports []Port) (*ebpf.Program, error) {
	if to.Dispatched || from.Dispatched {
		return dispatcherPassProgram(ports)
	}
	return PassXDP()
}

// PassXDP loads an XDP program that passes everything.
func PassXDP() (*ebpf.Program, error) {
	spec, err := objects.XDP.Spec()
	if err != nil {
		return nil, fmt.Errorf("reading the embedded eBPF program: %v", err)
	}
	template := spec.Programs[objects.XDPProgJeoulXdp]
	const xdpPass = 2
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "jeoul_pass", Type: template.Type, AttachType: template.AttachType,
		Flags: template.Flags, License: template.License,
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, xdpPass), asm.Return()}})
	if err != nil {
		return nil, LoadError(err)
	}
	return program, nil
}

// dispatcherPassProgram loads a program for dispatchers that passes everything.
func dispatcherPassProgram(ports []Port) (*ebpf.Program, error) {
	target, err := libxdp.TargetOf(ports[0].Index)
	if err != nil {
		return nil, err
	}
	defer target.Close()
	return target.Pass()
}
