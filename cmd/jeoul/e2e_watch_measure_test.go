// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/prometheus/procfs"
	"github.com/vishvananda/netlink"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/weigh/bench/harness"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

const (
	// measuredServices is the number of services, and measuredBackends that of each one's backends.
	measuredServices, measuredBackends = 100, 20
	// watchPairs is how often the balancer is measured without and with watchers, in turn, for watchPart each time.
	watchPairs = 6
	watchPart  = 10 * time.Second
	// burst is the number of packets that pass the program at once: so few that most bursts are not interrupted,
	// whatever else runs on the machine. burstPause gives the daemon a core in between.
	burst      = 1000
	burstPause = 20 * time.Millisecond
	// maxWatchCost is the share of a core that the daemon may use while it is watched.
	maxWatchCost = 0.05
)

// TestWatchingMeasured measures the cost of watching a balancer with 100 services of 20 backends by Prometheus each
// second, `jeoul top` and three dashboards: the daemon's CPU time, and the time that a packet takes in the program that
// the daemon has attached, with and without watchers in turn.
func TestWatchingMeasured(t *testing.T) {
	file := measured(t, "watching.txt")
	w := newMeasuredWatch(t)
	load, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(file,
		"# make bench-watch: %d services of %d backends (l2dsr, TC, no checks). "+
			"In turn, %d times %v each: unwatched; watched.\n"+
			"# daemon: part of a core, user and system. packet: median and quartiles of bursts of %d packets by BPF_PROG_TEST_RUN through the\n"+
			"# program that the daemon has attached, which others on the machine disturb. Load before: %s",
		measuredServices, measuredBackends, watchPairs, watchPart, burst, load)
	for _, stream := range []struct{ name, query string }{
		{"metrics each second, top, 3 dashboards as they open", ""},
		{"metrics each second, top, 3 dashboards with all backends open", "?all=true"},
	} {
		var quiet, watched watchFigures
		for range watchPairs {
			quiet.add(w.part(t))
			end := w.watch(t, stream.query)
			watched.add(w.part(t))
			end()
		}
		fmt.Fprintf(file, "%s\n  unwatched  %s\n  watched    %s\n  read       %s\n", stream.name, quiet, watched,
			w.read())
		if cost := watched.cost() - quiet.cost(); cost > maxWatchCost {
			t.Errorf("%s: watching takes %.1f %% of a core, more than %.0f %%", stream.name, 100*cost, 100*maxWatchCost)
		}
	}
}

// measuredWatch is a balancer with watchers.
type measuredWatch struct {
	*balancer
	harness *harness.Harness
	program *ebpf.Program
	stream  harness.Stream
	client  *http.Client
	// The watchers have received these since the last call.
	scrapes, statuses, bytes atomic.Int64
}

// newMeasuredWatch starts the balancer.
func newMeasuredWatch(t *testing.T) *measuredWatch {
	t.Helper()
	l := newLab(t, lab.Spec{Clients: 1, Servers: 1})
	w := &measuredWatch{balancer: newBalancer(t, l.Balancer)}
	w.configure(t, lb.HookTC, entry{"services": manyServices(t, l, measuredServices, measuredBackends)})
	w.startBuilt(t)
	w.eventually(t, "every backend is up", allUp)
	w.client = &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _,
		_ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", w.socket)
	}}}
	t.Cleanup(w.client.CloseIdleConnections)
	w.aim(t, netip.AddrPortFrom(l.VIP4, manyPort))
	return w
}

// manyPort is the port of the first of many services.
const manyPort = 2000

