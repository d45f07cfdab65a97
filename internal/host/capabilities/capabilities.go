// SPDX-License-Identifier: Apache-2.0

// Package capabilities names the Linux capabilities whose lack explains an error of the kernel.
package capabilities

import (
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Capability is a Linux capability, and the reason why a program of Jeoul needs it.
type Capability struct {
	number int
	name   string
	why    string
}

// The capabilities that the systemd units grant, each of which a test drops.
var (
	BPF      = Capability{unix.CAP_BPF, "CAP_BPF", "load eBPF programs and make their maps"}
	Perfmon  = Capability{unix.CAP_PERFMON, "CAP_PERFMON", "have the verifier take programs that compare pointers"}
	NetAdmin = Capability{unix.CAP_NET_ADMIN, "CAP_NET_ADMIN",
		"attach programs to interfaces, and set addresses and network settings"}
	NetRaw = Capability{unix.CAP_NET_RAW, "CAP_NET_RAW", "hear what routers say of tunnel packets, and announce VIPs"}
)

// Explain adds to an error at the start which of the needed capabilities the process lacks: the kernel's error for lack
// of one often looks like another fault. A nil error stays nil.
func Explain(err error, needed ...Capability) error {
	if err == nil {
		return nil
	}
	own, failed := effective()
	if failed != nil {
		return err
	}
	var names, lines []string
	for _, c := range needed {
		names = append(names, strings.ToLower(c.name))
		// CAP_SYS_ADMIN includes these two, which were split off from it.
		covered := slices.Contains([]int{unix.CAP_BPF, unix.CAP_PERFMON}, c.number) && own&(1<<unix.CAP_SYS_ADMIN) != 0
		if own&(1<<c.number) == 0 && !covered {
			lines = append(lines, fmt.Sprintf("this process does not have %s, which it needs to %s", c.name, c.why))
		}
	}
	if len(lines) == 0 {
		return err
	}
	return fmt.Errorf("%w\n%s\nrun it as root or by the package's unit, or give the program what it needs: "+
		"setcap %s+ep PROGRAM", err, strings.Join(lines, "\n"), strings.Join(names, ","))
}

// effective returns the effective capabilities of this process as a set of bits.
func effective() (uint64, error) {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return 0, err
	}
	return uint64(data[1].Effective)<<32 | uint64(data[0].Effective), nil
}
