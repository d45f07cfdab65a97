// SPDX-License-Identifier: Apache-2.0

// Package doctor examines a host while traffic runs. It reports where packets are lost or delayed, with the
// consequences for users and the remedies.
//
// It reads counters twice. In the interval between, it traces the packets that the kernel drops, sends harmless probes
// on the segment, and follows packets through a Jeoul balancer. There is a file for each source. All results are
// [evidence.Evidence], from which [rules.Findings] derives the findings. [Report.Unread] lists the sources that could
// not be read.
package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/api"
	"github.com/jeoul/jeoul/internal/host/bpfhost"
	"github.com/jeoul/jeoul/internal/host/drops"
	"github.com/jeoul/jeoul/internal/host/namespace"
	"github.com/jeoul/jeoul/internal/tools/doctor/evidence"
	"github.com/jeoul/jeoul/internal/tools/doctor/rules"
)

// Errors that callers may test for.
var (
	// ErrOptions means that the Options are invalid.
	ErrOptions = errors.New("impossible look")
	// ErrNoInterface means that the interface does not exist.
	ErrNoInterface = errors.New("no such interface")
	// ErrDown means that the interface is down.
	ErrDown = errors.New("the interface is down")
	// ErrGone means that the interface disappeared during the examination.
	ErrGone = errors.New("the interface is gone")
)

// Options configure an examination.
type Options struct {
	// Interface is the interface whose counters are evaluated; empty: all but the loopback.
	Interface string
	// For is the time to watch.
	For time.Duration
	// Socket is the socket of Jeoul's daemon. It need not exist.
	Socket string
	// VIPs are probed on the segment, in addition to the VIPs of the daemon and of this host's loopback.
	VIPs []netip.Addr
	// Passive sends nothing and follows no packets: it only reads counters and listens.
	Passive bool
}

// Run examines the host of the calling thread's network namespace. Errors: ErrOptions, ErrNoInterface, ErrDown,
// ErrGone, or the context's, if it ends first.
func Run(ctx context.Context, o Options) (*Report, error) {
	if o.For <= 0 {
		return nil, fmt.Errorf("%w: nothing can be seen in %s; use --for 10s or so", ErrOptions, o.For)
	}
	x := &examination{options: o, evidence: &evidence.Evidence{Lacks: bpfhost.Local().MissingFeatures()}}
	started := time.Now()
	if err := x.collect(ctx); err != nil {
		return nil, err
	}
	host, _ := os.Hostname()
	r := &Report{Schema: Schema, Host: host, Interface: o.Interface, Started: started.UTC(),
		Seconds:  x.evidence.Seconds,
		Findings: rules.Findings(x.evidence), Drops: x.evidence.Drops, Unread: x.gaps, Looked: x.looked,
		Evidence: x.evidence}
	if r.Unread == nil {
		r.Unread = []Gap{}
	}
	return r, nil
}

// examination is one examination of a host.
type examination struct {
	options  Options
	evidence *evidence.Evidence
	gaps     []Gap
	looked   []string
}

// collect collects the evidence. The calling goroutine stays on its thread, which may be in another network namespace.
func (x *examination) collect(ctx context.Context) (err error) {
	e := x.evidence
	// First, so that the tracer sees the drops that the counters count.
	tracer := x.listenToKernel()
	if tracer != nil {
		defer func() { err = errors.Join(err, tracer.Close()) }()
	}
	e.Before = x.read(true)
	began := time.Now()
	if err := checkInterface(x.options.Interface, e.Before.Links, ErrNoInterface); err != nil {
		return err
	}
	survey := x.survey()
	pinger := x.pinger()
	if err := x.watch(ctx, survey, pinger); err != nil {
		return err
	}
	e.Seconds = time.Since(began).Seconds()
	e.After = x.read(false)
	if err := checkInterface(x.options.Interface, e.After.Links, ErrGone); err != nil {
		return err
	}
	x.countDrops(tracer)
	return x.pingHanging(ctx)
}

