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
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/jeoul/jeoul/cmd/jeoul/cmdkit"
	"github.com/jeoul/jeoul/internal/balancer/api"
	"github.com/jeoul/jeoul/internal/balancer/capture"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/trace"
	"github.com/jeoul/jeoul/internal/text/terminal"
)

// TraceCmd explains a packet's path, or follows real ones.
type TraceCmd struct {
	cmdkit.DaemonFlags
	cmdkit.OutputFlag
	Live bool `name:"live" help:"Follow real packets, rather than ask about one."`

	Src      string `name:"src" placeholder:"ADDRESS" help:"The client's address; with --live also a prefix such as 198.18.1.0/24."`
	Sport    uint16 `name:"sport" placeholder:"PORT" help:"The client's port."`
	VIP      string `name:"vip" placeholder:"ADDRESS" help:"The destination; with --live also a prefix."`
	Port     uint16 `name:"port" placeholder:"PORT" help:"The destination's port."`
	Protocol string `name:"protocol" enum:",tcp,udp" default:"" placeholder:"tcp|udp" help:"Default: tcp; with --live both."`

	Flags     []string `name:"flags" placeholder:"FLAG" help:"TCP flags of the packet that is asked about (syn)."`
	Length    int      `name:"length" placeholder:"BYTES" help:"Length of the IP packet that is asked about (without payload)."`
	Interface string   `name:"interface" placeholder:"NAME" help:"Where the packet that is asked about comes in (the balancer's first)."`

	Count  int           `name:"count" placeholder:"N" help:"With --live: end after so many packets."`
	For    time.Duration `name:"for" placeholder:"DURATION" help:"With --live: end after so long (Ctrl-C)."`
	Sample uint32        `name:"sample" placeholder:"N" help:"With --live: one packet in N, at random."`
}

// Validate rejects flags that contradict each other.
func (c *TraceCmd) Validate() error {
	for _, misplaced := range []struct {
		name        string
		given, live bool
	}{
		{"--flags", len(c.Flags) > 0, false}, {"--length", c.Length != 0, false},
		{"--interface", c.Interface != "", false},
		{"--count", c.Count != 0, true}, {"--for", c.For != 0, true}, {"--sample", c.Sample != 0, true},
	} {
		if misplaced.given && misplaced.live && !c.Live {
			return fmt.Errorf("%s goes with --live", misplaced.name)
		}
		if misplaced.given && !misplaced.live && c.Live {
			return fmt.Errorf("%s does not go with --live", misplaced.name)
		}
	}
	if !c.Live && (c.Src == "" || c.Sport == 0 || c.VIP == "" || c.Port == 0) {
		return errors.New("say --src, --sport, --vip and --port of the packet, or --live")
	}
	if c.Count < 0 || c.For < 0 {
		return errors.New("--count and --for are not negative")
	}
	return nil
}

// Run asks the daemon about a packet and prints the explanation, or follows real ones.
func (c *TraceCmd) Run(ctx context.Context) error {
	if c.Live {
		return c.follow(ctx)
	}
	question, err := c.question()
	if err != nil {
		return err
	}
	client, err := c.NewClient()
	if err != nil {
		return err
	}
	packet, err := client.Explain(ctx, question)
	if err != nil {
		return err
	}
	if c.JSON() {
		encoder := json.NewEncoder(os.Stdout)
		encoder.SetIndent("", "  ")
		return encoder.Encode(packet)
	}
	writeExplanation(os.Stdout, packet)
	return writeProxied(ctx, os.Stdout, client, question)
}

// writeProxied names the service of mode proxy for a packet: the data plane has no such service, and leaves the packet
// to the kernel.
func writeProxied(ctx context.Context, w io.Writer, client *api.Client, question trace.Question) error {
	services, err := client.Services(ctx)
	if err != nil {
		return err
	}
	for _, s := range services {
		if s.Mode.Proxied() && s.VIP == question.Destination && s.Port == question.DestinationPort &&
			question.Protocol == s.Protocol {
			fmt.Fprintf(w,
				"\nThe kernel hands it to the proxy, which serves %s (mode %s): `jeoul describe service %s`\n", s.Name,
				s.Mode, s.Name)
		}
	}
	return nil
}

