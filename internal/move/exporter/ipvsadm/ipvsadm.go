// SPDX-License-Identifier: Apache-2.0

// Package ipvsadm writes a configuration as the rules that ipvsadm-restore(8) reads. Package keepalived uses its
// knowledge of IPVS.
package ipvsadm

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/config"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/move/exporter/ledger"
	"github.com/jeoul/jeoul/internal/move/remark"
)

// guePort is the UDP port that mode gue sends to.
const guePort = "6080"

// methods maps modes to ipvsadm's options for the packet forwarding method.
var methods = map[lb.Mode]string{lb.L2DSR: "-g", lb.IPIP: "-i", lb.GUE: "-i --tun-type gue --tun-port " + guePort,
	lb.NAT: "-m"}

// noChecks is the reason why checks, and the keys that depend on them, are left out.
const noChecks = "ipvsadm has no health checks, so a failed backend still gets connections; `jeoul export keepalived` writes checks"

// Reasons give, by key, why ipvsadm has no equivalent of it.
var Reasons = With(map[string]ledger.Reason{
	"services[].require": {Kind: remark.Left, Why: noChecks},
	"services[].panic":   {Kind: remark.Left, Why: noChecks},
	"services[].on_down": {Kind: remark.Left, Why: noChecks},
	"services[].backends[].backup": {Kind: remark.Left,
		Why: "IPVS has no backups, and the backend would get connections all the time; the keepalived dialect has a sorry_server"},
})

// With returns reasons, and adds the ones that hold for IPVS no matter which program configures it.
func With(more map[string]ledger.Reason) map[string]ledger.Reason {
	left := func(why string) ledger.Reason { return ledger.Reason{Kind: remark.Left, Why: why} }
	all := map[string]ledger.Reason{
		"flows.timeouts": left(
			"IPVS has one timeout each for established connections, closing ones and UDP"),
		"fullnat": left("IPVS has no full NAT"),
		"vrrp": left(
			"IPVS shares no address; keepalived's vrrp_instance does, with virtual_router_id, priority and advert_int as here"),
		"bgp": left("IPVS announces nothing to routers; BIRD or FRR on the host announces addresses"),
		"members": left(
			"IPVS synchronises connections with another balancer by its sync daemon (ipvsadm --start-daemon master, and backup there); start it by hand"),
		"services[].announce":         left("IPVS does not announce its VIPs"),
		"services[].announce_minimum": left("IPVS does not announce its VIPs"),
		"services[].mss":              left("IPVS lowers no MSS; a rule of the firewall does (TCPMSS)"),
		"services[].allow": left(
			"IPVS serves every client; until the firewall's chain INPUT refuses the others, so does this service"),
		"services[].deny": left(
			"IPVS serves every client; until the firewall's chain INPUT refuses these, so does this service"),
		"services[].limits": left(
			"IPVS bounds no service; the firewall can (limit, connlimit), and -x bounds each backend"),
		"services[].outliers":   left("IPVS does not judge backends by what they answer"),
		"services[].slow_start": left("IPVS gives a new backend its whole share at once"),
		"services[].on_empty":   left("IPVS takes no VIP off its interface"),
		"services[].discover":   left("IPVS has the backends that it is given; write those that are found now"),
		"services[].hash":       left("IPVS has no such hash"),
		"services[].dscp":       left("IPVS marks no packets for mode dscp"),
		"services[].persistence": left(
			"IPVS has services share clients by a firewall mark alone; each of these remembers its own"),
		"services[].untranslated": {Kind: remark.Needless,
			Why: "IPVS translates what belongs to a connection alone"},
	}
	for key, why := range more {
		all[key] = why
	}
	return all
}

// Write writes the services.
func Write(l *ledger.Ledger) string {
	var text strings.Builder
	for i := range l.Services {
		if CanServe(l, i) {
			writeService(&text, l, i)
		}
	}
	if l.Carried() == 0 {
		return ""
	}
	return timeouts(l) + text.String()
}

// timeouts writes the timeouts of the whole table.
func timeouts(l *ledger.Ledger) string {
	t := l.Flows.Timeouts
	l.Carry("flows.timeouts.established", "flows.timeouts.fin", "flows.timeouts.udp")
	return fmt.Sprintf("# Timeouts of all services of the host: established, closing, UDP.\n--set %d %d %d\n",
		seconds(t.Established), seconds(t.Fin), seconds(t.UDP))
}

// seconds returns a duration in seconds, rounded up.
func seconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }

