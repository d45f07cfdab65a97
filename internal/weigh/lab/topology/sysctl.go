// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/jeoul/jeoul/internal/host/sysctl"
)

// Setting is a sysctl of a namespace.
type Setting struct {
	Name, Value string
	// Must: a lab without the setting would be wrong, not just slower. A name that the kernel does not have is never an
	// error.
	Must bool
}

// quietSysctls prevent a host's IPv6 from waiting (duplicate address detection) and from sending by itself (router
// solicitations, autoconfiguration), admit asymmetric paths, because every DSR reply takes one, and prevent a balancer
// on the one segment from announcing to its neighbours a shorter path than through itself.
var quietSysctls = []Setting{
	{"net.ipv6.conf.all.accept_ra", "0", true},
	{"net.ipv6.conf.default.accept_ra", "0", true},
	{"net.ipv6.conf.all.autoconf", "0", true},
	{"net.ipv6.conf.default.autoconf", "0", true},
	{"net.ipv6.conf.all.router_solicitations", "0", true},
	{"net.ipv6.conf.default.router_solicitations", "0", true},
	{"net.ipv6.conf.all.accept_dad", "0", true},
	{"net.ipv6.conf.default.accept_dad", "0", true},
	{"net.ipv6.conf.all.dad_transmits", "0", true},
	{"net.ipv6.conf.default.dad_transmits", "0", true},
	{"net.ipv4.conf.all.rp_filter", "0", true},
	{"net.ipv4.conf.default.rp_filter", "0", true},
	{"net.ipv4.conf.all.send_redirects", "0", true},
	{"net.ipv4.conf.default.send_redirects", "0", true},
	{Forwarding, "0", true},
}

// Forwarding makes a host a router of IPv4; subjects that forward in a laboratory set it.
const Forwarding = "net.ipv4.ip_forward"

// switchSysctls make the switch a pure layer-2 device.
var switchSysctls = []Setting{
	{"net.ipv6.conf.all.disable_ipv6", "1", true},
	{"net.ipv6.conf.default.disable_ipv6", "1", true},
	{"net.bridge.bridge-nf-call-arptables", "0", true},
	{"net.bridge.bridge-nf-call-iptables", "0", true},
	{"net.bridge.bridge-nf-call-ip6tables", "0", true},
}

// loadSysctls are the first document's profile that clients, web servers and
// balancer share (l2dsr-poc-bmt.ko.md, "TCP kernel tuning").
var loadSysctls = []Setting{
	{"net.ipv4.ip_local_port_range", "1024 65535", true},
	{"net.ipv4.tcp_fin_timeout", "120", false},
	{"net.ipv4.tcp_syncookies", "1", false},
	{"net.ipv4.tcp_syn_retries", "5", false},
	{"net.ipv4.tcp_max_syn_backlog", "1000000", false},
	{"net.ipv4.tcp_keepalive_time", "30", false},
	{"net.ipv4.tcp_keepalive_intvl", "5", false},
	{"net.ipv4.tcp_keepalive_probes", "10", false},
	{"net.ipv4.tcp_window_scaling", "1", false},
	{"net.ipv4.tcp_rmem", "4096 16384 4194304", false},
	{"net.ipv4.tcp_wmem", "8192 16384 4194304", false},
	{"net.ipv4.tcp_mem", "185688 247584 6291456", false},
	{"net.core.netdev_max_backlog", "1000000", false},
	{"net.core.rmem_default", "253952", false},
	{"net.core.wmem_default", "253952", false},
	{"net.core.rmem_max", "16777216", false},
	{"net.core.wmem_max", "16777216", false},
	{"net.netfilter.nf_conntrack_max", "700000", false},
}

// roleSysctls are the settings in which the first document's profiles differ.
var roleSysctls = map[Role][]Setting{
	Client: {
		{"net.core.somaxconn", "250000", false},
		{"net.ipv4.tcp_max_orphans", "15000", false},
		{"net.ipv4.tcp_max_tw_buckets", "700000", false},
	},
	// A server's own connection, such as the connection that checks whether its nginx answers, may get any port as its
	// source. While that port is in use, or in TIME-WAIT, nothing can listen on it. The kinds of load have their
	// servers on these ports.
	Server:   append([]Setting{{"net.ipv4.ip_local_reserved_ports", "5000-13000", true}}, listenerSysctls...),
	Balancer: listenerSysctls,
}

var listenerSysctls = []Setting{
	{"net.core.somaxconn", "500000", false},
	{"net.ipv4.tcp_max_orphans", "30000", false},
	{"net.ipv4.tcp_max_tw_buckets", "1500000", false},
}

// SysctlsOf returns the settings of a host of a role, in order; with kernels, only those that keep the host quiet.
func SysctlsOf(r Role, kernels bool) []Setting {
	if r == Switch {
		return switchSysctls
	}
	all := append([]Setting{}, quietSysctls...)
	if kernels {
		return all
	}
	all = append(all, loadSysctls...)
	return append(all, roleSysctls[r]...)
}

// SetSysctls applies settings in the calling thread's network namespace, and returns the names of the settings that the
// kernel has only for the whole machine.
func SetSysctls(settings []Setting) (refused []string, err error) {
	for _, s := range settings {
		err := sysctl.Write(s.Name, s.Value)
		missing := errors.Is(err, fs.ErrNotExist)
		switch {
		case err == nil:
		case s.Must && missing:
			// The kernel lacks the feature, so there is nothing to set.
		case s.Must:
			return nil, fmt.Errorf("set %s to %q: %w", s.Name, s.Value, err)
		case missing || errors.Is(err, fs.ErrPermission):
			refused = append(refused, s.Name)
		default:
			return nil, fmt.Errorf("set %s to %q: %w", s.Name, s.Value, err)
		}
	}
	return refused, nil
}

// RefusedNote names the settings of the first document that do not hold in a lab, with the values that hold instead.
func RefusedNote(names []string) string {
	var list []string
	for _, name := range names {
		value := "absent"
		if now, err := sysctl.Read(name); err == nil {
			value = now
		}
		list = append(list, name+" = "+value)
	}
	return "these belong to the machine, not to a namespace, and stay as they are: " + strings.Join(list, ", ")
}

// RouterSettings make the router forward, and select among equal routes also by ports (fib_multipath_hash_policy 1).
var RouterSettings = []Setting{
	{Forwarding, "1", true},
	{"net.ipv4.fib_multipath_hash_policy", "1", true},
}
