// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// Errors of Options that callers may test for.
var (
	// ErrBadMark means that a code point, or the VIP that it stands for, cannot be used as a mark.
	ErrBadMark = errors.New("cannot be a mark")
	// ErrBadMSS means that an MSS is out of range.
	ErrBadMSS = errors.New("cannot be an MSS")
	// ErrBadMode means that a mode is not one that an agent serves.
	ErrBadMode = errors.New("is no mode of an agent")
)

// Mark is a DSCP code point, 1 to 63, and the VIP that it stands for: the dscp of the balancer's service.
type Mark struct {
	Point uint8
	VIP   netip.Addr
}

// UnmarshalText reads "10=198.18.0.100". Errors: ErrBadMark.
func (m *Mark) UnmarshalText(text []byte) error {
	point, vip, _ := strings.Cut(string(text), "=")
	n, err1 := strconv.ParseUint(point, 10, 8)
	addr, err2 := netip.ParseAddr(vip)
	if err := errors.Join(err1, err2); err != nil {
		return fmt.Errorf("%q %w: write the code point and its VIP, such as 10=192.0.2.1", text, ErrBadMark)
	}
	*m = Mark{uint8(n), addr}
	return nil
}

// String returns "10=198.18.0.100".
func (m Mark) String() string { return fmt.Sprintf("%d=%s", m.Point, m.VIP) }

// checked returns the normalised options: VIPs in canonical form, without duplicates and including those of the marks,
// and the modes.
func (opt Options) checked() (Options, error) {
	for _, mode := range opt.Modes {
		if slices.Contains(lb.Modes, mode) && !mode.KeepsPort() {
			return opt, fmt.Errorf(
				"start the agent: %s %w: such a backend has no VIP, and needs none: see jeoul agent --check --mode %s",
				mode, ErrBadMode, mode)
		}
		if !slices.Contains(lb.Modes, mode) {
			return opt, fmt.Errorf("start the agent: %q %w", mode, ErrBadMode)
		}
	}
	var err error
	if opt.Marks, err = checkMarks(opt.Marks); err != nil {
		return opt, err
	}
	for _, mark := range opt.Marks {
		opt.VIPs = append(slices.Clip(opt.VIPs), mark.VIP)
	}
	if opt.VIPs, err = checkVIPs(opt.VIPs); err != nil {
		return opt, err
	}
	if len(opt.Marks) > 0 && !slices.Contains(opt.Modes, lb.DSCP) {
		opt.Modes = append(slices.Clip(opt.Modes), lb.DSCP)
	}
	if slices.Contains(opt.Modes, lb.DSCP) && len(opt.Marks) == 0 {
		return opt, fmt.Errorf(
			"start the agent: mode dscp: no code point was given: say which stands for which VIP, such as --dscp 10=%s",
			opt.VIPs[0])
	}
	if opt.MSS != 0 && (opt.MSS < 536 || opt.MSS > 65495) {
		return opt, fmt.Errorf("start the agent: %d %w: it is 536 to 65495 bytes", opt.MSS, ErrBadMSS)
	}
	if opt.Hook == "" {
		opt.Hook = HookAuto
	}
	return opt, nil
}

// needsProgram reports whether packets need any processing.
func (opt Options) needsProgram() bool { return opt.needsIngress() || opt.MSS != 0 }

// needsIngress reports whether the ingress program is needed to restore packets.
func (opt Options) needsIngress() bool {
	return slices.ContainsFunc(opt.Modes, func(m lb.Mode) bool { return !m.NeedsNeighbours() })
}

// checkMarks returns the marks in canonical form, without duplicates.
func checkMarks(marks []Mark) ([]Mark, error) {
	var checked []Mark
	for _, mark := range marks {
		mark.VIP = mark.VIP.Unmap()
		if mark.Point < 1 || mark.Point > 63 {
			return nil, fmt.Errorf("start the agent: %s %w: a code point is 1 to 63", mark, ErrBadMark)
		}
		if slices.Contains(checked, mark) {
			continue
		}
		for _, other := range checked {
			if other.Point == mark.Point && other.VIP.BitLen() == mark.VIP.BitLen() {
				return nil, fmt.Errorf("start the agent: %s %w: the code point stands for %s already", mark,
					ErrBadMark, other.VIP)
			}
		}
		checked = append(checked, mark)
	}
	return checked, nil
}

