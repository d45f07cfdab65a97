// SPDX-License-Identifier: Apache-2.0

// Package keepalived writes a configuration as virtual servers of keepalived.conf(5).
package keepalived

import (
	"fmt"
	"slices"
	"strings"

	"github.com/jeoul/jeoul/internal/balancer/config"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/move/exporter/ipvsadm"
	"github.com/jeoul/jeoul/internal/move/exporter/ledger"
	"github.com/jeoul/jeoul/internal/move/remark"
)

// kinds maps modes to keepalived's values of lb_kind.
var kinds = map[lb.Mode]string{lb.L2DSR: "DR", lb.NAT: "NAT", lb.IPIP: "TUN", lb.GUE: "TUN type gue port 6080"}

// Reasons give, by key, why keepalived has no equivalent of it.
var Reasons = ipvsadm.With(map[string]ledger.Reason{
	"flows.timeouts": {Kind: remark.Left,
		Why: "keepalived does not set IPVS's timeouts; `ipvsadm --set` does, once for the host"},
	"members": {Kind: remark.Left,
		Why: "keepalived starts IPVS's sync daemon, which synchronises connections to a backup (lvs_sync_daemon in global_defs); write it by hand"},
	"services[].announce_minimum": {Kind: remark.Left,
		Why: "keepalived's quorum runs a program that can tell a routing daemon (quorum_up, quorum_down); write it by hand"},
	"services[].require": {Kind: remark.Left, Why: "keepalived has a real server pass all of its checks"},
	"services[].on_empty": {Kind: remark.Left,
		Why: "keepalived takes no VIP off; a program of quorum_down can"},
})

// Write writes the services.
func Write(l *ledger.Ledger) string {
	var text strings.Builder
	scripts := false
	for i := range l.Services {
		if ipvsadm.CanServe(l, i) {
			w := &writer{Ledger: l, i: i, service: l.Services[i], text: &text}
			w.virtualServer()
			scripts = scripts || w.scripts
		}
	}
	if scripts {
		return "global_defs {\n\tscript_user root\n\tenable_script_security\n}\n" + text.String()
	}
	return text.String()
}

// writer writes one service.
type writer struct {
	*ledger.Ledger
	i       int
	service lb.Service
	text    *strings.Builder
	depth   int
	// scripts: a check runs a program.
	scripts bool
}

// line writes a statement.
func (w *writer) line(format string, args ...any) {
	fmt.Fprintf(w.text, "%s%s\n", strings.Repeat("\t", w.depth), fmt.Sprintf(format, args...))
}

// block writes a statement and the block that follows it.
func (w *writer) block(statement string, inside func()) {
	w.line("%s {", statement)
	w.depth++
	inside()
	w.depth--
	w.line("}")
}

// virtualServer writes the service.
func (w *writer) virtualServer() {
	s := w.service
	w.line("# %s", w.Origin(w.i))
	w.block(fmt.Sprintf("virtual_server %s %d", s.VIP, s.Port), func() {
		name, ports := ipvsadm.Scheduler(s)
		w.line("lb_algo %s", name)
		if ports {
			w.line("mh-port")
		}
		w.line("lb_kind %s", kinds[s.Mode])
		w.line("protocol %s", strings.ToUpper(s.Protocol.String()))
		if s.Persistence.On() {
			w.line("persistence_timeout %d", ipvsadm.Persistence(w.Ledger, w.i))
			if mask := ipvsadm.Mask(s); mask != "" {
				w.line("persistence_granularity %s", mask)
			}
		}
		w.judging()
		w.realServers()
	})
}

// judging remarks on differences in the treatment of a backend that fails.
func (w *writer) judging() {
	s := w.service
	if !s.Checks.On() {
		return
	}
	w.CarryService(w.i, "panic", "on_down")
	if s.Checks.Panic > 0 && !slices.ContainsFunc(s.Backends, func(b lb.Backend) bool { return b.Backup }) {
		w.ApproximateService(w.i, "panic",
			"keepalived has no real server where none passes its checks; Jeoul uses all below %d%% of them",
			s.Checks.Panic)
	}
	if !s.Checks.OnDown.Keeps() {
		w.ApproximateService(w.i, "on_down",
			"IPVS drops packets of a real server that was removed; with the sysctl net.ipv4.vs.expire_nodest_conn=1 their connections end")
	}
}

// realServers writes the backends. A backup becomes the sorry_server.
func (w *writer) realServers() {
	sorry := false
	for j, b := range w.service.Backends {
		switch {
		case !b.Backup:
			w.realServer(j, b)
		case sorry:
			w.Left(config.BackendField(w.i, j, ""),
				"backend %s: keepalived has one sorry_server, and another backend is it", b.Name)
		default:
			sorry = true
			w.sorryServer(j, b)
		}
	}
}

func (w *writer) sorryServer(j int, b lb.Backend) {
	w.CarryBackend(w.i, j, "name", "address", "port", "backup")
	if w.service.Checks.On() {
		w.Approximate(config.BackendField(w.i, j, "backup"),
			"backup: becomes sorry_server, which keepalived does not check")
	}
	w.line("sorry_server %s %d", b.Address, b.Port)
}

func (w *writer) realServer(j int, b lb.Backend) {
	s := w.service
	w.line("# %s", b.Name)
	w.block(fmt.Sprintf("real_server %s %d", b.Address, b.Port), func() {
		w.line("weight %d", ipvsadm.Weight(w.Ledger, w.i, j))
		if b.Upper > 0 {
			w.line("uthreshold %d", b.Upper)
			w.line("lthreshold %d", ipvsadm.Lower(b))
		}
		if s.Checks.On() && s.Checks.OnDown.Keeps() {
			w.line("inhibit_on_failure") // the connections of a failed backend continue
		}
		for k := range s.Checks.List {
			w.check(k, b)
		}
	})
}
