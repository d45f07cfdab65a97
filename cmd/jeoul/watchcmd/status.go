// SPDX-License-Identifier: Apache-2.0

package watchcmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/jeoul/jeoul/cmd/jeoul/cmdkit"
	"github.com/jeoul/jeoul/internal/balancer/api"
	"github.com/jeoul/jeoul/internal/balancer/config"
	"github.com/jeoul/jeoul/internal/balancer/daemon"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
)

// StatusCmd shows a running balancer as a whole.
type StatusCmd struct {
	cmdkit.DaemonFlags
	StateDir string `name:"state-dir" default:"/run/jeoul" type:"path" placeholder:"DIR" help:"Directory in which a daemon that ended has left the state of its data plane (${default})."`
	Output   string `name:"output" short:"o" enum:"text,wide,json" default:"text" placeholder:"FORMAT" help:"Output format: text (in 120 columns), wide (with more columns) or json (${default})."`
	Verbose  bool   `name:"verbose" short:"v" help:"Show outcomes that no packet had, too."`
}

// Run asks the daemon for its status and prints it.
func (c *StatusCmd) Run(ctx context.Context) error {
	client, err := c.NewClient()
	if err != nil {
		return err
	}
	status, err := client.Status(ctx)
	if errors.Is(err, api.ErrNotRunning) && !c.Remote() {
		for _, line := range daemon.Kept(c.StateDir) {
			err = fmt.Errorf("%w\n%s", err, line)
		}
	}
	if err != nil {
		return err
	}
	if c.Output == "json" {
		encoder := json.NewEncoder(os.Stdout)
		encoder.SetIndent("", "  ")
		return encoder.Encode(status)
	}
	writeStatus(os.Stdout, status, statusForm{verbose: c.Verbose, wide: c.Output == "wide"}, status.Taken(time.Now()))
	return nil
}

// statusForm is the form of the output.
type statusForm struct {
	// verbose shows outcomes without packets, wide every column of the backends.
	verbose, wide bool
}

// writeStatus prints a status for a person.
func writeStatus(w io.Writer, status *ops.Status, form statusForm, now time.Time) {
	fmt.Fprintf(w, "%s on %s: %s\n", hookName(status.Hook), interfaceNames(status), status.Hook.Reason)
	fmt.Fprintf(w, "%s, up %s, process %d, jeoul %s\n",
		status.Config, now.Sub(status.Started).Truncate(time.Second), status.PID, status.Version)
	for _, problem := range status.Problems {
		fmt.Fprintf(w, "! %s\n", problem)
	}
	for _, service := range status.Services {
		writeService(w, service, len(status.Interfaces) > 1, form, now)
	}
	if len(status.Operations.InForce) > 0 {
		fmt.Fprintln(w)
		cmdkit.WriteInForce(w, status.Operations.InForce, now)
	}
	writeTables(w, status, now)
	writeOutcomes(w, status.Outcomes, form.verbose)
}

// writeTables prints the sizes of the tables, and the generation.
func writeTables(w io.Writer, status *ops.Status, now time.Time) {
	fmt.Fprintln(w)
	if f := status.Flows; f != nil {
		fmt.Fprintf(w, "flows       %s proven of %s, %s unproven of %s\n",
			cmdkit.Count(f.Proven), cmdkit.Count(f.ProvenLimit), cmdkit.Count(f.Unproven),
			cmdkit.Count(f.UnprovenLimit))
	}
	if m := status.Memory; m != nil {
		fmt.Fprintf(w, "memory      %s KiB: flows %s, configuration %s, counters %s, fragments %s%s\n",
			kibibytes(m.Total), kibibytes(m.Proven+m.Unproven+m.Returns), kibibytes(m.Configuration),
			kibibytes(m.Counters), kibibytes(m.Fragments), furtherMemory(m))
	}
	if l := status.Local; l != nil {
		fmt.Fprintf(w, "local       %s\n", localText(l))
	}
	if e := status.Proxy; e != nil {
		fmt.Fprintf(w, "proxy       %s\n", engineText(e))
	}
	fmt.Fprintf(w, "generation  %d\n", status.Generation)
	writeFeeds(w, status.Feeds, now)
	writeBGP(w, status.BGP)
	writeVRRP(w, status.VRRP)
	writeMembers(w, status.Members)
}

// localText counts the connections of clients on the balancer's own host.
func localText(l *ops.Local) string {
	text := fmt.Sprintf("%s, sockets with a backend: %s", l.Cgroup, cmdkit.Count(l.Sockets))
	for _, e := range l.Events {
		if e.Count > 0 {
			text += fmt.Sprintf(", %s %s", e.Name, cmdkit.Count(e.Count))
		}
	}
	if l.Warning != "" {
		text += "; " + l.Warning
	}
	return text
}