// checkVIPs returns the VIPs in canonical form, without duplicates.
func checkVIPs(vips []netip.Addr) ([]netip.Addr, error) {
	if len(vips) == 0 {
		return nil, errors.New("start the agent: no VIP was given")
	}
	var checked []netip.Addr
	for _, vip := range vips {
		vip = vip.Unmap()
		if why := vipProblem(vip); why != "" {
			return nil, fmt.Errorf("start the agent: %s %w: %s", vip, ErrBadVIP, why)
		}
		if !slices.Contains(checked, vip) {
			checked = append(checked, vip)
		}
	}
	return checked, nil
}

// vipProblem returns the reason why an address cannot be a VIP, or "".
func vipProblem(vip netip.Addr) string {
	switch {
	case !vip.IsValid():
		return "it is not an address"
	case vip.IsUnspecified():
		return "it is the unspecified address"
	case vip.IsLoopback():
		return "it is a loopback address, which stays on the host"
	case vip.IsMulticast():
		return "it is a multicast address"
	case vip == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return "it is the broadcast address"
	case vip.Is6() && vip.IsLinkLocalUnicast():
		return "it is a link-local address, which means another host on each link"
	}
	return ""
}

// Errors that a caller may test for, besides those of package hostnet.
var (
	// ErrBadVIP means that an address cannot be a VIP.
	ErrBadVIP = errors.New("cannot be a VIP")
	// ErrElsewhere means that another interface has the VIP, and would answer ARP or neighbour discovery for it.
	ErrElsewhere = errors.New("is on another interface of this host")
	// ErrNoInterface means that there is no interface on which packets can arrive.
	ErrNoInterface = errors.New("no Ethernet interface is up")
	// ErrUnsupported means that the kernel lacks a feature that a mode needs.
	ErrUnsupported = errors.New("not supported by this kernel")
)

// The journal's name, and the interface for the VIPs.
const (
	name     = "agent"
	loopback = "lo"
)

// Options describe the services of a backend host.
type Options struct {
	// VIPs are the addresses to accept, IPv4 or IPv6. There must be at least one, here or in Marks.
	VIPs []netip.Addr
	// Modes are the modes by which packets come: l2dsr, ipip, gue, dscp. None means dscp if there are Marks, and l2dsr
	// otherwise, which needs no program.
	Modes []lb.Mode
	// Marks are the VIPs of the code points of mode dscp.
	Marks []Mark
	// MSS, if not 0, is the maximum of the MSS option in a SYN from a VIP, in bytes, 536 to 65495. It leaves room for a
	// tunnel's headers in a client's segments.
	MSS uint16
	// Interfaces are the interfaces on which packets arrive; none means all Ethernet interfaces that are up. Not used
	// in mode l2dsr without MSS.
	Interfaces []string
	// Hook is how the program is attached; "" means HookAuto.
	Hook Hook
	// Dir holds the journal by which the next start undoes the changes of a process that was killed; "" means
	// hostnet.DefaultDir.
	Dir string
}

// Hook is the attachment point of the program at the ingress of an interface.
type Hook string

// filterName is the program's name in `tc filter show dev DEV ingress`, and at the egress.
const filterName = "jeoul_agent"

// The hooks.
const (
	// HookAuto uses TCX where the kernel supports it.
	HookAuto Hook = "auto"
	// HookTCX is a TCX link (Linux 6.6), which ends with the process.
	HookTCX Hook = "tcx"
	// HookClsact is a filter of the queueing discipline clsact, which remains until it is removed.
	HookClsact Hook = "clsact"
)
