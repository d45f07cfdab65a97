// SPDX-License-Identifier: Apache-2.0

package weighcmd

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/jeoul/jeoul/internal/weigh/results"
	"github.com/jeoul/jeoul/internal/weigh/wire"
)

// WireCmd tests at packet level.
type WireCmd struct {
	Send  wireSendCmd  `cmd:"" default:"withargs" help:"Offer a load from client ports to a VIP, and report (default)."`
	Serve wireServeCmd `cmd:"" help:"Have interfaces answer as servers of a VIP."`
	Pass  wirePassCmd  `cmd:"" help:"Let a veth take what the port at its other end sends."`
}

// wireServerFlags describe server ports.
type wireServerFlags struct {
	Server     []wirePort     `name:"server-interface" placeholder:"IF[@NETNS][=ADDRESS]" help:"A server port: an interface (in a namespace of ip netns), and its own address, for modes in which that is asked; may be repeated."`
	VIP        netip.AddrPort `name:"vip" placeholder:"ADDRESS:PORT" help:"The VIP (198.18.0.100:80 with --self-test)."`
	Reply      wire.Reply     `enum:"direct,sender" default:"sender" placeholder:"direct|sender" help:"Where server ports answer to: direct (to the client port that has the address: direct server return) or sender (to the MAC address that the packet came from) (${default})."`
	ServerPort uint16         `placeholder:"PORT" help:"Port of the server ports' own addresses (the VIP's)."`
	DSCP       []wireMark     `name:"dscp" placeholder:"N=ADDRESS" help:"Mode dscp: the code point that stands for a VIP; may be repeated. Tunnels (ipip, gue) need nothing."`
	Response   int            `placeholder:"BYTES" help:"Length of a server port's answer to a request; 0: it closes."`
	Seed       uint64         `default:"1" placeholder:"N" help:"Seed of sequence numbers and of a flood's sources (${default})."`
}

// wireSendCmd offers a load.
type wireSendCmd struct {
	wireServerFlags `embed:""`
	benchOutput     `embed:""`
	wireLoadFlags   `embed:""`

	Lab     int        `name:"self-test" placeholder:"N" xor:"place" help:"Measure the tester itself: N client ports and N server ports in namespaces of their own, joined by plain wires."`
	Client  []wirePort `name:"client-interface" placeholder:"IF[@NETNS]=PREFIX" xor:"place" help:"A client port: an interface, and the IPv4 addresses of its clients; may be repeated."`
	NextMAC []wireMAC  `name:"next" placeholder:"MAC" help:"Where clients' packets go to: the balancer's MAC address; of several, in turn. Without it: the server ports themselves."`
	Ports   wirePorts  `name:"source-ports" default:"1024-65535" placeholder:"FIRST-LAST" help:"Ports of the clients (${default})."`
	Held    int        `name:"sessions" placeholder:"N" help:"Connections that can be told apart at a time, in 32 bytes each; of more than half as many, setups are reset again within a step (1048576, or what is held)."`
	CPU     int        `default:"-1" placeholder:"N" help:"The core that sends (whichever)."`
	Polite  bool       `help:"Let the sender take its turn among the machine's processes, such as a server on the same cores; it may then be late."`
	Batch   int        `default:"64" placeholder:"N" help:"Frames that are made at a time (${default}); more overflow a veth that is answered."`
	Subject string     `default:"target" placeholder:"NAME" help:"Name of the tested balancer in the results (${default})."`
	Yes     []string   `name:"yes-send-traffic" placeholder:"IF" help:"Do send on this interface; each client port is to be named. Only --self-test needs no consent."`
	Ceiling *bool      `negatable:"" default:"true" help:"Measure first, on a plain wire in namespaces, what the tester itself can do."`
}

// Validate rejects loads that cannot be sent before anything is touched.
func (c *wireSendCmd) Validate() error {
	if err := c.wireLoadFlags.Validate(); err != nil {
		return err
	}
	if c.Lab != 0 {
		if len(c.Server) > 0 || len(c.NextMAC) > 0 {
			return errors.New("--self-test has ports of its own: leave --server-interface and --next out")
		}
		return nil
	}
	switch {
	case len(c.Client) == 0:
		return errors.New(
			"no client port: say --client-interface IF=PREFIX, or --self-test N to measure the tester itself")
	case !c.VIP.IsValid():
		return errors.New("--vip ADDRESS:PORT is missing: where should clients send to?")
	case len(c.NextMAC) == 0 && len(c.Server) == 0:
		return errors.New("--next MAC is missing: who should the packets go to? (`ip neigh show` lists MAC addresses)")
	}
	for _, p := range c.Client {
		if !p.prefix.IsValid() {
			return fmt.Errorf(
				"--client-interface %s: it needs the addresses of its clients: --client-interface %s=PREFIX", p, p)
		}
		if !slices.Contains(c.Yes, p.Name) {
			return fmt.Errorf(
				"--client-interface %s: this sends up to millions of packets a second, from addresses of %v; if that is what you want, add --yes-send-traffic %s",
				p, p.prefix, p.Name)
		}
	}
	return nil
}