func (c *TraceCmd) question() (trace.Question, error) {
	source, err := netip.ParseAddr(c.Src)
	if err != nil {
		return trace.Question{}, fmt.Errorf("--src: %v", err)
	}
	destination, err := netip.ParseAddr(c.VIP)
	if err != nil {
		return trace.Question{}, fmt.Errorf("--vip: %v", err)
	}
	question := trace.Question{Source: source.Unmap(), SourcePort: c.Sport, Destination: destination.Unmap(),
		DestinationPort: c.Port,
		Protocol:        lb.TCP, Flags: c.Flags, Length: c.Length, Interface: c.Interface}
	if c.Protocol == lb.UDP.String() {
		question.Protocol = lb.UDP
	} else if len(c.Flags) == 0 {
		question.Flags = []string{"syn"}
	}
	for i, flag := range question.Flags {
		question.Flags[i] = strings.ToLower(flag)
	}
	return question, nil
}

// errCountReached ends a trace that has printed the requested number of packets.
var errCountReached = errors.New("enough packets")

// requestAndClient returns a request that read makes from a command's flags, and a client of the daemon that will
// answer it.
func requestAndClient[R any](flags cmdkit.DaemonFlags, read func() (R, error)) (
	request R, client *api.Client, err error,
) {
	if request, err = read(); err != nil {
		return request, nil, err
	}
	client, err = flags.NewClient()
	return request, client, err
}

// follow prints real packets as they come.
func (c *TraceCmd) follow(ctx context.Context) error {
	request, client, err := requestAndClient(c.DaemonFlags, c.request)
	if err != nil {
		return err
	}
	shown := 0
	err = client.Trace(ctx, request, func(event trace.Event) error {
		if err := c.printEvent(event); err != nil {
			return err
		}
		if event.Packet != nil {
			shown++
		}
		if c.Count > 0 && shown >= c.Count {
			return errCountReached
		}
		return nil
	})
	switch {
	case errors.Is(err, errCountReached):
		return nil
	case err == nil && ctx.Err() == nil && c.For == 0:
		return fmt.Errorf("the daemon on %s ended the trace: it stops", client.At())
	}
	return err
}

func (c *TraceCmd) request() (api.TraceRequest, error) {
	request := api.TraceRequest{Seconds: c.For.Seconds()}
	request.SourcePort, request.DestinationPort, request.Sample = c.Sport, c.Port, c.Sample
	var err error
	if request.Source, err = parsePrefix(c.Src); err != nil {
		return request, fmt.Errorf("--src: %v", err)
	}
	if request.Destination, err = parsePrefix(c.VIP); err != nil {
		return request, fmt.Errorf("--vip: %v", err)
	}
	switch c.Protocol {
	case lb.TCP.String():
		request.Protocol = lb.TCP
	case lb.UDP.String():
		request.Protocol = lb.UDP
	}
	return request, nil
}

// parsePrefix parses a prefix, an address (as a prefix of its own), or an empty text.
func parsePrefix(text string) (netip.Prefix, error) {
	if text == "" {
		return netip.Prefix{}, nil
	}
	if strings.Contains(text, "/") {
		return netip.ParsePrefix(text)
	}
	address, err := netip.ParseAddr(text)
	if err != nil {
		return netip.Prefix{}, err
	}
	address = address.Unmap()
	return netip.PrefixFrom(address, address.BitLen()), nil
}

// printEvent prints an event: packets to standard output, and notices for a person to standard error.
func (c *TraceCmd) printEvent(event trace.Event) error {
	if c.JSON() {
		return json.NewEncoder(os.Stdout).Encode(event)
	}
	if event.Started {
		fmt.Fprintln(os.Stderr, "jeoul: tracing; Ctrl-C ends it")
	}
	if event.Packet != nil {
		if _, err := fmt.Println(event.Packet.Line()); err != nil {
			return err
		}
	}
	if event.Lost > 0 {
		fmt.Fprintf(os.Stderr, "jeoul: %s more packets came too fast to tell of them; ask for fewer, or say --sample\n",
			cmdkit.Count(event.Lost))
	}
	return nil
}