// manyServices returns services on one VIP by ports, each with the same backends, which are addresses of one server.
func manyServices(t *testing.T, l *lab.Lab, services, backends int) (all []entry) {
	t.Helper()
	server := l.Servers[0]
	first := server.IPv4.As4()
	var list []entry
	err := server.Do(func() error {
		device, err := netlink.LinkByName(server.Interface)
		if err != nil {
			return err
		}
		for i := range backends {
			address := netip.AddrFrom4([4]byte{first[0], first[1], first[2] + 1 + byte(i/250), byte(1 + i%250)})
			list = append(list, entry{"name": fmt.Sprintf("backend-%03d", i), "address": address.String()})
			own, err := netlink.ParseAddr(address.String() + "/32")
			if err != nil {
				return err
			}
			if err := netlink.AddrAdd(device, own); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for i := range services {
		all = append(all, entry{"name": fmt.Sprintf("service-%03d", i), "vip": l.VIP4.String(), "port": manyPort + i,
			"mode": "l2dsr", "backends": list})
	}
	return all
}

// aim makes the harness send packets of a service through the program that the daemon has attached.
func (w *measuredWatch) aim(t *testing.T, vip netip.AddrPort) {
	t.Helper()
	var err error
	if w.harness, err = harness.New(lb.HookTC, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.harness.Close)
	frame := harness.NewFrame(netip.MustParseAddrPort("198.19.0.1:1024"), vip, lb.TCP, 0x10)
	w.stream = harness.Stream{Frame: frame, Count: 1 << 10}
	err = w.host.Do(func() error {
		device, err := netlink.LinkByName(w.host.Interface)
		if err != nil {
			return err
		}
		copy(frame.Bytes, device.Attrs().HardwareAddr)
		found, err := link.QueryPrograms(link.QueryOptions{Target: device.Attrs().Index, Attach: ebpf.AttachTCXIngress})
		if err == nil && len(found.Programs) != 1 {
			err = fmt.Errorf("%d programs are attached, want the daemon's", len(found.Programs))
		}
		if err == nil {
			w.program, err = ebpf.NewProgramFromID(found.Programs[0].ID)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.program.Close() })
	if err := w.harness.SendAtLeast(w.program, w.stream, burst); err != nil {
		t.Fatal(err)
	}
	// Otherwise the path to a backend would not be measured.
	w.eventually(t, "the packets were sent to backends", func(s *ops.Status) bool {
		sent := uint64(0)
		for _, b := range s.Services[0].Backends {
			sent += b.Packets
		}
		return sent >= burst
	})
}

// watchFigures are the figures of some parts.
type watchFigures struct {
	processor, time time.Duration
	packets         []float64
}

func (f *watchFigures) add(more watchFigures) {
	f.processor += more.processor
	f.time += more.time
	f.packets = append(f.packets, more.packets...)
}

// cost returns the share of a core that the daemon has used.
func (f *watchFigures) cost() float64 { return f.processor.Seconds() / f.time.Seconds() }

func (f watchFigures) String() string {
	sorted := slices.Sorted(slices.Values(f.packets))
	quarter := func(n int) float64 { return sorted[min(len(sorted)*n/4, len(sorted)-1)] }
	return fmt.Sprintf("daemon %.2f %% of a core, packet %.1f ns (%.1f to %.1f, %d bursts)", 100*f.cost(), quarter(2),
		quarter(1), quarter(3), len(sorted))
}

// part measures for a while.
func (w *measuredWatch) part(t *testing.T) (f watchFigures) {
	t.Helper()
	began, before := time.Now(), w.processor(t)
	tick := time.NewTicker(burstPause)
	defer tick.Stop()
	for time.Since(began) < watchPart {
		<-tick.C
		ns, err := harness.Uninterrupted(func() (float64, error) { return w.harness.Send(w.program, w.stream, burst) })
		if err != nil {
			t.Fatal(err)
		}
		f.packets = append(f.packets, ns)
	}
	f.processor, f.time = w.processor(t)-before, time.Since(began)
	return f
}

// processor returns the CPU time of the daemon.
func (w *measuredWatch) processor(t *testing.T) time.Duration {
	t.Helper()
	process, err := procfs.NewProc(w.daemon.PID())
	if err != nil {
		t.Fatal(err)
	}
	stat, err := process.Stat()
	if err != nil {
		t.Fatal(err)
	}
	return time.Duration(stat.CPUTime() * float64(time.Second))
}

// watch runs all watchers until end is called.
func (w *measuredWatch) watch(t *testing.T, query string) (end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		for tick := time.NewTicker(time.Second); ctx.Err() == nil; {
			w.get(ctx, "/metrics", func(body io.Reader) {
				if n, err := io.Copy(io.Discard, body); err == nil {
					w.scrapes.Add(1)
					w.bytes.Add(n)
				}
			})
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
	})
	for range 3 {
		running.Go(func() { w.get(ctx, "/v1/watch"+query, w.dashboard) })
	}
	terminal := startTmux(t, 120, 40, "top", "--socket", w.socket, "--view", "backends")
	terminal.shows(t, fmt.Sprintf("backends up %[1]d/%[1]d", measuredServices*measuredBackends))
	return func() {
		cancel()
		terminal.press(t, "q")
		running.Wait()
	}
}

// get reads an answer of the API.
func (w *measuredWatch) get(ctx context.Context, path string, read func(io.Reader)) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://jeoul"+path, nil)
	if err != nil {
		return
	}
	response, err := w.client.Do(request)
	if err != nil {
		return
	}
	defer response.Body.Close()
	read(response.Body)
}

// dashboard reads statuses as the page does.
func (w *measuredWatch) dashboard(body io.Reader) {
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		w.bytes.Add(int64(len(lines.Bytes())))
		if lines.Text() == "event: status" {
			w.statuses.Add(1)
		}
	}
}

// read returns the watchers' rates since the last call.
func (w *measuredWatch) read() string {
	seconds := (watchPairs * watchPart).Seconds()
	rate := func(n *atomic.Int64) float64 { return float64(n.Swap(0)) / seconds }
	return fmt.Sprintf("%.1f scrapes/s, %.1f statuses/s by dashboards, %.2f MB/s", rate(&w.scrapes), rate(&w.statuses),
		rate(&w.bytes)/1e6)
}
