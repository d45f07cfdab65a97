// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/datapath/mapmem"
	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/test/testenv"
)

const (
	// churnServices have three backends each. A flow's client says which of them it is of.
	churnServices, churnBackends = 8, 3
	churnFlows                   = 1000
	// churnWindow is how many flows are under way at most.
	churnWindow = 64
	// Of so many flows, one is taken from another balancer.
	churnTaken = 4
)

// churnTimeouts forget flows that have ended, and no others: a thread may be kept from running between the packets of
// a flow, for however many passes of the janitor.
var churnTimeouts = lb.Timeouts{Opening: 24 * time.Hour, First: 24 * time.Hour, Established: 24 * time.Hour,
	UDP: 24 * time.Hour, Fin: 24 * time.Hour, Closed: time.Minute}

// churn is flows that begin, are proven, end and are forgotten, on several CPUs at once. A flow is a number.
type churn struct {
	*Datapath
	services []lb.RoutedService
	run      senders
	// at is the backend that the flow's packets go to, plus 1, as soon as it is known; done is how many threads have
	// sent all of theirs.
	at   [churnFlows]atomic.Uint32
	done [churnFlows]atomic.Uint32
	// ended is how many flows have ended, from the first on.
	ended                int
	syns, acks           [][]byte
	walked, taken, other int
}

func newChurn(t *testing.T) *churn {
	testenv.Root(t)
	c := &churn{Datapath: NewDetached(Options{Hook: lb.HookXDP, TableSize: testTableSize, FlowLimit: 1000,
		UnprovenLimit: 1000, Timeouts: churnTimeouts}, balancerMAC)}
	t.Cleanup(func() { c.Close() })
	c.expiring = true // time passes when the test says so
	for i := range uint16(churnServices) {
		s := testService(vip4, 80+i, lb.TCP, lb.RoundRobin, churnBackends)
		for at := range s.Backends {
			s.Backends[at].Name = fmt.Sprintf("web%d%d", i, at)
			s.Backends[at].Address = netip.AddrFrom4([4]byte{198, 18, 2, byte(1 + int(i)*churnBackends + at)})
			s.Paths[at] = lb.Path{MAC: macOfBackend(int(i), at), Source: balancerMAC}
		}
		c.services = append(c.services, s)
	}
	if err := c.Apply(lb.State{Services: c.services}); err != nil {
		t.Fatal(err)
	}
	for i := range churnFlows {
		client := clientOfFlow(i)
		p := packetSpec{from: client.Addr(), at: vip4, sport: client.Port(), flags: "S"}
		p.dport = uint16(80 + i%churnServices)
		c.syns = append(c.syns, p.build(t))
		p.flags = "A"
		c.acks = append(c.acks, p.build(t))
	}
	return c
}

func macOfBackend(service, backend int) net.HardwareAddr {
	return net.HardwareAddr{2, 7, byte(service), byte(backend), byte(service), byte(backend)}
}

// clientOfFlow is the client of a flow: its address and its port both have the flow's number.
func clientOfFlow(i int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 19, byte(i >> 8), byte(i)}), uint16(1024+i))
}

// send sends a packet of a flow, and returns the backend that it goes to.
func (c *churn) send(f *frameRunner, frame []byte, flow int) (backend int, err error) {
	action, out, err := f.run(frame)
	if err == nil && action != actions[lb.HookXDP].transmit {
		err = fmt.Errorf("action %d", action)
	}
	if err != nil {
		return 0, fmt.Errorf("a packet of flow %d: %w", flow, err)
	}
	for backend := range churnBackends {
		if bytes.Equal(out[:6], macOfBackend(flow%churnServices, backend)) {
			return backend, nil
		}
	}
	return 0, fmt.Errorf("a packet of flow %d goes to %x, which is no backend of its service", flow, out[:6])
}

// pending waits until the word is not 0; false: all are to stop.
func (c *churn) pending(word *atomic.Uint32) (value uint32, ok bool) {
	for value = word.Load(); value == 0 && !c.run.stop.Load(); value = word.Load() {
		runtime.Gosched()
	}
	return value, value != 0
}

// thread sends the packets that one of the threads has to.
func (c *churn) thread(number int) error {
	f := newFrameRunner(c.Datapath)
	for flow := range churnFlows {
		if flow >= churnWindow {
			// The window moves on when all have sent those of its first flow.
			for c.done[flow-churnWindow].Load() < packetThreads && !c.run.stop.Load() {
				runtime.Gosched()
			}
		}
		if flow%churnTaken != 0 && flow%packetThreads == number {
			backend, err := c.send(f, c.syns[flow], flow)
			if err != nil {
				return err
			}
			c.at[flow].Store(uint32(backend) + 1)
		}
		want, ok := c.pending(&c.at[flow])
		if !ok {
			return nil
		}
		// The first of these packets prove the flow, which moves to another table meanwhile.
		for range 4 {
			got, err := c.send(f, c.acks[flow], flow)
			if err != nil {
				return err
			}
			if uint32(got)+1 != want {
				return fmt.Errorf("a packet of flow %d goes to backend %d, others went to %d", flow, got, want-1)
			}
		}
		c.done[flow].Add(1)
	}
	return nil
}

