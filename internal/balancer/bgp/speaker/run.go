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
		peerStates: map[string]*ops.BGPPeer{}, changed: make(chan struct{}), number: 1}
	s.gobgpLog = &gobgpLog{speaker: s}
	s.bfd = bfd.NewEngine(s.handleBFDChange)
	return s
}

// Apply applies another desired state: first the routes, then the peers, so that a new peer gets all routes at once. A
// password that cannot be read is an error that prevents nothing else: VIPs must be withdrawn all the same.
func (s *Speaker) Apply(desired bgp.Desired) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if desired.BGP.Speaker == lb.SpeakerLocal {
		return s.applyHostTable(desired)
	}
	var known []lb.BGPPeer
	if s.gobgp != nil {
		known = s.desired.BGP.Peers
	}
	unread := readPasswords(&desired.BGP, known)
	if s.gobgp != nil && (s.desired.BGP.ASN != desired.BGP.ASN || s.desired.BGP.RouterID != desired.BGP.RouterID) {
		s.stop()
	}
	if s.gobgp == nil {
		if err := s.startServer(desired.BGP); err != nil {
			return errors.Join(unread, err)
		}
	}
	before := s.desired
	s.desired = desired
	dressed := before.BGP.ASN == 0 || !reflect.DeepEqual(attributesOf(before), attributesOf(desired))
	if dressed {
		if err := s.setAttributes(desired); err != nil {
			return fmt.Errorf("set the attributes of routes: %w", err)
		}
	}
	errs := []error{unread, s.announce(slices.Concat(desired.VIPs, desired.Pool, desired.Backup)),
		s.reconcilePeers(desired.BGP.Peers),
		s.clearTable()}
	if dressed {
		errs = append(errs, s.softReset())
	}
	s.setBFDPeers(desired.BGP.Peers)
	s.notifyChanged()
	return errors.Join(errs...)
}

// startServer starts GoBGP as a speaker of this AS. It listens nowhere: the balancer opens the sessions, and leaves
// port 179 to a daemon that has it.
func (s *Speaker) startServer(desired lb.BGP) error {
	level := &slog.LevelVar{}
	level.Set(slog.LevelDebug)
	made := server.NewBgpServer(server.LoggerOption(slog.New(s.gobgpLog), level))
	go made.Serve()
	ctx, cancel := context.WithCancel(context.Background())
	err := made.StartBgp(ctx,
		&api.StartBgpRequest{Global: &api.Global{Asn: desired.ASN, RouterId: desired.RouterID.String(),
			ListenPort: -1}})
	if err == nil {
		err = made.WatchEvent(ctx, server.WatchEventMessageCallbacks{OnPeerUpdate: s.handlePeerEvent},
			server.WatchPeer())
	}
	if err != nil {
		cancel()
		return fmt.Errorf("start BGP as AS %d, %s: %w", desired.ASN, desired.RouterID, err)
	}
	s.gobgp, s.close, s.desired = made, cancel, bgp.Desired{}
	s.peers, s.vips, s.paused = map[string]lb.BGPPeer{}, map[netip.Addr]bool{}, map[string]time.Time{}
	go s.pollPeers(ctx)
	return nil
}

// WithdrawAll withdraws all routes. Of calls that repeat one that failed, it logs nothing.
func (s *Speaker) WithdrawAll() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	first := len(s.desired.VIPs)+len(s.desired.Pool)+len(s.desired.Backup) > 0
	if first {
		s.log.Warn("no balancer has made a request for too long: all routes are withdrawn")
	}
	err := s.withdraw()
	if err != nil && first {
		s.log.Error(err.Error())
	}
	s.desired.VIPs, s.desired.Pool, s.desired.Backup = nil, nil, nil
	s.notifyChanged()
	return err
}

// Shutdown ends all sessions: by Stop, routes are withdrawn and peers notified first; by Restart, the end of the
// process closes the connections, and routers with graceful restart keep the routes. Either way, BFD sends AdminDown.
func (s *Speaker) Shutdown(how bgp.ShutdownMode) {
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

// withdraw withdraws all VIPs, from GoBGP's peers or from the host's table. mu is held.
func (s *Speaker) withdraw() error {
	err := s.clearTable()
	if s.gobgp != nil {
		err = errors.Join(err, s.announce(nil))
	}
	s.setAnnounced(nil)
	return err
}

// State returns the state of the speaker.
func (s *Speaker) State() bgp.State {
	s.stateMu.Lock()
	defer s.stateMu.Unlock()
	state := bgp.State{Number: s.number, VIPs: s.announced}
	for _, fault := range s.files.Faults() {
		state.Faults = append(state.Faults, fault.String())
	}
	for _, p := range s.peerStates {
		shown := *p
		shown.BFD = s.bfdStatus(p.Address)
		state.Peers = append(state.Peers, shown)
	}
	slices.SortFunc(state.Peers, func(a, b ops.BGPPeer) int { return compareNames(a.Address, b.Address) })
	return state
}