// writeExplanation prints the outcome that a packet would have.
func writeExplanation(w io.Writer, p *trace.Packet) {
	fmt.Fprintf(w, "%s, in on %s (%s)\n\n", p.Came.Text(), cmdkit.OrDash(p.Interface), p.Hook)
	line := func(label, text string) {
		if text != "" {
			fmt.Fprintf(w, "%-9s %s\n", label, text)
		}
	}
	if s := p.Service; s != nil {
		key := lb.ServiceKey{VIP: s.VIP, Port: s.Port, Protocol: s.Protocol}
		line("service", fmt.Sprintf("%s: %s, mode %s, scheduler %s", s.Name, key, s.Mode, s.Scheduler))
	}
	line("choice", choiceText(p))
	if b := p.Backend; b != nil {
		line("backend", fmt.Sprintf("%s: %s", b.Name, netip.AddrPortFrom(b.Address, b.Port)))
	}
	if path := p.Path; path != nil {
		line("path", fmt.Sprintf("out on %s, next hop %s, MTU %d", pathInterface(p), path.NextHop, path.MTU))
	}
	line("outcome", fmt.Sprintf("%s: %s", p.Outcome, p.Help))
	if len(p.Changes) == 0 {
		return
	}
	fmt.Fprintln(w)
	t := cmdkit.NewTable(w, "header", "field", "before", "after")
	for _, c := range p.Changes {
		t.AppendRow(table.Row{c.Layer, c.Field, cmdkit.OrDash(c.Before), cmdkit.OrDash(c.After)})
	}
	t.Render()
}

func pathInterface(p *trace.Packet) string {
	if p.Path.Interface == "" {
		return cmdkit.OrDash(p.Interface)
	}
	return p.Path.Interface
}

// choiceText returns the reason for the selection of a backend; "" if none was selected.
func choiceText(p *trace.Packet) string {
	var reasons []string
	for _, r := range p.Reasons {
		reasons = append(reasons, map[trace.Reason]string{
			trace.Quoted:        "an ICMP error: the packet that it quotes decides",
			trace.Reply:         "a reply: it is known by the backend that sends it",
			trace.FromBackend:   "from a backend's port, and no reply to a client of the service: it stays as it is",
			trace.KnownFragment: "a fragment: it goes where the datagram's first went",
			trace.KnownFlow:     "the flow is remembered",
			trace.NewFlow:       "a new flow" + pickText(p.Service),
			trace.Hairpin:       "hairpin: the backend would answer this client directly, and full NAT brings the answer back",
			trace.PreviousOwner: "the slot has changed hands, and the flow stays where it was",
		}[r])
	}
	// A remembered or picked backend did not come from the slot.
	if p.Slot == nil || p.Has(trace.KnownFlow) || p.Has(trace.NewFlow) {
		return strings.Join(reasons, "; ")
	}
	return strings.Join(append(reasons, slotText(p)), "; ")
}

// pickText describes how a service that remembers its flows picks the backend of a new one.
func pickText(s *trace.Service) string {
	if s == nil {
		return ""
	}
	return ", picked by " + string(s.Scheduler)
}

// slotText describes which slot of the service's table decided, and why.
func slotText(p *trace.Packet) string {
	of := "address and port"
	if p.Service != nil && p.Service.BySource {
		of = "address"
	}
	slot := fmt.Sprintf("slot %d of %d, by the hash of the client's %s", *p.Slot, p.Slots, of)
	if p.Service != nil && p.Service.Scheduler.Remembers() {
		return "no flow that is remembered: " + slot
	}
	return slot
}