// furtherMemory lists the memory that is taken only where it is used.
func furtherMemory(m *ops.Memory) (text string) {
	if m.RouteCache > 0 {
		text += ", routes of replies " + kibibytes(m.RouteCache)
	}
	if m.Checks > 0 {
		text += ", health checks " + kibibytes(m.Checks)
	}
	return text
}

// kibibytes rounds up, so that a small number does not become 0.
func kibibytes(bytes uint64) string { return cmdkit.Count((bytes + 1023) / 1024) }

func hookName(h ops.Hook) string {
	switch {
	case h.Name != lb.HookXDP:
		return string(h.Name)
	case h.Generic:
		return "xdp (generic)"
	}
	return "xdp (native)"
}

func interfaceNames(status *ops.Status) string {
	if len(status.Interfaces) == 0 {
		return status.Interface
	}
	names := make([]string, len(status.Interfaces))
	for i, nic := range status.Interfaces {
		names[i] = nic.Name
	}
	return strings.Join(names, ", ")
}

// writeService prints a service. It leaves out columns that could hold only one value, in this mode or on one
// interface.
func writeService(w io.Writer, s ops.Service, several bool, form statusForm, now time.Time) {
	key := lb.ServiceKey{VIP: s.VIP, Port: s.Port, Protocol: s.Protocol}
	fmt.Fprintf(w, "\n%s  %s  %s", s.Name, key, s.Mode)
	if s.DSCP != 0 {
		fmt.Fprintf(w, " %d", s.DSCP)
	}
	fmt.Fprintf(w, "  %s", s.Scheduler)
	if s.Hash == lb.HashSource && s.Scheduler != lb.SourceHash {
		fmt.Fprint(w, " by source")
	}
	if s.MSS != 0 {
		fmt.Fprintf(w, "  mss %d", s.MSS)
	}
	fmt.Fprintf(w, "  %s%s\n", memoryText(s), ownerText(s))
	if s.Proxy != nil {
		fmt.Fprintf(w, "  %s\n", proxyText(s.Proxy))
	}
	if t := s.Transition; t != nil {
		fmt.Fprintf(w, "  %s\n", transitionText(t, s.Flows, now))
	}
	if h := s.Hairpin; h != nil {
		fmt.Fprintf(w, "  %s\n", hairpinText(h))
	}
	if s.Withdrawn {
		fmt.Fprintf(w, "  %s is withdrawn, for no backend serves\n", s.VIP)
	}
	writeDiscovered(w, s, now)
	writeChecks(w, s)
	writeBackends(w, s.Backends, columnsOf(s, several), form.wide)
	writeReasons(w, s)
}

// hairpinText describes which clients are served by a hairpin, and from which addresses.
func hairpinText(h *ops.Hairpin) string {
	from := cmdkit.Joined(h.From)
	if from == "" {
		from = "no address"
	}
	if h.LastPort == 0 {
		return fmt.Sprintf("hairpin: clients in %s are refused, for there are no ports", cmdkit.Joined(h.Clients))
	}
	return fmt.Sprintf("hairpin: clients in %s by full NAT from %s, ports %d-%d, %s active", cmdkit.Joined(h.Clients), from,
		h.FirstPort, h.LastPort, cmdkit.Count(uint64(h.Active)))
}

// ownerText names the source of a service that does not come from the configuration file.
func ownerText(s ops.Service) string {
	if s.Owner == "" || s.Owner == config.FileOwner {
		return ""
	}
	return "  of " + s.OwnerText()
}

// memoryText describes the flows, the persistence and the limits of a service.
func memoryText(s ops.Service) string {
	text := "stateless"
	if s.Tracked {
		text = fmt.Sprintf("tracked: %s active", cmdkit.Count(uint64(s.Active)))
		if s.Proxy != nil {
			text = fmt.Sprintf("%s active", cmdkit.Count(uint64(s.Active)))
		}
		if s.Limits != nil && s.Limits.Connections > 0 {
			text += " of " + cmdkit.Count(uint64(s.Limits.Connections))
		}
		if s.Proxy == nil {
			text += fmt.Sprintf(", %s remembered", cmdkit.Count(s.Flows))
		}
	}
	if p := s.Persistence; p != nil {
		text += fmt.Sprintf("  persistence %s by /%d", time.Duration(p.TimeoutSeconds*float64(time.Second)), p.Prefix)
		if p.Group != "" {
			text += ", group " + p.Group
		}
	}
	if l := s.Limits; l != nil && l.Rate > 0 {
		text += fmt.Sprintf("  rate %s/s", cmdkit.Count(uint64(l.Rate)))
		if !s.Mode.Proxied() {
			text += fmt.Sprintf(", burst %s", cmdkit.Count(uint64(l.Burst)))
		}
	}
	if l := s.Limits; l != nil && l.Refuse != "" {
		text += fmt.Sprintf("  refuse: %s", l.Refuse)
	}
	return text
}

