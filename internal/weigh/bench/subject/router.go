// SPDX-License-Identifier: Apache-2.0

package subject

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/config"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/weigh/bench/router"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// The AS numbers of the router and of the balancers (RFC 6996, for private use), the time after which a
// speaker that is silent is dead, the shortest that BGP has, and how long a drained balancer is the last choice.
const (
	routerAS   = 64513
	balancerAS = 64512
	holdTime   = 3 * time.Second
	drainPause = time.Second
)

// balancer is where the subject runs.
func (s Setup) balancer() *lab.Host {
	if s.at != nil {
		return s.at
	}
	return s.Lab.Balancer
}

// pool is what full NAT sends from here: of several balancers each has an address of its own. Members know each
// other's.
func (s Setup) pool() (pool []config.PoolAddress) {
	address := s.Lab.FullNAT
	if len(s.Lab.Balancers) == 0 {
		return []config.PoolAddress{{Address: address}}
	}
	for _, h := range s.Lab.Balancers {
		switch {
		case s.Members:
			pool = append(pool, config.PoolAddress{Address: address, Member: h.IPv4})
		case h == s.balancer():
			pool = append(pool, config.PoolAddress{Address: address})
		}
		address = address.Prev()
	}
	return pool
}

// detourReplies has replies to the addresses that members share come by the router: it knows which of them has each
// address.
func (s Setup) detourReplies(on bool) error {
	var pool []netip.Addr
	for _, a := range s.pool() {
		pool = append(pool, a.Address)
	}
	return s.Lab.DetourPool(pool, on)
}

// announce has the balancer tell the router of the VIP, over its own link. The router shall not keep the
// routes of one that is dead: a laboratory's data plane would go on serving where a machine's cannot.
func (s Setup) announce(file *config.Config) {
	at := s.balancer()
	file.Interfaces = append(file.Interfaces, at.Uplink)
	file.BGP = lb.BGP{ASN: balancerAS, RouterID: at.Uplink4, DrainPause: drainPause,
		Peers: []lb.BGPPeer{{Address: at.Gateway4, ASN: routerAS, Port: lb.DefaultBGPPort, HoldTime: holdTime,
			BFD: s.bfd()}}}
	if s.Members {
		file.Members = lb.MembersConfig{Listen: netip.AddrPortFrom(at.IPv4, lb.DefaultMembersPort),
			KeyFile: s.membersKey(), Name: at.Name, HandOver: true}
		for _, h := range s.Lab.Balancers {
			file.Members.Peers = append(file.Members.Peers, h.IPv4)
		}
	}
}

// bfd is how a balancer watches its way to the router.
func (s Setup) bfd() lb.BFD {
	if s.BFD == 0 {
		return lb.BFD{}
	}
	return lb.BFD{On: true, Interval: s.BFD, Multiplier: router.Multiplier}
}

// Announce is announce for a balancer that others than a subject configure, in a laboratory of several: as
// members of each other.
func Announce(file *config.Config, l *lab.Lab, at *lab.Host) {
	Setup{Lab: l, Members: true, at: at}.announce(file)
}

// ShareKey gives the balancers that [Announce] has made members a key.
func ShareKey(l *lab.Lab) error { return Setup{Lab: l}.shareKey() }

// StartRouter runs the router of a laboratory of several balancers, and returns what ends it.
func StartRouter(ctx context.Context, l *lab.Lab) (stop func(context.Context) error, err error) {
	programs, err := Setup{Lab: l}.startRouter(ctx)
	stop = func(ctx context.Context) error {
		errs := []error{}
		for _, p := range programs {
			errs = append(errs, p.stop(ctx))
		}
		return errors.Join(errs...)
	}
	if err != nil {
		return nil, errors.Join(err, stop(context.WithoutCancel(ctx)))
	}
	return stop, nil
}

// membersKey is the file of the key that the balancers know each other by.
func (s Setup) membersKey() string { return filepath.Join(s.balancer().Dir, "members.key") }

// shareKey gives all balancers the same key.
func (s Setup) shareKey() error {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // it never fails
	for _, h := range s.Lab.Balancers {
		of := s
		of.at = h
		if err := h.WriteSecret(of.membersKey(), []byte(base64.StdEncoding.EncodeToString(key))); err != nil {
			return fmt.Errorf("write the members' key: %w", err)
		}
	}
	return nil
}

// startRouter runs the router, with a session for each balancer: equal routes are one of several next hops in its
// kernel, and a drained balancer's is the last choice. What was started before an error is returned with it.
func (s Setup) startRouter(ctx context.Context) (all []*program, err error) {
	host := s.Lab.Router
	plan := router.Plan{Dir: host.Dir, ID: host.IPv4, AS: routerAS, BalancersAS: balancerAS, HoldTime: holdTime,
		BFD: s.BFD}
	for _, h := range s.Lab.Balancers {
		plan.Balancers = append(plan.Balancers, router.Session{Local: h.Gateway4, Balancer: h.Uplink4})
	}
	daemons, err := s.router().Daemons(plan)
	if err != nil {
		return nil, err
	}
	for _, d := range daemons {
		p, err := startDaemon(ctx, host, d)
		if p != nil {
			all = append(all, p)
		}
		if err != nil {
			return all, fmt.Errorf("starting the router: %w", err)
		}
	}
	return all, nil
}

// router is what is asked for, or the usual.
func (s Setup) router() router.Kind { return cmp.Or(s.Router, router.Kinds[0]) }

// startDaemon runs a process of the router, and waits until it is ready.
func startDaemon(ctx context.Context, host *lab.Host, d router.Daemon) (*program, error) {
	// One that did not end in order has left it, and another starts in its place.
	if err := os.Remove(d.Ready); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if err := host.WriteFile(d.File, []byte(d.Text)); err != nil {
		return nil, fmt.Errorf("writing %s: %w", d.File, err)
	}
	p, err := startProgram(ctx, host, d.Path, d.Args...)
	if err != nil {
		return nil, err
	}
	return p, p.waitUntil(ctx, func() error {
		_, err := os.Stat(d.Ready)
		return err
	})
}

// waysBound is how long a router may take to have learnt, or forgotten, a way.
const waysBound = time.Minute

// awaitWay waits until the router sends to a balancer, or does not, and returns when that was first seen.
func awaitWay(ctx context.Context, l *lab.Lab, h *lab.Host, want bool) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, waysBound)
	defer cancel()
	tick := time.NewTicker(wayEvery)
	defer tick.Stop()
	for {
		ways, err := l.Ways(l.VIP4)
		if err != nil {
			return time.Time{}, err
		}
		has := false
		for _, way := range ways {
			has = has || way == h
		}
		if has == want {
			return time.Now(), nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return time.Time{}, fmt.Errorf("the router has %d ways to %s, and %s is one of them: %v: %w", len(ways),
				l.VIP4, h.Name, has, errors.Join(ErrNotUp, ctx.Err()))
		}
	}
}

// wayEvery is how often the router's routes are read.
const wayEvery = 2 * time.Millisecond
