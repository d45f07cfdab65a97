// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/jeoul/jeoul/internal/balancer/datapath/generation"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/test/testenv"
)

// Packets on several CPUs run through the programs while the control plane changes the memory that they read: the pairs
// of docs/internals/memory-order.md.

// packetThreads is how many goroutines send packets in these tests.
const packetThreads = 3

// frameRunner runs frames through a program, for one goroutine.
type frameRunner struct {
	program *ebpf.Program
	buffer  []byte
}

func newFrameRunner(d *Datapath) *frameRunner { return &frameRunner{d.Program(), make([]byte, 2048)} }

// run returns the program's verdict and the frame as it is afterwards, which is valid until the next call.
func (f *frameRunner) run(frame []byte) (action uint32, out []byte, err error) {
	options := ebpf.RunOptions{Data: frame, DataOut: f.buffer, Repeat: 1}
	action, err = f.program.Run(&options)
	return action, options.DataOut, err
}

// senders are goroutines that send packets until they are told to stop, or one of them fails.
type senders struct {
	group  sync.WaitGroup
	stop   atomic.Bool
	failed atomic.Pointer[error]
}

// begin has send called by n goroutines, over and over, with a generator of random numbers of its own.
func (s *senders) begin(n int, send func(rng *rand.Rand) error) {
	for i := range n {
		s.group.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(i), 3))
			for !s.stop.Load() {
				if err := send(rng); err != nil {
					s.fail(err)
				}
			}
		})
	}
}

// fail keeps the first error, and stops all.
func (s *senders) fail(err error) {
	s.failed.CompareAndSwap(nil, &err)
	s.stop.Store(true)
}

// end stops them, and reports the error.
func (s *senders) end(t *testing.T) {
	t.Helper()
	s.stop.Store(true)
	s.group.Wait()
	if err := s.failed.Load(); err != nil {
		t.Error(*err)
	}
}

// The service whose backends change in TestChangesMeanwhile, and those beside it that come and go.
const (
	steadyPort    = 80
	changingPorts = 16
	revisions     = 60
)

// revised is a revision of the configuration: each backend's path has the revision's number in all its fields.
func revised(rng *rand.Rand, revision uint16) lb.State {
	steady := testService(vip4, steadyPort, lb.TCP, lb.Maglev, 12)
	state := lb.State{Services: []lb.RoutedService{steady}}
	for i := range uint16(changingPorts) {
		if rng.IntN(2) == 0 {
			state.Services = append(state.Services, testService(vip4, 1000+i, lb.TCP, lb.Maglev, 2))
		}
	}
	from := rng.IntN(6)
	for i := range state.Services {
		s := &state.Services[i]
		s.Mode = lb.IPIP
		for at := range s.Paths {
			s.Paths[at] = revisedPath(revision, s.Backends[at].Address)
		}
		if s.Port == steadyPort {
			s.Backends, s.Paths = s.Backends[from:from+6], s.Paths[from:from+6]
		}
	}
	return state
}

func revisedPath(revision uint16, backend netip.Addr) lb.Path {
	high, low, number := byte(revision>>8), byte(revision), backend.As4()[3]
	return lb.Path{MAC: net.HardwareAddr{2, high, low, number, high, low},
		Source: net.HardwareAddr{6, low, high, number, low, high},
		Local:  netip.AddrFrom4([4]byte{198, 19, high, low})}
}

// tornPath returns an error unless all addresses of a tunnel's packet are of one path.
func tornPath(out []byte) error {
	outer := out[14:]
	if len(out) < 34 || outer[9] != 4 {
		return fmt.Errorf("no IPv4 in IPv4: %x", out)
	}
	source, backend := netip.AddrFrom4([4]byte(outer[12:16])), netip.AddrFrom4([4]byte(outer[16:20]))
	want := revisedPath(binary.BigEndian.Uint16(outer[14:]), backend)
	if !bytes.Equal(out[:6], want.MAC) || !bytes.Equal(out[6:12], want.Source) || source != want.Local {
		return fmt.Errorf("to %v from %v by the MAC addresses %x and %x: they are of several paths",
			backend, source, out[:6], out[6:12])
	}
	return nil
}

