// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// hasCapability reports whether this process, and so HAProxy, has a capability (capabilities(7)): with CAP_NET_ADMIN,
// sockets may have addresses that the host does not have (ip(7), IP_TRANSPARENT).
func hasCapability(capability int) bool {
	header, data := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, [2]unix.CapUserData{}
	return unix.Capget(&header, &data[0]) == nil && data[0].Effective&(1<<capability) != 0
}

// checkPorts refuses services at ports that this process must not bind, where HAProxy would say that its permission was
// denied.
func checkPorts(d Desired) error {
	if hasCapability(unix.CAP_NET_BIND_SERVICE) {
		return nil
	}
	first := 1024 // ip_unprivileged_port_start, by default
	if setting, err := os.ReadFile("/proc/sys/net/ipv4/ip_unprivileged_port_start"); err == nil {
		if n, err := strconv.Atoi(strings.TrimSpace(string(setting))); err == nil {
			first = n
		}
	}
	for i := range d.Services {
		if s := &d.Services[i]; int(s.Port) < first {
			return place{service: s.Key(),
				field: "port"}.wrap(fmt.Errorf(
				"HAProxy may not bind port %d: it needs CAP_NET_BIND_SERVICE, which this process does not have; "+
					"run Jeoul with it (systemd: AmbientCapabilities and CapabilityBoundingSet of jeoul.service)",
				s.Port))
		}
	}
	return nil
}
