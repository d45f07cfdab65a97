// SPDX-License-Identifier: Apache-2.0

package ops

import "strings"

// remedies are the remedies for lost packets, by the reason in an outcome's name: the part behind the prefix.
var remedies = map[string]string{
	"malformed":         "Nothing here: find the sender (`jeoul trace --live`); it or a device on its way makes broken packets.",
	"fragment":          "Have senders send smaller packets (path MTU discovery, `mss`); many of them may be an attack.",
	"extension_headers": "Nothing here: find the sender (`jeoul trace --live`); no usual program sends so many headers.",
	"no_backend":        "Bring a backend back: see why each does not serve, enable a drained one, or give the service backups.",
	"backend_down":      "See why the backend is down; where its flows shall not wait for it, set `on_down`.",
	"too_big":           "Make the way wider (MTU of links and tunnels), or the segments smaller (`mss`).",
	"time_exceeded":     "Look for a loop: a backend that sends packets for the VIP back (`jeoul doctor`).",
	"no_flow":           "Some remain after a restart of clients or a change. If they go on: raise `flows.limit` or the timeouts, and let members tell each other of flows.",
	"no_port":           "Give full NAT more addresses or ports (`fullnat`), or the service more backends.",
	"no_address":        "Give this host an address of the backend's family on the backend's link.",
	"flow_table_full":   "Raise `flows.limit` or `flows.unproven`; in a SYN flood, shorten `flows.timeouts.opening`.",
	"no_route":          "Give this host a route to the clients.",
	"no_room":           "Use hook `tc`, or a driver that leaves room before the packet.",
	"flows_moving":      "Nothing: it ends with the change that moves the flows, and senders send again.",
	"denied":            "Nothing, if these clients are not to be served; otherwise change `allow` and `deny` of the service.",
	"rate_limit":        "Raise `limits.rate` if backends can take more; otherwise add backends, or deny who floods.",
	"connection_limit":  "Raise `limits.connections` or the backends' thresholds if they can take more; otherwise add backends.",
}

// RemedyOf returns the remedy for packets lost in an outcome; "" if it is no loss.
func RemedyOf(outcome string) string {
	how, why, _ := strings.Cut(outcome, "_")
	switch how {
	case "dropped", "reset", "unreachable", "answered":
		return remedies[why]
	}
	return ""
}