// transitionText describes the progress of a change of backends.
func transitionText(t *ops.Transition, flows uint64, now time.Time) string {
	text := fmt.Sprintf("transition since %s: %s of %s slots moved, %s flows remembered",
		t.Since.Local().Format(time.DateTime), cmdkit.Count(uint64(t.MovedSlots)), cmdkit.Count(uint64(t.Slots)),
		cmdkit.Count(flows))
	if t.Base {
		return text + fmt.Sprintf("; the table before stays for %s", max(t.Until.Sub(now), 0).Round(time.Second))
	}
	return text + "; only these are looked up"
}

// writeReasons prints the reasons why backends that should receive packets do not.
func writeReasons(w io.Writer, s ops.Service) {
	for _, b := range s.Backends {
		if b.SlowStart != nil {
			fmt.Fprintf(w, "  %s is in slow start: %d%% of its weight, all of it at %s\n", b.Name, b.SlowStart.Percent,
				b.SlowStart.Until.Local().Format(time.TimeOnly))
		}
		if b.Ejection != nil {
			fmt.Fprintf(w, "  %s %s\n", b.Name, ejectionText(b.Ejection))
		}
		if b.Health != nil && (b.Health.State == lb.Failing || b.Health.Reason != "") {
			writeFailing(w, s, b)
		} else if b.Reason != "" && b.State != lb.Ejected && b.State != lb.Up && b.State != lb.WeightZero &&
			b.State != lb.Out {
			fmt.Fprintf(w, "  %s %s%s\n", b.Name, b.Reason, cmdkit.SinceText(b.Since))
		}
	}
}

// column is a column of a table of backends.
type column struct {
	name  string
	right bool
	value func(ops.Backend) any
}

// columnsOf returns the columns that are shown for a service's backends.
func columnsOf(s ops.Service, several bool) []column {
	columns := []column{
		{"backend", false, func(b ops.Backend) any { return b.Name }},
		{"address", false, func(b ops.Backend) any { return endpointOf(s, b) }},
		{"weight", true, func(b ops.Backend) any { return b.Weight }},
		{"state", false, func(b ops.Backend) any { return b.State }},
	}
	if !s.Mode.Proxied() {
		columns = append(columns,
			column{"neighbour", false, func(b ops.Backend) any { return b.Neighbour }},
			column{"mac", false, func(b ops.Backend) any { return cmdkit.OrDash(b.MAC) }})
	}
	if len(s.Checks) > 0 {
		columns = slices.Insert(columns, 4, column{"health", false, healthText})
	}
	if isDiscovered(s) {
		columns = append(columns, column{"from", false, func(b ops.Backend) any { return cmdkit.OrDash(string(b.Origin)) }})
	}
	if s.Mode.Proxied() {
		return append(columns, proxiedColumns(s)...)
	}
	if slices.ContainsFunc(s.Backends, routed) {
		columns = append(columns, column{"via", false, func(b ops.Backend) any {
			if !routed(b) {
				return "-"
			}
			return b.NextHop
		}})
	}
	if several {
		columns = append(columns, column{"interface", false, func(b ops.Backend) any { return cmdkit.OrDash(b.Interface) }})
	}
	if !s.Mode.NeedsNeighbours() {
		columns = append(columns, column{"mtu", true, func(b ops.Backend) any { return b.MTU }})
	}
	if s.Tracked {
		columns = append(columns, column{"active", true, activeText})
	}
	if s.Tracked || slices.ContainsFunc(s.Backends, func(b ops.Backend) bool { return b.Flows > 0 }) {
		columns = append(columns, column{"flows", true, func(b ops.Backend) any { return cmdkit.Count(b.Flows) }})
	}
	if s.Mode.UsesPool() {
		columns = append(columns, column{"ports", true, portsText})
	}
	columns = append(columns,
		column{"connections", true, func(b ops.Backend) any { return cmdkit.Count(b.Connections) }},
		column{"packets", true, func(b ops.Backend) any { return cmdkit.Count(b.Packets) }},
		column{"bytes", true, func(b ops.Backend) any { return cmdkit.Count(b.Bytes) }})
	if s.Mode.Translates() {
		columns = append(columns,
			column{"returned", true, func(b ops.Backend) any { return cmdkit.Count(b.ReturnedPackets) }},
			column{"bytes returned", true, func(b ops.Backend) any { return cmdkit.Count(b.ReturnedBytes) }},
			column{"answered", true, func(b ops.Backend) any { return cmdkit.Count(b.Answered) }})
	}
	return append(columns, refusalColumns(s)...)
}