// CaptureCmd captures real packets, with the outcome of each.
type CaptureCmd struct {
	cmdkit.DaemonFlags
	cmdkit.OutputFlag
	Write  string         `name:"write" short:"w" placeholder:"FILE" help:"Write a pcapng file; - is standard output, for a pipe."`
	Frames capture.Frames `name:"frames" enum:"in,out,both" default:"in" placeholder:"in|out|both" help:"Write packets as they come in, as they leave, or both (${default})."`

	Service    string   `name:"service" placeholder:"NAME" help:"Packets of this service, and replies of its backends."`
	Backend    string   `name:"backend" placeholder:"NAME" help:"With --service: packets to and from this backend."`
	Outcome    []string `name:"outcome" placeholder:"NAME" help:"Packets that end so: an outcome of status -v, or the word that some begin with, as dropped."`
	Client     string   `name:"client" placeholder:"NETWORK" help:"Packets of this client, or of a prefix, and replies to it."`
	ClientPort uint16   `name:"client-port" placeholder:"PORT" help:"The client's port."`
	VIP        string   `name:"vip" placeholder:"ADDRESS" help:"The destination, as clients see it; also a prefix."`
	Port       uint16   `name:"port" placeholder:"PORT" help:"The destination's port."`
	Protocol   string   `name:"protocol" enum:",tcp,udp" default:"" placeholder:"tcp|udp" help:"Default: any."`
	Family     int      `name:"family" enum:"0,4,6" default:"0" placeholder:"N" help:"4 or 6, for IPv4 or IPv6 (both)."`
	Interface  string   `name:"interface" placeholder:"NAME" help:"Where packets come in (any)."`
	Sample     uint32   `name:"sample" placeholder:"N" help:"One packet in N, at random."`

	Snap  int           `name:"snap" placeholder:"BYTES" help:"Capture so many bytes of a frame (its headers, without payload)."`
	Count uint64        `name:"count" placeholder:"N" help:"End after so many packets."`
	For   time.Duration `name:"for" default:"1m" placeholder:"DURATION" help:"End after so long (${default})."`
	Rate  uint32        `name:"rate" default:"10000" placeholder:"N" help:"Take at most so many packets a second (${default})."`
	Bytes uint64        `name:"bytes" default:"1073741824" placeholder:"N" help:"End after so many bytes of frames (${default})."`
}

// Validate rejects flags that contradict each other.
func (c *CaptureCmd) Validate() error {
	switch {
	case c.For <= 0:
		return errors.New("--for is positive")
	case c.Rate == 0 || c.Bytes == 0:
		return errors.New("--rate and --bytes are positive")
	case c.Snap < 0:
		return errors.New("--snap is not negative")
	case c.Write == "" && c.Frames != capture.FramesIn:
		return errors.New("--frames goes with --write: a line has both")
	case c.Write != "" && c.JSON():
		return errors.New("-o json does not go with --write")
	}
	return nil
}

// Run makes the daemon capture packets, and writes them.
func (c *CaptureCmd) Run(ctx context.Context) error {
	request, client, err := requestAndClient(c.DaemonFlags, c.request)
	if err != nil {
		return err
	}
	version, _ := cmdkit.Build()
	out := &capture.Output{Messages: os.Stderr, Frames: c.Frames, Application: "jeoul " + version}
	switch c.Write {
	case "":
		out.Lines, out.JSON = os.Stdout, c.JSON()
	case "-":
		if terminal.Is(os.Stdout) {
			return errors.New(
				"--write - writes a binary file, and standard output is a terminal: pipe it, as in | wireshark -k -i -")
		}
		out.File = os.Stdout
	default:
		// Captured packets may hold secrets, so only the owner may read the file.
		file, err := os.OpenFile(c.Write, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
		if err != nil {
			return err
		}
		defer file.Close()
		out.File = &capture.WholePackets{File: file}
	}
	if err = client.Capture(ctx, request, out.Notify); err != nil {
		return err
	}
	fmt.Fprintln(os.Stderr, "jeoul: "+out.Summary())
	return nil
}

func (c *CaptureCmd) request() (capture.Request, error) {
	r := capture.Request{Snap: c.Snap, Packets: c.Count, Seconds: c.For.Seconds(), Rate: c.Rate, Bytes: c.Bytes,
		Filter: capture.Filter{Service: c.Service, Backend: c.Backend, Outcomes: c.Outcome, Family: c.Family,
			Interface: c.Interface}}
	ends := TraceCmd{Src: c.Client, VIP: c.VIP, Sport: c.ClientPort, Port: c.Port, Protocol: c.Protocol,
		Sample: c.Sample}
	asked, err := ends.request()
	if err != nil {
		return r, fmt.Errorf("%s", strings.Replace(err.Error(), "--src", "--client", 1))
	}
	r.Filter.Filter = asked.Filter
	return r, nil
}
