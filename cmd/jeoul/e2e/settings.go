// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/host/netdump"
)

// Settings are the settings of a host that a program could leave, one line each: its links, addresses, routes, rules,
// queueing disciplines, filters, eBPF programs and sysctls. They do not include neighbours: the kernel learns and
// forgets those.
type Settings map[string]bool

// ReadSettings reads the settings of a network namespace, once its interfaces carry packets.
func ReadSettings(tb testing.TB, where Inside) Settings {
	tb.Helper()
	s := Settings{}
	in(tb, where, func() error {
		if err := awaitSettled(tb); err != nil {
			return err
		}
		links, err := netdump.Links()
		if err != nil {
			return err
		}
		errs := []error{s.routing(), s.sysctls()}
		for _, l := range links {
			errs = append(errs, s.link(l))
		}
		return errors.Join(errs...)
	})
	return s
}

// Difference lists the settings of s that before lacks, and the reverse.
func (s Settings) Difference(before Settings) (lines []string) {
	for line := range s {
		if !before[line] {
			lines = append(lines, "now: "+line)
		}
	}
	for line := range before {
		if !s[line] {
			lines = append(lines, "before: "+line)
		}
	}
	slices.Sort(lines)
	return lines
}

func (s Settings) add(format string, values ...any) { s[fmt.Sprintf(format, values...)] = true }

// link records a link with its addresses, queueing disciplines and filters.
func (s Settings) link(l netlink.Link) error {
	a := l.Attrs()
	program := a.Xdp != nil && a.Xdp.Attached
	s.add("link %s %s, MTU %d, flags %v, promiscuous %d, XDP %v", l.Type(), a.Name, a.MTU, a.Flags, a.Promisc, program)
	addresses, err := netdump.Consistent(func() ([]netlink.Addr, error) {
		return netlink.AddrList(l,
			netlink.FAMILY_ALL)
	})
	if err != nil {
		return err
	}
	for _, address := range addresses {
		s.add("address %s on %s, scope %d, flags %#x", address.IPNet, a.Name, address.Scope, address.Flags)
	}
	queueing, err := netdump.Consistent(func() ([]netlink.Qdisc, error) { return netlink.QdiscList(l) })
	if err != nil {
		return err
	}
	for _, q := range queueing {
		s.add("queueing discipline %s on %s at %d", q.Type(), a.Name, q.Attrs().Parent)
	}
	return errors.Join(s.filters(l), s.programs(l))
}

// filters records the filters in the disciplines clsact and ingress, which are older than TCX.
func (s Settings) filters(l netlink.Link) error {
	for _, parent := range []uint32{netlink.HANDLE_MIN_INGRESS, netlink.HANDLE_MIN_EGRESS} {
		filters, err := netdump.Consistent(func() ([]netlink.Filter, error) { return netlink.FilterList(l, parent) })
		if err != nil {
			return err
		}
		for _, f := range filters {
			s.add("filter %s on %s at %#x", f.Type(), l.Attrs().Name, parent)
		}
	}
	return nil
}

// programs records the programs that are attached by TCX.
func (s Settings) programs(l netlink.Link) error {
	for _, at := range []ebpf.AttachType{ebpf.AttachTCXIngress, ebpf.AttachTCXEgress} {
		found, err := link.QueryPrograms(link.QueryOptions{Target: l.Attrs().Index, Attach: at})
		if errors.Is(err, unix.EINVAL) {
			return nil // the kernel has no TCX: it is older than 6.6
		}
		if err != nil {
			return err
		}
		if n := len(found.Programs); n > 0 {
			s.add("%d programs on %s at %s", n, l.Attrs().Name, at)
		}
	}
	return nil
}

// routing records the routes of all tables, and the rules.
func (s Settings) routing() error {
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		// A filter by table 0 lists the routes of all tables.
		routes, err := netdump.Consistent(func() ([]netlink.Route, error) {
			return netlink.RouteListFiltered(family, &netlink.Route{Table: unix.RT_TABLE_UNSPEC},
				netlink.RT_FILTER_TABLE)
		})
		if err != nil {
			return err
		}
		for _, r := range routes {
			if r.Flags&unix.RTM_F_CLONED == 0 {
				s.add("route to %v from %v by %v on %d in table %d, type %d, metric %d, MTU %d", r.Dst, r.Src, r.Gw,
					r.LinkIndex, r.Table, r.Type, r.Priority, r.MTU)
			}
		}
		rules, err := netdump.Consistent(func() ([]netlink.Rule, error) { return netlink.RuleList(family) })
		if err != nil {
			return err
		}
		for _, r := range rules {
			s.add("rule %v", r)
		}
	}
	return nil
}

// sysctls records the sysctls of IP that can be read: some can only be written.
func (s Settings) sysctls() error {
	const root = "/proc/sys/"
	for _, family := range []string{"net/ipv4", "net/ipv6"} {
		err := filepath.WalkDir(root+family, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			if value, err := os.ReadFile(path); err == nil {
				s.add("sysctl %s = %s", strings.TrimPrefix(path, root),
					strings.Join(strings.Fields(string(value)), " "))
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}