// wireNotes are the conditions that a reader of the figures must know.
var wireNotes = []string{
	"clients and servers are eBPF programs without sockets: packets are answered where they arrive, in native XDP",
	"direct is the tester's own ceiling: the same load on plain wires in namespaces, with nothing between",
	"offered is the rate that was asked for, begun what the tester did; what came late, twice or from no known server is counted apart and in no result",
	"what is lost between ports is what one side has sent and the other has not received; what a balancer adds or takes away shows there, too",
}

// Run offers the load.
func (c *wireSendCmd) Run(ctx context.Context) error {
	load, err := c.load()
	if err != nil {
		return err
	}
	run := &results.Run{Suite: "wire", Title: "What comes of a packet-level load",
		Environment: results.Environment{Notes: wireNotes}}
	return c.run(run, func() ([]results.Trial, error) {
		trials, err := c.ceiling(ctx, load)
		if err != nil {
			return trials, err
		}
		measured, err := c.measure(ctx, load)
		return append(trials, measured...), err
	})
}

// measure offers the load to the balancer under test.
func (c *wireSendCmd) measure(ctx context.Context, load wire.Load) ([]results.Trial, error) {
	spec, done, err := c.spec(load)
	if err != nil {
		return nil, err
	}
	defer done()
	subject := c.Subject
	if c.Lab != 0 {
		subject = "direct"
	}
	return c.test(ctx, spec, load, subject)
}

// ceiling measures the tester itself, as fast as it can, for as long as a step takes.
func (c *wireSendCmd) ceiling(ctx context.Context, load wire.Load) ([]results.Trial, error) {
	if !*c.Ceiling || c.Lab != 0 && load.Rate == 0 && load.Ladder == nil && load.Search == nil ||
		load.Kind == wire.Capacity {
		return nil, nil
	}
	plain, err := wire.NewPlain(max(c.Lab, len(c.Client)))
	if err != nil {
		return nil, err
	}
	defer plain.Close()
	spec := plain.Spec
	spec.CPU, spec.Polite, spec.Batch, spec.Seed = c.CPU, c.Polite, c.Batch, c.Seed
	load.Rate, load.Ladder, load.Search, load.Connections, load.Duration, load.WarmUp = 0, nil, nil, 0, time.Second, 0
	return c.test(ctx, spec, load, "direct")
}

// test runs a load on an arrangement, reports each step, and returns the steps as trials.
func (c *wireSendCmd) test(ctx context.Context, spec wire.Spec, load wire.Load, subject string) (trials []results.Trial,
	err error) {
	tester, err := wire.New(ctx, spec)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, tester.Close()) }()
	steps, err := tester.Run(ctx, load, func(s wire.Step) { fmt.Fprintln(os.Stderr, wireLine(subject, s)) })
	if errors.Is(err, wire.ErrInterrupted) {
		err = context.Canceled
	}
	return wireTrials(spec, load, subject, steps), err
}

// spec returns the arrangement, and a function that removes it.
func (c *wireSendCmd) spec(load wire.Load) (spec wire.Spec, done func(), err error) {
	done = func() {}
	if c.Lab != 0 {
		plain, err := wire.NewPlain(c.Lab)
		if err != nil {
			return spec, done, err
		}
		spec, done = plain.Spec, func() { plain.Close() }
		if c.VIP.IsValid() {
			spec.Target = c.VIP
		}
	} else if spec, done, err = c.ports(); err != nil {
		return spec, done, err
	}
	spec.SourcePorts, spec.CPU, spec.Polite, spec.Batch, spec.Seed = c.Ports, c.CPU, c.Polite, c.Batch, c.Seed
	spec.Connections = c.Held
	if spec.Connections == 0 && load.Kind == wire.Capacity {
		spec.Connections = int(min(load.Connections, math.MaxInt32))
	}
	return spec, done, nil
}

// ports opens the ports that the command line names.
func (c *wireSendCmd) ports() (wire.Spec, func(), error) {
	spec, done, err := c.wireServerFlags.spec()
	if err != nil {
		return spec, done, err
	}
	clients, closeAll, err := openPorts(c.Client)
	both := func() { closeAll(); done() }
	if err != nil {
		return spec, both, err
	}
	spec.Clients = clients
	for _, m := range c.NextMAC {
		spec.Next = append(spec.Next, net.HardwareAddr(m))
	}
	if len(spec.Next) == 0 {
		spec.Next, err = wire.MACs(spec.Servers)
	}
	return spec, both, err
}

// spec returns the arrangement of server ports only.
func (f *wireServerFlags) spec() (wire.Spec, func(), error) {
	servers, done, err := openPorts(f.Server)
	spec := wire.Spec{Servers: servers, Target: f.VIP, ServerPort: f.ServerPort, Reply: f.Reply, CPU: -1, Seed: f.Seed}
	for _, m := range f.DSCP {
		if spec.DSCP == nil {
			spec.DSCP = map[uint8]netip.Addr{}
		}
		spec.DSCP[m.Point] = m.vip
	}
	return spec, done, err
}