// sendRevised sends packets to all services, and checks their way.
func sendRevised(t *testing.T, d *Datapath, run *senders, sent *atomic.Uint64) {
	t.Helper()
	packets := revisedPackets(t)
	runners := sync.Pool{New: func() any { return newFrameRunner(d) }}
	run.begin(packetThreads, func(rng *rand.Rand) error {
		f := runners.Get().(*frameRunner)
		defer runners.Put(f)
		port := uint16(steadyPort)
		if rng.IntN(2) == 0 {
			port = 1000 + uint16(rng.IntN(changingPorts))
		}
		action, out, err := f.run(packets[port][rng.IntN(32)])
		sent.Add(1)
		switch {
		case err != nil:
			return err
		case action == actions[lb.HookXDP].transmit:
			return tornPath(out)
		case action != actions[lb.HookXDP].pass || port == steadyPort:
			return fmt.Errorf("a packet to port %d: action %d", port, action)
		}
		return nil
	})
}

// TestChangesMeanwhile changes services, their tables and the paths to their backends under packets: each packet of a
// service that stays is forwarded, to one of its backends, by one path of it; of others it is, or passes; and each is
// counted once.
func TestChangesMeanwhile(t *testing.T) {
	testenv.Root(t)
	options := Options{Hook: lb.HookXDP, TableSize: testTableSize, FlowLimit: 20000, UnprovenLimit: 20000}
	d := NewDetached(options, balancerMAC)
	t.Cleanup(func() { d.Close() })
	now := time.Unix(1000, 0)
	d.expiring, d.now = true, func() time.Time { return now }
	rng := rand.New(rand.NewPCG(1, 2))
	apply := func(state lb.State) {
		if err := d.Apply(state); err != nil {
			t.Fatal(err)
		}
	}
	apply(mostRevised(rng))
	apply(revised(rng, 0))
	program := d.Program()
	var run senders
	var sent atomic.Uint64
	sendRevised(t, d, &run, &sent)
	last := uint64(0)
	for revision := range uint16(revisions) {
		apply(revised(rng, revision))
		// Ids of removed services are given again, and transitions end: all is used over and over.
		for range 1 + generation.IDRounds {
			now = now.Add(time.Minute)
			d.janitor.Advance(time.Minute)
			d.endTransitions(now, d.janitor.FlowsOf())
		}
		counted := countedIn(t, d)
		if started := sent.Load() + packetThreads; counted < last || counted > started {
			t.Errorf("%d packets are counted after %d, and %d were sent", counted, last, started)
		}
		if last = counted; run.stop.Load() {
			break
		}
	}
	run.end(t)
	if d.Program() != program {
		t.Error("the memory was made anew: the packets did not read that")
	}
	if counted := countedIn(t, d); counted != sent.Load() {
		t.Errorf("%d packets are counted, and %d were sent", counted, sent.Load())
	}
	t.Logf("%d packets, %d revisions", sent.Load(), revisions)
}

// mostRevised has more than there will ever be, so that no memory is recreated.
func mostRevised(rng *rand.Rand) lb.State {
	state := revised(rng, 0)
	for i := range uint16(changingPorts) {
		s := testService(vip4, 2000+i, lb.TCP, lb.Maglev, 2)
		s.Mode = lb.IPIP
		state.Services = append(state.Services, s)
	}
	return state
}

// revisedPackets are packets of some flows to each service, by its port.
func revisedPackets(t *testing.T) map[uint16][][]byte {
	ports := []uint16{steadyPort}
	for i := range uint16(changingPorts) {
		ports = append(ports, 1000+i)
	}
	packets := map[uint16][][]byte{}
	for _, port := range ports {
		for i := range 32 {
			p := packetSpec{from: client4, at: vip4, sport: uint16(1024 + i), dport: port, flags: "A"}
			packets[port] = append(packets[port], p.build(t))
		}
	}
	return packets
}

// countedIn adds up the packets of all outcomes.
func countedIn(t *testing.T, d *Datapath) (n uint64) {
	t.Helper()
	counters, err := d.Counters()
	if err != nil {
		t.Fatal(err)
	}
	for _, outcome := range counters.Outcomes {
		n += outcome.Packets
	}
	return n
}

