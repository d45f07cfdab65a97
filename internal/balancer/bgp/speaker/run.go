// SPDX-License-Identifier: Apache-2.0

package speaker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"reflect"
	"slices"
	"time"

	"github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/server"

	"github.com/jeoul/jeoul/internal/balancer/bfd"
	"github.com/jeoul/jeoul/internal/balancer/bgp"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/host/durable"
)

// New returns a speaker without peers. restarting means that the previous speaker ended without closing its sessions,
// so that routers may keep its routes: the speaker sets the R bit of its OPEN messages (RFC 4724). The file journal
// lists the routes that the speaker adds to the host's tables.
func New(log *slog.Logger, restarting bool, journal string) *Speaker {
	s := &Speaker{log: log, restarting: restarting, journal: journal, files: durable.New(durable.Options{}),
		known: map[string]*ops.BGPPeer{}, changed: make(chan struct{}), number: 1}
	s.heard = &hearing{speaker: s}
	s.bfd = bfd.NewEngine(s.followBFD)
	return s
}

// Want puts another desired state in force: first the routes, then the peers, so that a new peer hears all of it at
// once.
func (s *Speaker) Want(wanted bgp.Wanted) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if wanted.BGP.Speaker == lb.SpeakerLocal {
		return s.wantLocal(wanted)
	}
	if err := readPasswords(&wanted.BGP); err != nil {
		return err
	}
	if s.gobgp != nil && (s.wanted.BGP.ASN != wanted.BGP.ASN || s.wanted.BGP.RouterID != wanted.BGP.RouterID) {
		s.stop()
	}
	if s.gobgp == nil {
		if err := s.start(wanted.BGP); err != nil {
			return err
		}
	}
	before := s.wanted
	s.wanted = wanted
	dressed := before.BGP.ASN == 0 || !reflect.DeepEqual(attributesOf(before), attributesOf(wanted))
	if dressed {
		if err := s.dress(wanted); err != nil {
			return fmt.Errorf("set the attributes of routes: %w", err)
		}
	}
	errs := []error{s.announce(slices.Concat(wanted.VIPs, wanted.Pool, wanted.Backup)), s.meet(wanted.BGP.Peers),
		s.clearTable()}
	if dressed {
		errs = append(errs, s.announceAnew())
	}
	s.watchWays(wanted.BGP.Peers)
	s.note()
	return errors.Join(errs...)
}

// start has GoBGP run as a speaker of this AS. It listens nowhere: the balancer opens the sessions, and
// leaves port 179 to a daemon that has it.
func (s *Speaker) start(wanted lb.BGP) error {
	level := &slog.LevelVar{}
	level.Set(slog.LevelDebug)
	made := server.NewBgpServer(server.LoggerOption(slog.New(s.heard), level))
	go made.Serve()
	ctx, cancel := context.WithCancel(context.Background())
	err := made.StartBgp(ctx,
		&api.StartBgpRequest{Global: &api.Global{Asn: wanted.ASN, RouterId: wanted.RouterID.String(), ListenPort: -1}})
	if err == nil {
		err = made.WatchEvent(ctx, server.WatchEventMessageCallbacks{OnPeerUpdate: s.follow}, server.WatchPeer())
	}
	if err != nil {
		cancel()
		return fmt.Errorf("start BGP as AS %d, %s: %w", wanted.ASN, wanted.RouterID, err)
	}
	s.gobgp, s.close, s.wanted = made, cancel, bgp.Wanted{}
	s.peers, s.vips, s.paused = map[string]lb.BGPPeer{}, map[netip.Addr]bool{}, map[string]time.Time{}
	go s.look(ctx)
	return nil
}

// Orphan withdraws everything.
func (s *Speaker) Orphan() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log.Warn("no balancer was heard for too long: all routes are withdrawn")
	if err := s.withdraw(); err != nil {
		s.log.Error(err.Error())
	}
	s.wanted.VIPs, s.wanted.Pool, s.wanted.Backup = nil, nil, nil
	s.note()
}

// End ends all sessions: by Stop, routes are withdrawn and peers told first; by Restart, the process's end
// closes the connections, and routers that agreed to it keep the routes. Either way, BFD says to them that it ends as
// is meant.
func (s *Speaker) End(how bgp.Ending) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if how == bgp.Stop {
		if err := s.withdraw(); err != nil {
			s.log.Error(err.Error())
		}
		if s.gobgp != nil {
			s.stop()
		}
	}
	s.bfd.Stop()
}

// withdraw takes all VIPs back, by whom they are announced. mu is held.
func (s *Speaker) withdraw() error {
	err := s.clearTable()
	if s.gobgp != nil {
		err = errors.Join(err, s.announce(nil))
	}
	s.show(nil)
	return err
}

// State returns the state of the speaker.
func (s *Speaker) State() bgp.State {
	s.seen.Lock()
	defer s.seen.Unlock()
	state := bgp.State{Number: s.number, VIPs: s.shown}
	for _, fault := range s.files.Faults() {
		state.Faults = append(state.Faults, fault.String())
	}
	for _, p := range s.known {
		shown := *p
		shown.BFD = s.showBFD(p.Address)
		state.Peers = append(state.Peers, shown)
	}
	slices.SortFunc(state.Peers, func(a, b ops.BGPPeer) int { return compareNames(a.Address, b.Address) })
	return state
}
