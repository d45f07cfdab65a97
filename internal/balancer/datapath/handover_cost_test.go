// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/balancer/datapath/mapmem"
	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/test/testenv"
)

// The cost of each end of a hand-over by itself: the receiving end is another process.

// senderVariable is the environment variable with the address of the sending end.
const senderVariable = "JEOUL_TEST_TELLING_END"

const costPlaces = 1_000_000

// newHandoverPlane is a data plane with a service of rr, whose table has room for a million flows.
func newHandoverPlane(tb testing.TB) (*Datapath, lb.RoutedService) {
	tb.Helper()
	s := testService(vip4, 80, lb.TCP, lb.RoundRobin, 20)
	d := NewDetached(Options{Hook: lb.HookXDP, FlowLimit: costPlaces, UnprovenLimit: 1000}, balancerMAC)
	tb.Cleanup(func() { d.Close() })
	if err := d.Apply(lb.State{Services: []lb.RoutedService{s}}); err != nil {
		tb.Fatal(err)
	}
	return d, s
}

// listenForFlows listens for the other end.
func listenForFlows(tb testing.TB) net.Listener {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	return l
}

// TestHearingEnd is the other process of BenchmarkHandoverEnds: it prints the address at which it listens, and for each
// line that it reads, its CPU time in nanoseconds and the number of flows that it has taken.
func TestHearingEnd(t *testing.T) {
	at := os.Getenv(senderVariable)
	if at == "" {
		t.Skip("BenchmarkHandoverEnds runs it")
	}
	d, _ := newHandoverPlane(t)
	l := listenForFlows(t)
	hearing := exchangeBeside(t, d, "hearing", l, otherPeers{{Name: "telling", Address: netip.MustParseAddrPort(at)}})
	fmt.Println(l.Addr())
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		_, heard := hearing.Status()
		taken := uint64(0)
		for _, h := range heard {
			taken += h.Added
		}
		fmt.Println(cpu().Nanoseconds(), taken, len(heard) == 1 && heard[0].Complete)
	}
}

// receiverProcess is that process.
type receiverProcess struct {
	tb  testing.TB
	in  io.Writer
	out *bufio.Reader
}

// startReceiver starts a receiver of the flows of a sender at an address, and returns the receiver's own address.
func startReceiver(tb testing.TB, sender net.Addr) (*receiverProcess, netip.AddrPort) {
	tb.Helper()
	cmd := exec.Command(os.Args[0], "-test.run", "^TestHearingEnd$")
	cmd.Env, cmd.Stderr = append(os.Environ(), senderVariable+"="+sender.String()), os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	h := &receiverProcess{tb, in, bufio.NewReader(out)}
	tb.Cleanup(func() {
		in.Close()
		_, _ = io.Copy(io.Discard, h.out)
		if err := cmd.Wait(); err != nil {
			tb.Error(err)
		}
	})
	var at string
	if _, err := fmt.Fscanln(h.out, &at); err != nil {
		tb.Fatal(err)
	}
	return h, netip.MustParseAddrPort(at)
}

// stats returns the receiver's CPU time, the number of its flows, and whether it has all of the sender's.
func (h *receiverProcess) stats() (used time.Duration, taken uint64, whole bool) {
	h.tb.Helper()
	fmt.Fprintln(h.in)
	if _, err := fmt.Fscanln(h.out, &used, &taken, &whole); err != nil {
		h.tb.Fatal(err)
	}
	return used, taken, whole
}

// putFlows writes flows into the table of proven ones, as packets would, without a word to the exchange that they are
// known.
func putFlows(d *Datapath, s *lb.RoutedService, flows []lb.Flow) {
	id := d.register.ByKey[s.Key()].ID
	for _, f := range flows {
		place := d.register.Places.Backends[f.Backend]
		flow := objects.XDPFlow{Address: mapmem.OfAddress(f.Client.Addr()), Port: mapmem.NetworkOrder(f.Client.Port()),
			Service: id, Backend: place.Index, Generation: place.Generation}
		d.shared.Proven.Insert(flow, objects.XDPFlowStateFLOW_ESTABLISHED, d.janitor.Now())
	}
}

// ofThread is the CPU time of this thread.
func ofThread() time.Duration {
	var usage unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_THREAD, &usage)
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// BenchmarkHandoverEnds measures the CPU time of two balancers of which one tells the other of new flows. The time that
// putting the flows into the table takes is left out, and so is the time of both while there are none, which is shown
// beside it.
func BenchmarkHandoverEnds(b *testing.B) {
	testenv.Root(b)
	const seconds, steps = 5, 50
	for _, rate := range []int{20_000, 100_000} {
		b.Run(fmt.Sprintf("%d new flows a second", rate), func(b *testing.B) {
			from, s := newHandoverPlane(b)
			flows := manyFlows(&s, rate*seconds)
			l := listenForFlows(b)
			hearing, at := startReceiver(b, l.Addr())
			exchangeBeside(b, from, "telling", l, otherPeers{{Name: "hearing", Address: at}})
			until(b, func() bool { _, _, whole := hearing.stats(); return whole })
			// The work of this thread is apart from that of the others.
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			spend := func(work func(step int)) (telling, heard time.Duration) {
				before, _, _ := hearing.stats()
				all, own := cpu(), ofThread()
				tick := time.NewTicker(time.Second / steps)
				defer tick.Stop()
				for i := range seconds * steps {
					<-tick.C
					work(i)
				}
				if work(-1); b.Failed() {
					return 0, 0
				}
				after, _, _ := hearing.stats()
				return cpu() - all - (ofThread() - own), after - before
			}
			share := func(d time.Duration) float64 { return float64(d) / float64(seconds*time.Second) * 100 }
			idleTelling, idleHearing := spend(func(int) {})
			telling, heard := spend(func(step int) {
				if step < 0 {
					until(b, func() bool {
						_, taken,
							_ := hearing.stats()
						return taken >= uint64(rate)*seconds*99/100
					})
					return
				}
				putFlows(from, &s, flows[step*rate/steps:(step+1)*rate/steps])
			})
			b.ReportMetric(share(telling-idleTelling), "%-telling")
			b.ReportMetric(share(heard-idleHearing), "%-hearing")
			b.ReportMetric(share(idleTelling), "%-idle-telling")
			b.ReportMetric(share(idleHearing), "%-idle-hearing")
			b.ReportMetric(0, "ns/op")
		})
	}
}
