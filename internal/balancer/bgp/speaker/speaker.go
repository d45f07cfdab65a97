// SPDX-License-Identifier: Apache-2.0

// Package speaker announces routes to BGP routers by GoBGP. It announces only: whatever routers send is
// refused, and counted.
package speaker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/apiutil"
	gobgp "github.com/osrg/gobgp/v4/pkg/packet/bgp"
	"github.com/osrg/gobgp/v4/pkg/server"

	"github.com/jeoul/jeoul/internal/balancer/bfd"
	"github.com/jeoul/jeoul/internal/balancer/bgp"
	"github.com/jeoul/jeoul/internal/balancer/bgp/hosttable"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/host/durable"
)

// Speaker speaks to the routers of one balancer.
type Speaker struct {
	log *slog.Logger
	// restarting: a speaker before this one has left its routes with the routers.
	restarting bool
	heard      *hearing
	bfd        *bfd.Engine

	// mu orders changes of the desired state.
	mu sync.Mutex
	// gobgp is nil before anything is wanted.
	gobgp  *server.BgpServer
	close  context.CancelFunc
	wanted bgp.Wanted
	// peers are GoBGP's peers, as they were given to it.
	peers map[string]lb.BGPPeer
	vips  map[netip.Addr]bool
	// paused are peers that sent too much, until when.
	paused map[string]time.Time
	// table has the VIPs where a daemon of this host speaks to the routers, as journal says; watch ends the goroutine
	// that looks after it. Both are nil otherwise.
	journal string
	files   *durable.Files
	table   *hosttable.Table
	watch   context.CancelFunc

	// seen guards the fields below: the known state of the peers.
	seen    sync.Mutex
	known   map[string]*ops.BGPPeer
	shown   []netip.Addr
	number  uint64
	changed chan struct{}
}

// New returns a speaker that has no peers yet. Restarting says that one before it ended without a word, and that
// routers may have kept its routes: they are told so (RFC 4724, the R bit). The file journal has the routes that are
// put into the host's tables.
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

// stop ends all sessions, and says so to the peers.
func (s *Speaker) stop() {
	s.close()
	if err := s.gobgp.StopBgp(context.Background(), &api.StopBgpRequest{}); err != nil {
		s.log.Warn("end the BGP sessions: " + err.Error())
	}
	s.gobgp = nil
	s.seen.Lock()
	clear(s.known)
	s.seen.Unlock()
}

// announce has GoBGP's table hold these addresses and no others. Its peers are sent each difference.
func (s *Speaker) announce(vips []netip.Addr) error {
	wanted := make(map[netip.Addr]bool, len(vips))
	var added, gone []*apiutil.Path
	for _, vip := range vips {
		if wanted[vip] = true; !s.vips[vip] {
			added = append(added, route(vip))
		}
	}
	for vip := range s.vips {
		if !wanted[vip] {
			gone = append(gone, route(vip))
		}
	}
	if len(gone) > 0 {
		if err := s.gobgp.DeletePath(apiutil.DeletePathRequest{Paths: gone}); err != nil {
			return fmt.Errorf("withdraw %d VIPs: %w", len(gone), err)
		}
	}
	if len(added) > 0 {
		if _, err := s.gobgp.AddPath(apiutil.AddPathRequest{Paths: added}); err != nil {
			return fmt.Errorf("announce %d VIPs: %w", len(added), err)
		}
	}
	s.vips = wanted
	s.show(slices.SortedFunc(maps.Keys(wanted), netip.Addr.Compare))
	return nil
}

// show has the state say that these VIPs are announced.
func (s *Speaker) show(vips []netip.Addr) {
	s.seen.Lock()
	s.shown = vips
	s.seen.Unlock()
}

// route is a VIP's, whose next hop is the address of each session unless the policy has another.
func route(vip netip.Addr) *apiutil.Path {
	prefix, _ := gobgp.NewIPAddrPrefix(netip.PrefixFrom(vip, vip.BitLen()))
	attributes := []gobgp.PathAttributeInterface{gobgp.NewPathAttributeOrigin(gobgp.BGP_ORIGIN_ATTR_TYPE_IGP)}
	family := gobgp.RF_IPv4_UC
	if vip.Is4() {
		hop, _ := gobgp.NewPathAttributeNextHop(netip.IPv4Unspecified())
		attributes = append(attributes, hop)
	} else {
		family = gobgp.RF_IPv6_UC
		reach, _ := gobgp.NewPathAttributeMpReachNLRI(family, []gobgp.PathNLRI{{NLRI: prefix}}, netip.IPv6Unspecified())
		attributes = append(attributes, reach)
	}
	return &apiutil.Path{Family: family, Nlri: prefix, Attrs: attributes, Age: time.Now().Unix()}
}

// announceAnew sends all routes to all peers again (a soft reset, RFC 2918), since their attributes have changed.
func (s *Speaker) announceAnew() error {
	var errs []error
	for name := range s.peers {
		errs = append(errs,
			s.gobgp.ResetPeer(context.Background(), &api.ResetPeerRequest{Address: name, Soft: true,
				Direction: api.ResetPeerRequest_DIRECTION_OUT}))
	}
	return errors.Join(errs...)
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

// withdraw takes all VIPs back, by whom they are announced. mu is held.
func (s *Speaker) withdraw() error {
	err := s.clearTable()
	if s.gobgp != nil {
		err = errors.Join(err, s.announce(nil))
	}
	s.show(nil)
	return err
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

// compareNames orders addresses as numbers.
func compareNames(a, b string) int {
	x, errX := netip.ParseAddr(a)
	y, errY := netip.ParseAddr(b)
	if errX != nil || errY != nil {
		return 0
	}
	return x.Compare(y)
}

// Changed is closed when the state may be another.
func (s *Speaker) Changed() <-chan struct{} {
	s.seen.Lock()
	defer s.seen.Unlock()
	return s.changed
}

// note signals that the state has changed; seen is not held.
func (s *Speaker) note() {
	s.seen.Lock()
	defer s.seen.Unlock()
	s.noteLocked()
}

func (s *Speaker) noteLocked() {
	s.number++
	close(s.changed)
	s.changed = make(chan struct{})
}
