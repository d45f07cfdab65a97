// SPDX-License-Identifier: Apache-2.0

package scale

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"net/netip"
	"slices"

	"github.com/jeoul/jeoul/internal/balancer/datapath"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/host/packet"
	"github.com/jeoul/jeoul/internal/weigh/bench/harness"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// Streams of packets. ofTen has flows that one service sends to only as many backends as the small configuration has:
// the memory that is read for them fits the caches at any size.
const (
	ofOne = "packets of one service"
	ofAll = "packets of all services"
	ofTen = "packets of ten backends"
)

// packets measures the cost of a packet in a configuration of a shape, and right after that the cost of the same packet
// in the small configuration.
func (b *bench) packets(ctx context.Context, s shape) error {
	big, small := &balancerRun{bench: b, shape: s}, &balancerRun{bench: b, shape: base}
	mark := b.harness.Mark()
	defer b.harness.Reset(mark)
	for _, z := range []*balancerRun{big, small} {
		if err := z.open(); err != nil {
			return err
		}
		defer z.balancer.Close()
	}
	streams := []string{ofOne, ofAll}
	if s.backends > base.backends {
		streams = append(streams, ofTen)
		if err := big.addSmallStream(small); err != nil {
			return err
		}
	}
	for round := range b.Rounds {
		b.Progress(fmt.Sprintf("%v: packets, %d of %d", s, round+1, b.Rounds))
		for _, of := range streams {
			if err := ctx.Err(); err != nil {
				return err
			}
			for _, z := range []*balancerRun{big, small} {
				if err := z.measure(of, s, round+1); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// balancerRun is a balancer with a configuration of a shape, and its streams of packets.
type balancerRun struct {
	*bench
	shape    shape
	balancer *datapath.Datapath
	streams  map[string]harness.Stream
}

// open creates the balancer, and streams of z.flows flows each: of a service in the middle, and of random services.
func (z *balancerRun) open() error {
	cfg, _, err := z.shape.parse()
	if err != nil {
		return err
	}
	if z.balancer, _, err = z.load(z.shape, cfg); err != nil {
		return err
	}
	z.streams = map[string]harness.Stream{}
	middle := z.shape.middle()
	flows := map[string][]harness.Tuple{}
	random := rand.New(rand.NewPCG(1, 2))
	for n := range z.flows {
		from := client(n)
		flow := harness.Tuple{Source: word(from.Addr()), SourcePort: from.Port(),
			Destination: word(z.shape.vip(middle)), DestinationPort: port}
		flows[ofOne] = append(flows[ofOne], flow)
		flow.Destination = word(z.shape.vip(random.IntN(z.shape.services)))
		flows[ofAll] = append(flows[ofAll], flow)
	}
	for of, tuples := range flows {
		random.Shuffle(len(tuples), func(i, j int) { tuples[i], tuples[j] = tuples[j], tuples[i] })
		if err := z.storeStream(of, tuples); err != nil {
			return errors.Join(err, z.balancer.Close())
		}
	}
	return nil
}

// middle returns the index of the service whose packets are measured alone.
func (s shape) middle() int { return s.services / 2 }

// frame returns a packet to that service.
func (z *balancerRun) frame() harness.Frame {
	return harness.NewFrame(netip.AddrPortFrom(firstClient, 0), netip.AddrPortFrom(z.shape.vip(z.shape.middle()), port),
		lb.TCP, packet.FlagACK)
}

// storeStream stores a stream of flows; their number must be a power of two.
func (z *balancerRun) storeStream(of string, tuples []harness.Tuple) error {
	frame := z.frame()
	kept, err := z.harness.StoreFlows(frame, tuples)
	z.streams[of] = harness.Stream{Frame: frame, Count: uint32(len(tuples)), Recording: kept}
	return err
}

// errTooFew means that no flow of a service reaches the required backends.
var errTooFew = errors.New("no flow goes to the first backends of a service")

// addSmallStream makes, for both balancers, the stream of flows to only as many backends as the small configuration
// has. In the small configuration, the same clients send to its service.
func (z *balancerRun) addSmallStream(small *balancerRun) error {
	seen, err := z.harness.Record(z.balancer.Program(), harness.Stream{Frame: z.frame(), Count: z.flows}, z.flows)
	if err != nil {
		return err
	}
	first := z.shape.number(z.shape.middle(), 0)
	seen = slices.DeleteFunc(seen, func(s harness.Seen) bool { return s.To-first >= uint32(base.backends) })
	if len(seen) == 0 {
		return errTooFew
	}
	seen = seen[:1<<(bits.Len(uint(len(seen)))-1)]
	for _, to := range []*balancerRun{z, small} {
		var tuples []harness.Tuple
		for _, s := range seen {
			s.Destination = word(to.shape.vip(to.shape.middle()))
			tuples = append(tuples, s.Tuple)
		}
		if err := to.storeStream(ofTen, tuples); err != nil {
			return err
		}
	}
	return nil
}

func word(a netip.Addr) uint32 {
	b := a.As4()
	return binary.BigEndian.Uint32(b[:])
}

// measure measures a stream, net of the empty program, which runs right before. The trials of the small balancer record
// the shape that they are compared with.
func (z *balancerRun) measure(of string, beside shape, round int) error {
	send := func(run func() (float64, error)) (float64, error) { return harness.Uninterrupted(run) }
	empty, err := send(func() (float64, error) {
		return z.harness.Send(z.harness.Program(harness.Empty), z.streams[of], z.Packets)
	})
	if err != nil {
		return err
	}
	if err := z.harness.SendAtLeast(z.balancer.Program(), z.streams[of],
		min(z.streams[of].Count, z.Packets)); err != nil {
		return err
	}
	before, err := z.lost()
	if err != nil {
		return err
	}
	ns, err := send(func() (float64, error) { return z.harness.Send(z.balancer.Program(), z.streams[of], z.Packets) })
	if err != nil {
		return err
	}
	after, err := z.lost()
	if err != nil {
		return err
	}
	var wrong []string
	if after != before {
		wrong = append(wrong, fmt.Sprintf("%d packets were not sent on to a backend", after-before))
	}
	trial := z.add(z.shape, of, round, map[string]float64{
		results.NsPerPacket: ns, results.NsNetOfEmpty: ns - empty, results.RatioToEmpty: ns / empty,
	}, wrong...)
	trial.Params["flows"] = z.streams[of].Count
	if z.shape != beside {
		trial.Params["beside"] = fmt.Sprintf("%d × %d", beside.services, beside.backends)
	}
	return nil
}

// lost counts the packets that were not forwarded to a backend.
func (z *balancerRun) lost() (uint64, error) {
	counters, err := z.balancer.Counters()
	if err != nil {
		return 0, err
	}
	lost := uint64(0)
	for _, outcome := range counters.Outcomes {
		if outcome.Name != "forwarded" {
			lost += outcome.Packets
		}
	}
	return lost, nil
}