// control plays the control plane: it takes flows, reads all of them, and forgets those that have ended. A flow ends
// once it was read with all of its packets sent, so that each is read at least once.
func (c *churn) control() error {
	f := newFrameRunner(c.Datapath)
	for c.ended < churnFlows && !c.run.stop.Load() {
		c.take()
		before, sent := c.ended, c.ended
		for sent < churnFlows && c.done[sent].Load() == packetThreads {
			sent++
		}
		if err := c.walk(); err != nil {
			return err
		}
		for ; c.ended < sent; c.ended++ {
			if _, _, err := f.run(c.reset(c.ended)); err != nil {
				return err
			}
		}
		if c.ended/churnWindow != before/churnWindow {
			c.janitor.Advance(churnTimeouts.Closed + time.Second)
		}
	}
	return nil
}

// reset is the RST of a flow: the ACK with other flags, and the checksum that belongs to them.
func (c *churn) reset(flow int) []byte {
	frame := bytes.Clone(c.acks[flow])
	const flags, checksum = 14 + 20 + 13, 14 + 20 + 16
	sum := uint32(frame[checksum])<<8 | uint32(frame[checksum+1])
	// RFC 1624: ACK is 0x10, RST 0x04.
	sum = ^sum&0xffff + ^uint32(frame[flags])&0xffff + 0x04
	sum = sum&0xffff + sum>>16
	frame[flags] = 0x04
	frame[checksum], frame[checksum+1] = byte(^sum>>8), byte(^sum)
	return frame
}

// take takes the next flows from another balancer, as far as the window goes.
func (c *churn) take() {
	for ; c.other < churnFlows && c.other < c.ended+churnWindow; c.other += churnTaken {
		s := &c.services[c.other%churnServices]
		backend := c.other / churnTaken % churnBackends
		flow := lb.Flow{Backend: s.BackendKey(s.Backends[backend]), Client: clientOfFlow(c.other),
			State: lb.FlowEstablished, Proven: true}
		got, err := c.MergeFlows([]lb.Flow{flow})
		if err != nil || got.New != 1 {
			c.run.fail(fmt.Errorf("flow %d: %+v, %w", c.other, got, err))
			return
		}
		c.taken++
		c.at[c.other].Store(uint32(backend) + 1)
	}
}

// walk reads all flows, as for another balancer: each must be one, whole.
func (c *churn) walk() (problem error) {
	for whole := false; !whole; {
		var err error
		whole, err = c.ChangedFlows(1000, func(f *lb.Flow) {
			c.walked++
			flow := int(f.Client.Port()) - 1024
			if flow < 0 || flow >= churnFlows || f.Client != clientOfFlow(flow) {
				problem = fmt.Errorf("a flow of %v was read, which is no client", f.Client)
				return
			}
			s := &c.services[flow%churnServices]
			at := c.at[flow].Load()
			for backend := range churnBackends {
				if f.Backend == s.BackendKey(s.Backends[backend]) && (at == 0 || at == uint32(backend)+1) {
					return
				}
			}
			problem = fmt.Errorf("flow %d was read as one of %v, and its packets go to backend %d of %s",
				flow, f.Backend, int(at)-1, s.Name)
		})
		if err != nil {
			return err
		}
	}
	return problem
}

// TestFlowsMeanwhile begins, proves, ends and forgets flows on several CPUs while the control plane reads them, takes
// others, and gives their places back: all packets of a flow go to one backend, and the control plane reads true
// values.
func TestFlowsMeanwhile(t *testing.T) {
	c := newChurn(t)
	for number := range packetThreads {
		c.run.group.Go(func() {
			if err := c.thread(number); err != nil {
				c.run.fail(err)
			}
		})
	}
	if err := c.control(); err != nil {
		c.run.fail(err)
	}
	failed := c.run.failed.Load() != nil
	c.run.end(t)
	if failed {
		return
	}
	c.janitor.Advance(churnTimeouts.Closed + time.Second)
	for i := range c.services {
		s := &c.services[i]
		turn := mapmem.ElementsOf[objects.XDPTurn](c.shared.Turn(c.register.ByKey[s.Key()].ID))[0]
		if turn.Active != 0 {
			t.Errorf("%s has %d active flows, and all have ended", s.Name, turn.Active)
		}
	}
	if left := c.placesTaken(); left != 0 {
		t.Errorf("%d places are taken, and all flows are forgotten", left)
	}
	if c.walked < churnFlows-c.taken || c.taken != churnFlows/churnTaken {
		t.Errorf("%d flows were read, and %d taken", c.walked, c.taken)
	}
	t.Logf("%d flows; %d were read, and %d taken", churnFlows, c.walked, c.taken)
}

// placesTaken counts the places of both tables that are taken.
func (c *churn) placesTaken() (n int) {
	for _, table := range [][]objects.XDPFlowBucket{c.shared.Proven.Buckets, c.shared.Unproven.Buckets} {
		for i := range table {
			n += len(placesIn(&table[i]))
		}
	}
	return n
}
