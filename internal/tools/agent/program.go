// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/host/hostnet"
)

// program is the agent's eBPF programs, loaded into the kernel: one that undoes the balancer's changes at the ingress,
// and one that clamps the MSS at the egress.
type program struct {
	collection *ebpf.Collection
	ingress    *ebpf.Program
	egress     *ebpf.Program
	addresses  *ebpf.Map
	counts     *ebpf.Map
}

// modeBits are the modes that the program supports.
var modeBits = map[lb.Mode]tcAgentMode{
	lb.IPIP: tcAgentModeAGENT_MODE_IPIP,
	lb.GUE:  tcAgentModeAGENT_MODE_GUE,
	lb.DSCP: tcAgentModeAGENT_MODE_DSCP,
}

// load loads the programs for the modes, marks and MSS of opt into the kernel. It attaches nothing. Errors:
// hostnet.ErrNoRights, ErrUnsupported.
func load(opt Options) (*program, error) {
	spec, err := loadTc()
	if err != nil {
		return nil, fmt.Errorf("read the embedded eBPF program: %w", err)
	}
	if err := spec.Variables[tcVarLoaded].Set(settings(opt)); err != nil {
		return nil, fmt.Errorf("set the eBPF program's constants: %w", err)
	}
	// Kernels before 5.11 charge maps to a limit that is small by default. If raising it is denied, loading reports
	// that itself.
	_ = rlimit.RemoveMemlock()
	collection, err := ebpf.NewCollection(spec)
	if err != nil {
		return nil, loadError(err)
	}
	return &program{
		collection: collection,
		ingress:    collection.Programs[tcProgJeoulAgent],
		egress:     collection.Programs[tcProgJeoulAgentMss],
		addresses:  collection.Maps[tcMapAgentAddresses],
		counts:     collection.Maps[tcMapAgentCounts],
	}, nil
}

// settings returns the program's constants. Addresses are in network byte order.
func settings(opt Options) tcAgentSettings {
	s := tcAgentSettings{Mss: uint32(opt.MSS)}
	for _, mode := range opt.Modes {
		if bit, ok := modeBits[mode]; ok {
			s.Modes |= 1 << bit
		}
	}
	for _, mark := range opt.Marks {
		if mark.VIP.Is4() {
			address := mark.VIP.As4()
			s.DscpVip4[mark.Point] = binary.NativeEndian.Uint32(address[:])
			continue
		}
		address := mark.VIP.As16()
		for i := range s.DscpVip6[mark.Point].Word {
			s.DscpVip6[mark.Point].Word[i] = binary.NativeEndian.Uint32(address[4*i:])
		}
	}
	return s
}

// loadError names the usual reasons why the kernel rejects a program.
func loadError(err error) error {
	// The verifier's rejection has the same error number as a missing right, and is a bug in the program, not the
	// user's fault.
	if refusal := (*ebpf.VerifierError)(nil); errors.As(err, &refusal) && len(refusal.Log) > 0 {
		return fmt.Errorf("load the eBPF program: %w: the verifier refused it: %v", ErrUnsupported, err)
	}
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("load the eBPF program: %w (%v), and with CAP_BPF", hostnet.ErrNoRights, err)
	}
	if errors.Is(err, ebpf.ErrNotSupported) {
		return fmt.Errorf("load the eBPF program: %w: %v", ErrUnsupported, err)
	}
	return fmt.Errorf("load the eBPF program: %w", err)
}

func (p *program) close() { p.collection.Close() }
