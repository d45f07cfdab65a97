// SPDX-License-Identifier: Apache-2.0

package scale

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"

	"github.com/jeoul/jeoul/internal/bench/harness"
	"github.com/jeoul/jeoul/internal/datapath"
	"github.com/jeoul/jeoul/internal/lb"
	"github.com/jeoul/jeoul/internal/results"
)

// Streams of packets.
const (
	ofOne = "packets of one service"
	ofAll = "packets of all services"
)

// packets measures what a packet costs in a configuration of a shape, and right after it
// what the same costs in the small one.
func (b *bench) packets(ctx context.Context, s shape) error {
	big, small := &sized{bench: b, shape: s}, &sized{bench: b, shape: base}
	mark := b.harness.Mark()
	defer b.harness.Reset(mark)
	for _, z := range []*sized{big, small} {
		if err := z.open(); err != nil {
			return err
		}
		defer z.balancer.Close()
	}
	for round := range b.Rounds {
		b.Progress(fmt.Sprintf("%v: packets, %d of %d", s, round+1, b.Rounds))
		for _, of := range []string{ofOne, ofAll} {
			if err := ctx.Err(); err != nil {
				return err
			}
			for _, z := range []*sized{big, small} {
				if err := z.measure(of, s, round+1); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// sized is a balancer of a shape and its packets.
type sized struct {
	*bench
	shape    shape
	balancer *datapath.Datapath
	streams  map[string]harness.Stream
}

// open makes the balancer, and streams of as many flows: of a service in the middle, and
// of services at random.
func (z *sized) open() error {
	cfg, _, err := z.shape.parse()
	if err != nil {
		return err
	}
	if z.balancer, _, err = z.load(z.shape, cfg); err != nil {
		return err
	}
	middle := z.shape.services / 2
	frame := harness.NewFrame(netip.AddrPortFrom(firstClient, 0), netip.AddrPortFrom(z.shape.vip(middle), port), lb.TCP, harness.ACK)
	flows := map[string][]harness.Tuple{}
	random := rand.New(rand.NewPCG(1, 2))
	for n := range z.flows {
		from := client(n)
		flow := harness.Tuple{Source: word(from.Addr()), SourcePort: from.Port(), Destination: word(z.shape.vip(middle)), DestinationPort: port}
		flows[ofOne] = append(flows[ofOne], flow)
		flow.Destination = word(z.shape.vip(random.IntN(z.shape.services)))
		flows[ofAll] = append(flows[ofAll], flow)
	}
	z.streams = map[string]harness.Stream{}
	for of, tuples := range flows {
		random.Shuffle(len(tuples), func(i, j int) { tuples[i], tuples[j] = tuples[j], tuples[i] })
		kept, err := z.harness.Keep(frame, tuples)
		if err != nil {
			return errors.Join(err, z.balancer.Close())
		}
		z.streams[of] = harness.Stream{Frame: frame, Count: z.flows, Recording: kept}
	}
	return nil
}

func word(a netip.Addr) uint32 {
	b := a.As4()
	return binary.BigEndian.Uint32(b[:])
}

// measure measures a stream, net of an empty program right before. The small balancer's
// trials say which shape they stand beside.
func (z *sized) measure(of string, beside shape, round int) error {
	send := func(run func() (float64, error)) (float64, error) { return harness.Uninterrupted(run) }
	empty, err := send(func() (float64, error) {
		return z.harness.Send(z.harness.Program(harness.Empty), z.streams[of], z.Packets)
	})
	if err != nil {
		return err
	}
	if err := z.harness.SendAtLeast(z.balancer.Program(), z.streams[of], min(z.flows, z.Packets)); err != nil {
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
	trial.Params["flows"] = z.flows
	if z.shape != beside {
		trial.Params["beside"] = fmt.Sprintf("%d × %d", beside.services, beside.backends)
	}
	return nil
}

// lost counts the packets that ended otherwise than with a backend.
func (z *sized) lost() (uint64, error) {
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
