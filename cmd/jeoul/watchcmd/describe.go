// SPDX-License-Identifier: Apache-2.0

package watchcmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/jeoul/jeoul/cmd/jeoul/cmdkit"
	"github.com/jeoul/jeoul/internal/balancer/api"
	"github.com/jeoul/jeoul/internal/balancer/events"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
)

// DescribeCmd prints all details of a service or backend of a running balancer for a person.
type DescribeCmd struct {
	Service describeServiceCmd `cmd:"" aliases:"services" help:"Describe a service: owner, configuration, checks, backends, counters, events."`
	Backend describeBackendCmd `cmd:"" aliases:"backends" help:"Describe a backend: configuration, state, path, health, counters, events."`
}

type describeServiceCmd struct {
	cmdkit.DaemonFlags
	Name string `arg:"" name:"service" predictor:"service" help:"The service, such as web."`
}

// Run describes a service.
func (c *describeServiceCmd) Run(ctx context.Context) error {
	d, err := fetchDescription(ctx, c.DaemonFlags, c.Name, "")
	if err == nil {
		d.writeService(os.Stdout, time.Now())
	}
	return err
}

type describeBackendCmd struct {
	cmdkit.DaemonFlags
	Target cmdkit.Target `arg:"" name:"service/backend" predictor:"backend" help:"The backend, such as web/web01."`
}

// Run describes a backend.
func (c *describeBackendCmd) Run(ctx context.Context) error {
	d, err := fetchDescription(ctx, c.DaemonFlags, c.Target.Service, c.Target.Backend)
	if err == nil {
		d.writeBackend(os.Stdout, time.Now())
	}
	return err
}

// maxEvents is the number of latest events in a description.
const maxEvents = 10

// description is the API's view of a service, or of a backend of it.
type description struct {
	service ops.Service
	// backend is the described backend; its name is empty in the description of a whole service.
	backend ops.Backend
	// source is the origin of its configuration, and configured is that configuration, in YAML.
	source, configured string
	operations         []ops.Overlay
	// events are the latest events, and earlier is the number of earlier ones that are kept.
	events  []events.Event
	earlier int
}

// fetchDescription reads everything about a service, or about one of its backends.
func fetchDescription(ctx context.Context, flags cmdkit.DaemonFlags, service, backend string) (*description, error) {
	client, err := flags.NewClient()
	if err != nil {
		return nil, err
	}
	d := &description{}
	found, err := client.Service(ctx, service)
	if err != nil {
		return nil, err
	}
	d.service = *found
	if backend != "" {
		found, err := d.service.Backend(backend)
		if err != nil {
			return nil, err
		}
		d.backend = found.Backend
	}
	operations, err := client.Operations(ctx)
	if err != nil {
		return nil, err
	}
	for _, o := range operations.InForce {
		if o.Service == service && (backend == "" || o.Backend == backend) {
			d.operations = append(d.operations, o)
		}
	}
	return d, errors.Join(d.fetchConfiguration(ctx, client), d.fetchEvents(ctx, client))
}

// fetchConfiguration reads the part of the configuration. A change may have removed it since the status was read.
func (d *description) fetchConfiguration(ctx context.Context, client *api.Client) error {
	part, err := client.Configuration(ctx, d.service.Name, d.backend.Name)
	var problem *api.Problem
	if errors.As(err, &problem) && problem.Status == http.StatusNotFound {
		return nil
	}
	if err != nil {
		return err
	}
	d.source = part.Source
	var text strings.Builder
	err = writeYAML(&text, part.Value)
	d.configured = text.String()
	return err
}

// fetchEvents reads the latest events about the service or the backend.
func (d *description) fetchEvents(ctx context.Context, client *api.Client) error {
	err := client.Events(ctx, "", false, func(event *events.Event, _ *events.Lost) error {
		if event != nil && event.Service == d.service.Name &&
			(d.backend.Name == "" || event.Backend == d.backend.Name) {
			d.events = append(d.events, *event)
		}
		return nil
	})
	d.earlier = max(len(d.events)-maxEvents, 0)
	d.events = d.events[d.earlier:]
	return err
}

