// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// capability is a right that a program of ours needs, and what it needs it for.
type capability struct {
	number int
	name   string
	why    string
}

// The capabilities that the units give, each of which a test takes away.
var (
	capBPF     = capability{unix.CAP_BPF, "CAP_BPF", "load eBPF programs and make their maps"}
	capPerfmon = capability{unix.CAP_PERFMON, "CAP_PERFMON", "have the verifier take programs that compare pointers"}
	capAdmin   = capability{unix.CAP_NET_ADMIN, "CAP_NET_ADMIN", "attach programs to interfaces, and set addresses and network settings"}
	capRaw     = capability{unix.CAP_NET_RAW, "CAP_NET_RAW", "hear what routers say of tunnel packets, and announce VIPs"}

	balancerCapabilities = []capability{capBPF, capAdmin, capRaw, capPerfmon}
	agentCapabilities    = []capability{capBPF, capAdmin, capPerfmon}
)

// withCapabilities adds to the error of a start which of these the process does not have: what the
// kernel refuses for want of one often looks like another fault.
func withCapabilities(err error, needed []capability) error {
	if err == nil {
		return nil
	}
	effective, failed := effectiveCapabilities()
	if failed != nil {
		return err
	}
	var names, lines []string
	for _, c := range needed {
		names = append(names, strings.ToLower(c.name))
		// CAP_SYS_ADMIN has stood for these two since before they were.
		covered := slices.Contains([]int{unix.CAP_BPF, unix.CAP_PERFMON}, c.number) && effective&(1<<unix.CAP_SYS_ADMIN) != 0
		if effective&(1<<c.number) == 0 && !covered {
			lines = append(lines, fmt.Sprintf("this process does not have %s, which it needs to %s", c.name, c.why))
		}
	}
	if len(lines) == 0 {
		return err
	}
	return fmt.Errorf("%w\n%s\nrun it as root or by the package's unit, or give the program what it needs: setcap %s+ep PROGRAM", err,
		strings.Join(lines, "\n"), strings.Join(names, ","))
}

// effectiveCapabilities returns those of this process as a set of bits.
func effectiveCapabilities() (uint64, error) {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return 0, err
	}
	return uint64(data[1].Effective)<<32 | uint64(data[0].Effective), nil
}
