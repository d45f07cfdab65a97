// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// Errors that callers may test for.
var (
	// ErrNoRights: the process may not load or attach eBPF programs.
	ErrNoRights = errors.New("no right to load or attach eBPF programs")
	// ErrNoInterface: there is no such interface in this network namespace.
	ErrNoInterface = errors.New("no such interface")
	// ErrBusy: another program is attached to the interface where ours would be.
	ErrBusy = errors.New("another program is attached")
	// ErrUnsupported: the kernel or the driver lacks a needed capability.
	ErrUnsupported = errors.New("not supported by this kernel or driver")
)

// LoadError returns an error that names the usual reasons why the kernel refuses a program or a map. Errors:
// ErrUnsupported, ErrNoRights, lb.ErrTooLarge.
func LoadError(err error) error {
	// The verifier's refusal comes with the same error number as a missing
	// right, and is our fault, not the user's.
	if refusal := (*ebpf.VerifierError)(nil); errors.As(err, &refusal) && len(refusal.Log) > 0 {
		return fmt.Errorf("%w: the verifier refused the program: %v", ErrUnsupported, err)
	}
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("%w (%v): run as root, or with CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON", ErrNoRights, err)
	}
	if errors.Is(err, ebpf.ErrNotSupported) {
		return fmt.Errorf("%w: %v: see the README for the oldest kernel that was tried", ErrUnsupported, err)
	}
	if errors.Is(err, unix.ENOMEM) {
		return fmt.Errorf("%w: %v: the machine, or the control group of this process, has no more: use smaller "+
			"flows.limit and flows.unproven, fewer services, or a smaller table_size", lb.ErrTooLarge, err)
	}
	return fmt.Errorf("loading the eBPF program: %v", err)
}