// proxiedColumns returns the columns of a service of mode proxy: counts of connections and requests instead of packets.
func proxiedColumns(s ops.Service) []column {
	of := func(value func(*ops.Proxied) uint64) func(ops.Backend) any {
		return func(b ops.Backend) any {
			if b.Proxied == nil {
				return "-"
			}
			return cmdkit.Count(value(b.Proxied))
		}
	}
	columns := []column{
		{"active", true, activeText},
		{"connections", true, func(b ops.Backend) any { return cmdkit.Count(b.Connections) }},
	}
	if s.Proxy != nil && s.Proxy.Speaks == lb.SpeaksHTTP {
		columns = append(columns,
			column{"requests", true, of(func(p *ops.Proxied) uint64 { return p.Requests })},
			column{"5xx", true, of(func(p *ops.Proxied) uint64 { return p.Responses.ServerError })})
	}
	return append(columns,
		column{"failed", true, of(func(p *ops.Proxied) uint64 { return p.Failed })},
		column{"bytes", true, func(b ops.Backend) any { return cmdkit.Count(b.Bytes) }},
		column{"bytes returned", true, func(b ops.Backend) any { return cmdkit.Count(b.ReturnedBytes) }})
}

// proxyText describes the protocol and the counters of a service of mode proxy.
func proxyText(p *ops.ProxiedService) string {
	text := string(p.Speaks)
	if p.TLS {
		text += " over TLS"
	}
	text += fmt.Sprintf(": %s connections", cmdkit.Count(p.Connections))
	if p.Speaks == lb.SpeaksHTTP {
		r := p.Responses
		text += fmt.Sprintf(", %s requests (2xx %s, 3xx %s, 4xx %s, 5xx %s)", cmdkit.Count(p.Requests), cmdkit.Count(r.Successful),
			cmdkit.Count(r.Redirection), cmdkit.Count(r.ClientError), cmdkit.Count(r.ServerError))
	}
	for _, c := range []struct {
		name string
		n    uint64
	}{{"denied", p.Denied}, {"queued", p.Queued}, {"retried", p.Retried}, {"redispatched", p.Redispatched}} {
		if c.n > 0 {
			text += fmt.Sprintf(", %s %s", cmdkit.Count(c.n), c.name)
		}
	}
	return text
}

// engineText describes the state of the proxy engine.
func engineText(e *ops.ProxyEngine) string {
	if e.PID == 0 {
		return "HAProxy does not run"
	}
	text := fmt.Sprintf("HAProxy %s (%s), process %d", e.Version, e.Program, e.PID)
	if !e.Started.IsZero() {
		text += " since " + e.Started.Local().Format(time.DateTime)
	}
	return text + fmt.Sprintf(", reloads: %d, workers: %d", e.Reloads, e.Workers)
}

// refusalColumns count the refusals of backends, where they have any.
func refusalColumns(s ops.Service) (columns []column) {
	for _, c := range []struct {
		name string
		of   func(ops.Backend) uint64
	}{
		{"refused", func(b ops.Backend) uint64 { return b.Refused }},
		{"unreachable", func(b ops.Backend) uint64 { return b.Unreachable }},
	} {
		if slices.ContainsFunc(s.Backends, func(b ops.Backend) bool { return c.of(b) > 0 }) {
			columns = append(columns, column{c.name, true, func(b ops.Backend) any { return cmdkit.Count(c.of(b)) }})
		}
	}
	return columns
}

// portsText counts the used ports of full NAT's pool, and all ports in it.
func portsText(b ops.Backend) any {
	if b.Ports == nil {
		return "-"
	}
	return cmdkit.Count(b.Ports.Held) + "/" + cmdkit.Count(b.Ports.Limit)
}

// endpointOf returns the address, with the port if it differs from the service's.
func endpointOf(s ops.Service, b ops.Backend) string {
	if b.Port == s.Port {
		return b.Address.String()
	}
	return netip.AddrPortFrom(b.Address, b.Port).String()
}

// routed reports whether packets to a backend go to a router.
func routed(b ops.Backend) bool { return b.NextHop.IsValid() && b.NextHop != b.Address }

func writeOutcomes(w io.Writer, outcomes []ops.Outcome, verbose bool) {
	t := cmdkit.NewTable(w, "outcome", "packets", "meaning")
	cmdkit.RightAlign(t, "packets")
	shown := 0
	for _, o := range outcomes {
		if o.Packets == 0 && !verbose {
			continue
		}
		t.AppendRow(table.Row{o.Name, cmdkit.Count(o.Packets), o.Help})
		shown++
	}
	fmt.Fprintln(w)
	if shown == 0 {
		fmt.Fprintln(w, "no packet so far")
		return
	}
	t.Render()
}