// routesOf leads all IPv4 clients to one of five next hops, which has the number of its change in all its fields. The
// others have 0: a packet that finds one of them has read the next hops of one change by the routes of another.
func routesOf(number byte) lb.ReplyRoutes {
	all := netip.MustParsePrefix("198.18.0.0/15")
	routes := lb.ReplyRoutes{IPv4: true, Routes: []lb.ReplyRoute{{Prefix: all, Hop: int(number % 5)}}}
	for i := range byte(5) {
		says := byte(0)
		if i == number%5 {
			says = number
		}
		routes.Hops = append(routes.Hops, lb.NextHop{Interface: nearLink.index, MTU: 1500,
			MAC: [6]byte(hopOfChange(10, says)), Source: [6]byte(hopOfChange(14, says))})
	}
	return routes
}

func hopOfChange(first, number byte) net.HardwareAddr {
	return net.HardwareAddr{first, number, number, number, number, number}
}

// currentRoutes are the routes that replies are to take, and the counts of those that took them.
type currentRoutes struct {
	// held has a byte that says which routes are held, 0 during a change, and above it how many changes there were.
	held               atomic.Uint64
	byMirror, byKernel atomic.Uint64
}

// check returns an error where a reply mixes the next hops of several changes, or takes one that was replaced before
// the reply was sent.
func (h *currentRoutes) check(out []byte, before uint64) error {
	number := out[1]
	switch {
	case bytes.Equal(out[:6], neighbourMAC(client4)):
		h.byKernel.Add(1)
		return nil
	case number == 0, !bytes.Equal(out[:6], hopOfChange(10, number)), !bytes.Equal(out[6:12], hopOfChange(14, number)):
		return fmt.Errorf("a reply to %x from %x: they are of several changes", out[:6], out[6:12])
	case byte(before) != 0 && h.held.Load() == before && number != byte(before):
		return fmt.Errorf("a reply goes by next hop %d, and long since the routes lead by %d", number, byte(before))
	}
	h.byMirror.Add(1)
	return nil
}

// TestReplyRoutesMeanwhile changes the mirror of the routes under replies: each reply takes the next hop of before or
// of after, or the kernel's; and once a change is over, none takes one of before.
func TestReplyRoutesMeanwhile(t *testing.T) {
	enterTestNet(t)
	ground, err := sharedTestNet()
	if err != nil {
		t.Fatal(err)
	}
	service := testService(vip4, 80, lb.TCP, lb.Maglev, 3)
	service.Mode = lb.NAT
	d := NewDetached(Options{Hook: lb.HookXDP, TableSize: testTableSize}, balancerMAC)
	t.Cleanup(func() { d.Close() })
	if err := d.Apply(lb.State{Services: []lb.RoutedService{service}}); err != nil {
		t.Fatal(err)
	}
	reply := packetSpec{from: service.Backends[0].Address, at: client4, sport: 80, dport: 4000, flags: "A"}.build(t)
	var routes currentRoutes
	var run senders
	for range packetThreads {
		run.group.Go(func() {
			err := ground.Do(func() error {
				for f := newFrameRunner(d); !run.stop.Load(); {
					before := routes.held.Load()
					action, out, err := f.run(reply)
					if err == nil && action != actions[lb.HookXDP].redirect {
						err = fmt.Errorf("a reply has action %d", action)
					}
					if err == nil {
						err = routes.check(out, before)
					}
					if err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				run.fail(err)
			}
		})
	}
	changeRoutes(t, d, &run, &routes.held)
	run.end(t)
	if routes.byMirror.Load() == 0 || routes.byKernel.Load() == 0 {
		t.Error("the test needs both of these")
	}
	t.Logf("%d replies went by the mirror, %d by the kernel's routes", routes.byMirror.Load(), routes.byKernel.Load())
}

// changeRoutes goes through many changes of the mirror.
func changeRoutes(t *testing.T, d *Datapath, run *senders, held *atomic.Uint64) {
	t.Helper()
	for change := range uint64(20) {
		number := byte(1 + change%250)
		held.Store(change << 8)
		routes := routesOf(number)
		if err := errors.Join(d.InvalidateReplyRoutes(), d.WriteReplyRoutes(routes),
			d.EnableReplyRoutes(routes)); err != nil {
			t.Fatal(err)
		}
		held.Store(change<<8 | uint64(number))
		for range 3 { // a CPU learns from two ticks that the clock goes on
			d.Tick()
			for range 100 {
				runtime.Gosched()
			}
		}
		if run.stop.Load() {
			return
		}
	}
}
