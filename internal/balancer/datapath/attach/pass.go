// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/jeoul/jeoul/internal/balancer/datapath/libxdp"
	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
)

// PassProgram makes an XDP program that passes everything and can be exchanged for ours on the path to XDP, or from it.
func PassProgram(to, from Method, ports []Port) (*ebpf.Program, error) {
	if to.Dispatched || from.Dispatched {
		return dispatcherPassProgram(ports)
	}
	return PassXDP()
}

func PassXDP() (*ebpf.Program, error) {
	spec, err := objects.XDP.Spec()
	if err != nil {
		return nil, fmt.Errorf("reading the embedded eBPF program: %v", err)
	}
	like := spec.Programs[objects.XDPProgJeoulXdp]
	const xdpPass = 2
	made, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "jeoul_pass", Type: like.Type, AttachType: like.AttachType,
		Flags: like.Flags, License: like.License,
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, xdpPass), asm.Return()}})
	if err != nil {
		return nil, LoadError(err)
	}
	return made, nil
}

// dispatcherPassProgram makes a program for dispatchers that passes everything.
func dispatcherPassProgram(ports []Port) (*ebpf.Program, error) {
	target, err := libxdp.TargetOf(ports[0].Index)
	if err != nil {
		return nil, err
	}
	defer target.Close()
	return target.Pass()
}