// writeService prints a service.
func (d *description) writeService(w io.Writer, now time.Time) {
	s := d.service
	f := newFields(w)
	f.add("Service", s.Name)
	f.add("Owner", s.OwnerText())
	f.add("Address", lb.ServiceKey{VIP: s.VIP, Port: s.Port, Protocol: s.Protocol})
	f.add("Mode", modeText(s))
	f.add("Scheduler", schedulerText(s))
	if s.TableDigest != "" {
		f.add("Table digest", s.TableDigest)
	}
	f.add("Flows", memoryText(s))
	if s.Proxy != nil {
		f.add("Proxy", proxyText(s.Proxy))
	}
	f.add("Serving", servingText(s))
	if s.SlowStartSeconds > 0 {
		f.add("Slow start", cmdkit.SecondsText(s.SlowStartSeconds))
	}
	for _, c := range []struct {
		name string
		of   func(ops.Backend) uint64
	}{{"Connections", func(b ops.Backend) uint64 { return b.Connections }}, {"Packets", func(b ops.Backend) uint64 {
		return b.Packets
	}},
		{"Bytes", func(b ops.Backend) uint64 { return b.Bytes }}} {
		if c.name != "Packets" || !s.Mode.Proxied() {
			f.add(c.name, sumOf(c.of)(s))
		}
	}
	if t := s.Transition; t != nil {
		f.add("Transition", strings.TrimPrefix(transitionText(t, s.Flows, now), "transition "))
	}
	f.render()
	if len(s.Discovered) > 0 {
		fmt.Fprintln(w, "\nDiscovery:")
		writeDiscovered(w, s, now)
	}
	if len(s.Checks) > 0 || s.Outliers != nil {
		fmt.Fprintln(w, "\nHealth:")
		writeChecks(w, s)
	}
	fmt.Fprintln(w, "\nBackends:")
	out := &getWriter[ops.ServiceBackend]{to: w, kind: backendKind, format: "text"}
	_ = out.table(ops.BackendsOf([]ops.Service{s}))
	writeReasons(w, s)
	d.writeRest(w, now)
}

// writeBackend prints a backend.
func (d *description) writeBackend(w io.Writer, now time.Time) {
	s, b := d.service, d.backend
	f := newFields(w)
	f.add("Backend", b.Name)
	f.add("Service", fmt.Sprintf("%s, %s, %s", s.Name, lb.ServiceKey{VIP: s.VIP, Port: s.Port, Protocol: s.Protocol},
		modeText(s)))
	f.add("Owner", s.OwnerText())
	if b.Origin != "" {
		f.add("Found by", b.Origin)
	}
	f.add("Address", endpointOf(s, b))
	f.add("State", d.stateText())
	f.add("Weight", weightText(b))
	if b.Backup {
		f.add("Backup", "takes new flows only while no other backend does")
	}
	f.add("Way", pathText(s, b))
	if e := b.Ejection; e != nil {
		f.add("Ejected", fmt.Sprintf("%s until %s, %d times of late: %s", cmdkit.TimeText(e.Since), cmdkit.TimeText(e.Until),
			e.Times, e.Reason))
	}
	if b.Spared != "" {
		f.add("Not ejected", b.Spared)
	}
	if u := b.SlowStart; u != nil {
		f.add("Slow start", fmt.Sprintf("%d%% of its weight, all of it at %s", u.Percent, cmdkit.TimeText(u.Until)))
	}
	if s.Tracked {
		f.add("Active", activeText(b))
	}
	f.add("Flows", cmdkit.Count(b.Flows))
	if b.Ports != nil {
		f.add("Ports", portsText(b))
	}
	for _, c := range []struct {
		name  string
		value uint64
		shown bool
	}{{"Connections", b.Connections, true}, {"Packets", b.Packets, !s.Mode.Proxied()}, {"Bytes", b.Bytes, true},
		{"Packets returned", b.ReturnedPackets, s.Mode.Translates()},
		{"Bytes returned", b.ReturnedBytes, s.Mode.SeesReplies()},
		{"SYNs answered", b.Answered, s.Mode.Translates()}, {"SYNs refused", b.Refused, s.Mode.Translates()},
		{"Unreachable", b.Unreachable, s.Mode.Translates()}} {
		if c.shown {
			f.add(c.name, cmdkit.Count(c.value))
		}
	}
	if p := b.Proxied; p != nil {
		r := p.Responses
		f.add("Requests", fmt.Sprintf("%s (2xx %s, 3xx %s, 4xx %s, 5xx %s)", cmdkit.Count(p.Requests), cmdkit.Count(r.Successful),
			cmdkit.Count(r.Redirection), cmdkit.Count(r.ClientError), cmdkit.Count(r.ServerError)))
		f.add("Connections failed", fmt.Sprintf("%s, %s retried, %s redispatched", cmdkit.Count(p.Failed), cmdkit.Count(p.Retried),
			cmdkit.Count(p.Redispatched)))
		f.add("Queued", cmdkit.Count(p.Queued))
	}
	f.render()
	d.writeHealth(w)
	d.writeRest(w, now)
}

