// SPDX-License-Identifier: Apache-2.0

// Package haproxy writes a configuration as haproxy.cfg: a section listen for each service, or a frontend and backends
// for a service with routes.
package haproxy

import (
	"fmt"
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

// connectTimeout is HAProxy's timeout for connections to servers. Jeoul's configuration has no key for it.
const connectTimeout = 5 * time.Second

// Reasons give, by key, why HAProxy has no equivalent of it. They cover the keys that concern balancing.
var Reasons = map[string]ledger.Reason{
	"bgp": {Kind: remark.Left,
		Why: "HAProxy speaks no BGP; BIRD or FRR on the host announces addresses"},
	"vrrp": {Kind: remark.Left,
		Why: "HAProxy shares no address; keepalived's vrrp_instance does"},
	"members": {Kind: remark.Left,
		Why: "HAProxy compares nothing and hands no connection over; its section peers has stick tables in common, by hand"},
	"services[].announce": {Kind: remark.Left, Why: "HAProxy announces no VIP"},
	"services[].announce_minimum": {Kind: remark.Left,
		Why: "HAProxy announces no VIP; it can answer whether it has so many servers (monitor fail if { nbsrv lt N })"},
	"flows.timeouts":             {Kind: remark.Needless, Why: "HAProxy's own kernel opens and ends its connections"},
	"fullnat.addresses[].member": {Kind: remark.Left, Why: "HAProxy goes on with no connection of another's"},
	"fullnat.ports": {Kind: remark.Left,
		Why: "HAProxy's source may have one address and a range of ports, for a server; the kernel chooses among all"},
	"services[].dscp":          {Kind: remark.Needless, Why: "HAProxy tells backends no VIP"},
	"services[].untranslated":  {Kind: remark.Needless, Why: "HAProxy takes packets of its own connections alone"},
	"services[].limits.burst":  {Kind: remark.Left, Why: "HAProxy's rate-limit has no burst"},
	"services[].limits.refuse": {Kind: remark.Left, Why: "in HAProxy what is beyond a limit waits"},
	"services[].require":       {Kind: remark.Left, Why: "HAProxy has one check of a server, beside an agent"},
	"services[].outliers": {Kind: remark.Left,
		Why: "HAProxy has the like (observe layer4, error-limit), judged by other rules; write it by hand"},
	"services[].on_empty": {Kind: remark.Left,
		Why: "HAProxy takes no VIP off; keepalived can ask whether it has servers (monitor fail)"},
	"services[].discover": {Kind: remark.Left,
		Why: "HAProxy has the servers that it is given; write those that are found now"},
	"services[].discover.dns": {Kind: remark.Left,
		Why: "HAProxy finds servers by a section resolvers and server-template; write it by hand"},
	"services[].persistence": {Kind: remark.Left,
		Why: "HAProxy has sections share a stick-table where they have the same servers; write it by hand (stick on src table NAME)"},
	"services[].backends[].lower": {Kind: remark.Left,
		Why: "a server takes connections again as soon as it has fewer than maxconn"},
}

// algorithms maps schedulers to HAProxy's balance algorithms.
var algorithms = map[lb.Scheduler]string{
	lb.RoundRobin: "roundrobin", lb.WeightedRoundRobin: "roundrobin", lb.LeastConnections: "leastconn",
	lb.WeightedLeastConnections: "leastconn",
	lb.SourceHash:               "source", lb.Maglev: "random(1)", lb.TwoChoices: "random", lb.Failover: "first",
}

// Write writes the sections global and defaults, then the services.
func Write(l *ledger.Ledger) string {
	var text strings.Builder
	names := map[string]int{}
	external := false
	for i := range l.Services {
		if canServe(l, i) {
			w := &writer{Ledger: l, i: i, service: l.Services[i], proxy: l.Services[i].Proxy, text: &text}
			if w.proxy == nil {
				w.proxy = &lb.Proxy{}
			}
			w.write(unique(names, name(w.service.Name)))
			external = external || w.external
		}
	}
	if l.Carried() == 0 {
		return ""
	}
	sources(l)
	return global(l, external) + defaults(l) + text.String()
}

// defaults writes the section defaults.
func defaults(l *ledger.Ledger) string {
	var text strings.Builder
	t := l.Flows.Timeouts
	l.Carry("flows.timeouts.established", "flows.timeouts.fin")
	fmt.Fprintf(&text, "defaults\n\tmode tcp\n\ttimeout connect %s\n", duration(connectTimeout))
	for _, side := range []string{"client", "server"} {
		fmt.Fprintf(&text, "\ttimeout %s %s\n\ttimeout %s-fin %s\n", side, duration(t.Established), side,
			duration(t.Fin))
	}
	return text.String()
}

// canServe reports whether HAProxy can express a service. If not, it leaves the service out.
func canServe(l *ledger.Ledger, i int) bool {
	s, field := l.Services[i], config.ServiceField(i, "")
	switch {
	case s.Protocol != lb.TCP:
		l.Left(field, "service %s: HAProxy balances no %s; keep Jeoul for it, or export it to ipvsadm or keepalived",
			s.Name, strings.ToUpper(s.Protocol.String()))
		return false
	case !slices.Contains(lb.Modes, s.Mode):
		l.Left(field, "service %s: HAProxy has no mode like %s", s.Name, s.Mode)
		return false
	case len(s.Backends) == 0:
		l.Left(field, "service %s: it names no backend that could stand in the result", s.Name)
		return false
	}
	l.CarryService(i, "name", "vip", "port", "protocol", "mode", "scheduler", "hash", "mss", "persistence.timeout",
		"persistence.prefix",
		"limits.rate", "limits.connections", "allow", "deny", "slow_start", "proxy")
	return true
}

// write writes the service.
func (w *writer) write(name string) {
	fmt.Fprintf(w.text, "\n# %s\n", w.Origin(w.i))
	all := make([]int, len(w.service.Backends))
	for j := range all {
		all[j] = j
	}
	names := w.names()
	if len(w.proxy.Routes) == 0 {
		w.section("listen", name)
		w.clientSide()
		w.backendSide(all, names)
		return
	}
	w.section("frontend", name)
	w.clientSide()
	sections := make([]string, len(w.proxy.Routes))
	for k, route := range w.proxy.Routes {
		sections[k] = fmt.Sprintf("%s.route%d", name, k+1)
		w.route(k, sections[k], route)
	}
	w.line("default_backend", name+".all")
	for k, route := range w.proxy.Routes {
		w.text.WriteByte('\n')
		w.section("backend", sections[k])
		w.backendSide(w.chosen(route), names)
	}
	w.text.WriteByte('\n')
	w.section("backend", name+".all")
	w.backendSide(all, names)
}

// clientSide writes the lines about the service's clients.
func (w *writer) clientSide() {
	w.bind()
	w.limits()
	w.clients()
	w.requests()
}

// bind writes the address and port that the service listens on.
func (w *writer) bind() {
	s := w.service
	words := []string{"bind", netip.AddrPortFrom(s.VIP, s.Port).String()}
	if s.MSS > 0 {
		words = append(words, "mss", strconv.Itoa(int(s.MSS)))
	}
	w.line(append(words, w.bindWords()...)...)
}

// backendSide writes the lines about the chosen backends.
func (w *writer) backendSide(chosen []int, names []string) {
	w.source()
	w.balance()
	w.persistence()
	w.connections()
	w.shared()
	w.servers(chosen, names)
}

// source writes the address that HAProxy sends from.
func (w *writer) source() {
	s := w.service
	switch s.Mode {
	case lb.FullNAT:
		w.line("source", netip.AddrPortFrom(w.FullNAT.Addresses[sourceOf(w.Ledger, s.VIP.Is4())].Address, 0).String())
	case lb.NAT:
		w.ApproximateService(w.i, "mode",
			"HAProxy sends from clients' addresses (usesrc): it needs CAP_NET_ADMIN, and rules that bring the answers to its sockets (TPROXY)")
		w.line("source", netip.AddrPortFrom(anyAddress(s.VIP.Is4()), 0).String(), "usesrc", "clientip")
	case lb.ModeProxy: // HAProxy does the same
	default:
		w.ApproximateService(w.i, "mode",
			"%s becomes a proxy: backends see HAProxy's address, must listen on their own, and answer through HAProxy, which carries all they send", s.Mode)
	}
}

// anyAddress returns the unspecified address of a family.
func anyAddress(four bool) netip.Addr {
	if four {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}

// sourceOf returns the index of the full NAT address that HAProxy sends from in a family: the first one that belongs to
// this balancer.
func sourceOf(l *ledger.Ledger, four bool) int {
	own := l.Pool().Addresses
	return slices.IndexFunc(l.FullNAT.Addresses, func(a config.PoolAddress) bool {
		return a.Address.Is4() == four && slices.Contains(own, a.Address)
	})
}

// sources carries over the full NAT addresses that HAProxy sends from, and leaves out the others.
func sources(l *ledger.Ledger) {
	for j, a := range l.FullNAT.Addresses {
		field := fmt.Sprintf("fullnat.addresses[%d].address", j)
		if sourceOf(l, a.Address.Is4()) == j {
			l.Carry(field)
		} else {
			l.Left(field, "fullnat.addresses: HAProxy sends from one address of a family, and the first is it")
		}
	}
}

// balance writes the balancing algorithm.
func (w *writer) balance() {
	s := w.service
	algorithm := algorithms[s.Scheduler]
	if s.BySource() {
		algorithm = "source"
	}
	w.line("balance", algorithm)
	switch {
	case s.BySource():
		w.line("hash-type", "consistent")
	case s.Scheduler == lb.Maglev:
		w.ApproximateService(w.i, "scheduler",
			"HAProxy has no hash of a connection; it draws by the weights, and a connection stays where it is")
	}
}

// limits writes the limits of the service.
func (w *writer) limits() {
	limits := w.service.Limits
	for _, limit := range []struct {
		key   string
		most  uint64
		words []string
	}{
		{"limits.connections", uint64(limits.Connections), []string{"maxconn"}},
		{"limits.rate", uint64(limits.Rate), []string{"rate-limit", "sessions"}},
	} {
		if limit.most == 0 {
			continue
		}
		w.line(append(limit.words, strconv.FormatUint(limit.most, 10))...)
		if w.service.Mode != lb.ModeProxy { // in mode proxy, HAProxy does the same
			w.ApproximateService(w.i, limit.key, "what is beyond waits in HAProxy")
		}
	}
}

// persistence writes a stick table keyed by the client's address.
func (w *writer) persistence() {
	p := w.service.Persistence
	if !p.On() {
		return
	}
	kind, key := "ip", "src"
	bits := int(p.Prefix)
	if w.service.VIP.Is6() {
		kind = "ipv6"
	}
	switch {
	case bits == 0 || bits == w.service.VIP.BitLen():
	case w.service.VIP.Is4():
		key = fmt.Sprintf("src,ipmask(%d)", bits)
	default:
		key = fmt.Sprintf("src,ipmask(32,%d)", bits)
	}
	w.line("stick-table", "type", kind, "size", "1m", "expire", duration(p.Timeout))
	w.line("stick", "on", key)
}

// shared writes the settings that all servers of the service share.
func (w *writer) shared() {
	s := w.service
	if slices.ContainsFunc(s.Backends, func(b lb.Backend) bool { return b.Backup }) {
		w.line("option", "allbackups")
	}
	w.check()
	if s.IsMonitored() {
		w.CarryService(w.i, "panic", "on_down")
	}
	if s.Checks.On() && s.Checks.Panic > 0 {
		w.ApproximateService(w.i, "panic",
			"HAProxy uses no server that fails, also where all do; Jeoul uses all below %d%% of healthy ones",
			s.Checks.Panic)
	}
}