// checkInterface returns an error if the requested interface cannot be examined.
func checkInterface(name string, links []evidence.Link, missing error) error {
	if name == "" || links == nil {
		return nil
	}
	var names []string
	for _, l := range links {
		if l.Name != name {
			names = append(names, l.Name)
			continue
		}
		if !l.Up {
			return fmt.Errorf("look at %s: %w: `ip link set %s up`, or leave --interface out", name, ErrDown, name)
		}
		return nil
	}
	return fmt.Errorf("look at %s: %w; there are: %s", name, missing, strings.Join(names, ", "))
}

// gap records a source that could not be read.
func (x *examination) gap(source string, err error) {
	g := Gap{Source: source, Reason: err.Error()}
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, drops.ErrNoRights) || errors.Is(err, api.ErrNoRights) {
		g.Remedy = "run as root"
	}
	if !slices.ContainsFunc(x.gaps, func(other Gap) bool { return other.Source == source }) {
		x.gaps = append(x.gaps, g)
	}
}

// get reads one source, and records whether it could be read.
func get[T any](x *examination, source string, first bool, read func() (T, error)) T {
	value, err := read()
	if err != nil {
		x.gap(source, err)
	} else if first {
		x.looked = append(x.looked, source)
	}
	return value
}

// read reads all sources once.
func (x *examination) read(first bool) evidence.Reading {
	r := evidence.Reading{
		Protocols:  get(x, "protocol counters", first, readProtocols),
		CPUs:       get(x, "core counters", first, readCPUs),
		Links:      get(x, "interfaces", first, func() ([]evidence.Link, error) { return readLinks(x.options.Interface) }),
		Neighbours: get(x, "neighbours", first, readNeighbours),
		TableFulls: get(x, "neighbour tables", first, readTableFulls),
		Conntrack:  get(x, "connection tracking", first, readConntrack),
		Sockets:    get(x, "sockets", first, readSockets),
	}
	status, err := api.NewClient(x.options.Socket).Status(context.Background())
	switch {
	case err == nil:
		r.Balancer = status
		if first {
			x.looked = append(x.looked, "balancer")
		}
	case !errors.Is(err, api.ErrNotRunning):
		x.gap("balancer", err)
	}
	return r
}

// listenToKernel starts to trace drops. It returns nil if that is impossible.
func (x *examination) listenToKernel() *drops.Tracer {
	const source = "kernel drop reasons"
	tracer, err := drops.New()
	if err != nil {
		x.gap(source, err)
		return nil
	}
	x.looked = append(x.looked, source)
	x.evidence.Traced = true
	return tracer
}

// countDrops records the kernel's drops in this host's namespace.
func (x *examination) countDrops(tracer *drops.Tracer) {
	here, err := namespace.Current()
	if err != nil {
		x.gap("network namespace", err)
		return
	}
	defer here.Close()
	x.evidence.Machine = isMachine()
	if tracer == nil {
		return
	}
	all, unknown, err := tracer.Read()
	if err != nil {
		x.gap("kernel drop reasons", err)
		x.evidence.Traced = false
		return
	}
	if unknown > 0 {
		x.gap("kernel drop reasons",
			fmt.Errorf("%d drops are not counted: there were more reasons and places than there is room for", unknown))
	}
	x.evidence.Drops = []drops.Drop{}
	for _, d := range all {
		if uint64(d.Namespace) == here.Inode() {
			x.evidence.Drops = append(x.evidence.Drops, d)
		}
	}
	slices.SortFunc(x.evidence.Drops, func(a, b drops.Drop) int {
		if a.Packets != b.Packets {
			return int(int64(b.Packets) - int64(a.Packets))
		}
		return strings.Compare(a.Reason+a.Function, b.Reason+b.Function)
	})
}

// vips returns the addresses that only a balancer may answer for.
func (x *examination) vips() []netip.Addr {
	vips := slices.Clone(x.options.VIPs)
	add := func(a netip.Addr) {
		if !slices.Contains(vips, a) {
			vips = append(vips, a)
		}
	}
	r := &x.evidence.Before
	if r.Balancer != nil {
		for _, s := range r.Balancer.Services {
			add(s.VIP)
		}
	}
	for _, a := range r.LoopbackVIPs() {
		add(a)
	}
	return vips
}