// stateText is the backend's state, and the reason.
func (d *description) stateText() string {
	b := d.backend
	text := string(b.State)
	if b.Reason != "" {
		text += ": it " + b.Reason + cmdkit.SinceText(b.Since)
	}
	return text
}

// writeHealth prints the verdict of a backend's checks, and the last answer to each.
func (d *description) writeHealth(w io.Writer) {
	h := d.backend.Health
	if h == nil {
		return
	}
	fmt.Fprintf(w, "\nHealth: %v%s\n", healthText(d.backend), cmdkit.SinceText(h.Since))
	if h.Reason != "" {
		fmt.Fprintf(w, "  it %s\n", h.Reason)
	}
	own := slices.DeleteFunc(ops.ChecksOf([]ops.Service{d.service}), func(c ops.BackendCheck) bool {
		return c.Backend != d.backend.Name
	})
	out := &getWriter[ops.BackendCheck]{to: w, kind: checkKind, format: "wide"}
	_ = out.table(own)
}

// writeRest prints the parts that a service and a backend have in common.
func (d *description) writeRest(w io.Writer, now time.Time) {
	if len(d.operations) > 0 {
		fmt.Fprintln(w, "\nOperations:")
		cmdkit.WriteInForce(w, d.operations, now)
	}
	if d.configured != "" {
		fmt.Fprintf(w, "\nConfiguration, of source %s:\n%s", d.source, inset(d.configured))
	}
	if len(d.events) == 0 {
		fmt.Fprintln(w, "\nEvents: none")
		return
	}
	fmt.Fprintln(w, "\nEvents:")
	if d.earlier > 0 {
		fmt.Fprintf(w, "  the latest %d; `jeoul get events` shows %d more\n", len(d.events), d.earlier)
	}
	for _, event := range d.events {
		fmt.Fprint(w, "  ")
		_ = writeEvent(w, &event, nil)
	}
}

// fields are names and values, one pair per line.
type fields struct{ table table.Writer }

func newFields(w io.Writer) fields {
	t := cmdkit.NewTable(w)
	t.ResetHeaders()
	return fields{t}
}

func (f fields) add(name string, value any) {
	f.table.AppendRow(table.Row{name + ":", value})
}
func (f fields) render() { f.table.Render() }

func modeText(s ops.Service) string {
	text := string(s.Mode)
	if s.DSCP != 0 {
		text += fmt.Sprintf(", DSCP %d", s.DSCP)
	}
	if s.MSS != 0 {
		text += fmt.Sprintf(", MSS %d", s.MSS)
	}
	return text
}

func schedulerText(s ops.Service) string {
	text := string(s.Scheduler)
	if s.Hash == lb.HashSource && s.Scheduler != lb.SourceHash {
		text += " by source"
	}
	if s.TableSize > 0 {
		text += fmt.Sprintf(", %s slots", cmdkit.Count(uint64(s.TableSize)))
	}
	return text
}

// weightText returns the weight in force, with the configured one if that differs.
func weightText(b ops.Backend) string {
	if b.ConfiguredWeight == nil {
		return fmt.Sprint(b.Weight)
	}
	return fmt.Sprintf("%d (configured: %d)", b.Weight, *b.ConfiguredWeight)
}

// pathText describes the path of packets to the backend.
func pathText(s ops.Service, b ops.Backend) string {
	if s.Mode.Proxied() {
		return "the proxy's own connections, by the kernel's routing"
	}
	if b.Interface == "" {
		return "none, neighbour " + b.Neighbour
	}
	text := "by " + b.Interface
	if routed(b) {
		text += " through the router " + b.NextHop.String()
	}
	text += fmt.Sprintf(", MAC %s, neighbour %s", cmdkit.OrDash(b.MAC), b.Neighbour)
	if b.MTU > 0 {
		text += fmt.Sprintf(", MTU %d", b.MTU)
	}
	if b.Narrow {
		text += " as a router has reported"
	}
	return text
}

func inset(text string) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		out.WriteString("  " + line)
	}
	return out.String()
}