// CanServe reports whether IPVS can express a service. If not, it leaves the service out.
func CanServe(l *ledger.Ledger, i int) bool {
	s, field := l.Services[i], config.ServiceField(i, "")
	switch {
	case methods[s.Mode] == "":
		l.Left(field, "service %s: IPVS has no mode like %s; use %s, %s, %s or %s for it, or export it to haproxy",
			s.Name, s.Mode, lb.L2DSR, lb.IPIP, lb.GUE, lb.NAT)
		return false
	case !slices.ContainsFunc(s.Backends, func(b lb.Backend) bool { return !b.Backup }):
		l.Left(field, "service %s: it names no backend that could stand in the result", s.Name)
		return false
	}
	if s.Mode == lb.GUE {
		l.ApproximateService(i, "mode",
			"IPVS writes a header of GUE (variant 0), where Jeoul writes none (variant 1); backends take both by `ip fou add port %s gue`", guePort)
	}
	l.CarryService(i, "name", "vip", "port", "protocol", "mode", "scheduler", "hash", "persistence.timeout",
		"persistence.prefix")
	return true
}

// Scheduler returns IPVS's name of a service's scheduler, and whether it hashes ports as well. IPVS's mh uses Maglev's
// lookup table, as Jeoul does.
func Scheduler(s lb.Service) (name string, ports bool) {
	switch s.Scheduler {
	case lb.SourceHash, lb.Maglev:
		return "mh", !s.BySource()
	case lb.TwoChoices:
		return "twos", false
	}
	return string(s.Scheduler), false
}

// Weight returns a backend's weight for IPVS. IPVS's fo orders backends by weight, Jeoul's failover by their place in
// the list.
func Weight(l *ledger.Ledger, i, j int) int {
	s := l.Services[i]
	b := s.Backends[j]
	l.CarryBackend(i, j, "name", "address", "port", "weight", "upper", "lower", "drain")
	switch {
	case b.Draining:
		l.Approximate(config.BackendField(i, j, "drain"),
			"drain: becomes weight 0; its weight, for when the drain ends, is %d", b.Weight)
		return 0
	case s.Scheduler == lb.Failover && b.Weight > 0:
		return len(s.Backends) - j
	}
	return int(b.Weight)
}

// Lower returns a backend's lower threshold for IPVS. Without one, IPVS would take three quarters of the upper
// threshold.
func Lower(b lb.Backend) uint32 { return cmp.Or(b.Lower, b.Upper) }

// Mask returns the netmask of persistence in IPVS's form, or "" where each address is a client.
func Mask(s lb.Service) string {
	bits := int(s.Persistence.Prefix)
	switch {
	case bits == 0 || bits == s.VIP.BitLen():
		return ""
	case s.VIP.Is4():
		return net.IP(net.CIDRMask(bits, 32)).String()
	}
	return strconv.Itoa(bits)
}

// Persistence returns the persistence timeout in seconds, rounded up, and adds a remark if rounding changes it.
func Persistence(l *ledger.Ledger, i int) int64 {
	timeout := l.Services[i].Persistence.Timeout
	whole := seconds(timeout)
	if time.Duration(whole)*time.Second != timeout {
		l.ApproximateService(i, "persistence.timeout", "IPVS counts whole seconds: %d", whole)
	}
	return whole
}

// writeService writes the command that adds a service, and the commands that add its backends.
func writeService(text *strings.Builder, l *ledger.Ledger, i int) {
	s := l.Services[i]
	at := protocolOption(s.Protocol) + " " + netip.AddrPortFrom(s.VIP, s.Port).String()
	fmt.Fprintf(text, "# %s\n-A %s", l.Origin(i), at)
	name, ports := Scheduler(s)
	fmt.Fprintf(text, " -s %s", name)
	if s.Persistence.On() {
		fmt.Fprintf(text, " -p %d", Persistence(l, i))
		if mask := Mask(s); mask != "" {
			fmt.Fprintf(text, " -M %s", mask)
		}
	}
	if ports {
		text.WriteString(" -b mh-port")
	}
	text.WriteByte('\n')
	for _, key := range []string{"check", "checks"} {
		if field := config.ServiceField(i, key); l.Written(field) {
			l.Left(field, "%s: %s", key, noChecks)
		}
	}
	for j, b := range s.Backends {
		if b.Backup {
			l.Left(config.BackendField(i, j, ""), "backend %s: %s", b.Name, Reasons["services[].backends[].backup"].Why)
			continue
		}
		fmt.Fprintf(text, "-a %s -r %s %s -w %d", at, netip.AddrPortFrom(b.Address, b.Port), methods[s.Mode],
			Weight(l, i, j))
		if b.Upper > 0 {
			fmt.Fprintf(text, " -x %d -y %d", b.Upper, Lower(b))
		}
		text.WriteByte('\n')
	}
}

func protocolOption(p lb.Protocol) string {
	if p == lb.UDP {
		return "-u"
	}
	return "-t"
}
