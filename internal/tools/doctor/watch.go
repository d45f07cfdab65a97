// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"io/fs"
	"sync"
	"time"

	"github.com/jeoul/jeoul/internal/host/sysctl"
)

// survey starts to listen on the segment. It returns nil if that is impossible.
func (x *examination) survey() *survey {
	const source = "segment (ARP, NDP)"
	s, err := newSurvey(&x.evidence.Before, x.vips(), x.options.Passive)
	if err != nil {
		x.gap(source, err)
		return nil
	}
	x.looked = append(x.looked, source)
	return s
}

// pinger plans to probe the paths to a balancer's backends. It returns nil if there is no balancer.
func (x *examination) pinger() *pinger {
	status := x.evidence.Before.Balancer
	if x.options.Passive || status == nil {
		return nil
	}
	p := x.openPinger()
	if p == nil {
		return nil
	}
	for _, s := range status.Services {
		for _, b := range s.Backends {
			p.add(b.Address, b.MTU)
		}
	}
	return p
}

func (x *examination) openPinger() *pinger {
	const source = "paths (pings)"
	p, err := openPinger()
	if err != nil {
		x.gap(source, err)
		return nil
	}
	x.looked = append(x.looked, source)
	return p
}

// watch waits for the interval, and during it runs the parts of the examination that take time. The goroutines that it
// starts need no namespace, because their sockets are already open.
func (x *examination) watch(ctx context.Context, survey *survey, pinger *pinger) error {
	o := x.options
	following := x.follow(ctx)
	interval, end := context.WithTimeout(ctx, o.For)
	defer end()
	var all sync.WaitGroup
	var surveyed error
	if survey != nil {
		all.Go(func() { surveyed = survey.run(interval, o.For) })
	}
	if pinger != nil {
		all.Go(func() { pinger.run(interval) })
	}
	<-interval.Done()
	all.Wait()
	if survey != nil {
		x.evidence.Wire = survey.close()
	}
	if pinger != nil {
		x.evidence.Paths = pinger.close()
	}
	if surveyed != nil {
		x.gap("segment (ARP, NDP)", surveyed)
	}
	if following != nil {
		following.stop()
		<-following.ended
		x.evidence.Flows = following.flows
		if following.err != nil {
			x.gap(flowsSource, following.err)
		} else {
			x.looked = append(x.looked, flowsSource)
		}
	}
	return ctx.Err()
}

const flowsSource = "packets through the balancer"

// beginTimeout limits the time until the daemon reports packets: it loads an eBPF program first, which takes seconds on
// a busy machine.
const beginTimeout = 20 * time.Second

// follow starts to follow packets through a balancer. It returns nil if there is none.
func (x *examination) follow(ctx context.Context) *following {
	if x.options.Passive || x.evidence.Before.Balancer == nil {
		return nil
	}
	f := followFlows(ctx, x.options.Socket)
	timer := time.NewTimer(beginTimeout)
	defer timer.Stop()
	select {
	case <-f.began:
	case <-f.ended:
	case <-timer.C:
	}
	return f
}

// pingHanging probes the paths to the peers of hanging connections, which are only known after the interval.
func (x *examination) pingHanging(ctx context.Context) error {
	s := x.evidence.After.Sockets
	if s == nil || x.options.Passive {
		return nil
	}
	var p *pinger
	for _, h := range s.Hanging {
		if !h.Stuck() {
			continue
		}
		if p == nil {
			if p = x.openPinger(); p == nil {
				return nil
			}
		}
		p.add(h.Peer.Addr(), int(h.PathMTU))
	}
	if p == nil {
		return nil
	}
	p.run(ctx)
	x.evidence.Paths = append(x.evidence.Paths, p.close()...)
	return ctx.Err()
}

// isMachine reports whether the calling thread is in the machine's initial network namespace, the only one that shows
// the settings of the cores' queues.
func isMachine() bool {
	_, err := sysctl.Read("net.core.netdev_max_backlog")
	return !errors.Is(err, fs.ErrNotExist)
}
