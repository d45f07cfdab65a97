// SPDX-License-Identifier: Apache-2.0

// Package speaker announces routes to BGP routers by GoBGP. Routes that routers send are refused, and counted.
package speaker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
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
	// restarting: routers may still have the routes of the previous speaker.
	restarting bool
	gobgpLog   *gobgpLog
	bfd        *bfd.Engine

	// mu orders changes of the desired state.
	mu sync.Mutex
	// gobgp is nil before the first desired state.
	gobgp   *server.BgpServer
	close   context.CancelFunc
	desired bgp.Desired
	// peers are the peers added to GoBGP.
	peers map[string]lb.BGPPeer
	vips  map[netip.Addr]bool
	// paused are the peers that sent too many routes, with the end of each pause.
	paused map[string]time.Time
	// table has the VIPs if a daemon of this host speaks to the routers, with its journal in the file journal; watch
	// ends the goroutine that restores its routes. Both are nil otherwise.
	journal string
	files   *durable.Files
	table   *hosttable.Table
	watch   context.CancelFunc

	// stateMu guards the fields below: the known state of the peers.
	stateMu    sync.Mutex
	peerStates map[string]*ops.BGPPeer
	announced  []netip.Addr
	number     uint64
	changed    chan struct{}
}

// announce makes these addresses the only ones in GoBGP's table. GoBGP sends its peers each difference.
func (s *Speaker) announce(vips []netip.Addr) error {
	desired := make(map[netip.Addr]bool, len(vips))
	var added, gone []*apiutil.Path
	for _, vip := range vips {
		if desired[vip] = true; !s.vips[vip] {
			added = append(added, route(vip))
		}
	}
	for vip := range s.vips {
		if !desired[vip] {
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
	s.vips = desired
	s.setAnnounced(slices.SortedFunc(maps.Keys(desired), netip.Addr.Compare))
	return nil
}

// route returns the path of a VIP, whose next hop is the local address of each session unless the policy sets another.
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

// softReset sends all routes to all peers again (RFC 2918), since their attributes have changed.
func (s *Speaker) softReset() error {
	var errs []error
	for name := range s.peers {
		errs = append(errs,
			s.gobgp.ResetPeer(context.Background(), &api.ResetPeerRequest{Address: name, Soft: true,
				Direction: api.ResetPeerRequest_DIRECTION_OUT}))
	}
	return errors.Join(errs...)
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

// Changed returns a channel that is closed when the state may have changed.
func (s *Speaker) Changed() <-chan struct{} {
	s.stateMu.Lock()
	defer s.stateMu.Unlock()
	return s.changed
}

// notifyChanged signals that the state has changed; stateMu is not held.
func (s *Speaker) notifyChanged() {
	s.stateMu.Lock()
	defer s.stateMu.Unlock()
	s.notifyChangedLocked()
}

func (s *Speaker) notifyChangedLocked() {
	s.number++
	close(s.changed)
	s.changed = make(chan struct{})
}

// stop ends all sessions, and notifies the peers.
func (s *Speaker) stop() {
	s.close()
	if err := s.gobgp.StopBgp(context.Background(), &api.StopBgpRequest{}); err != nil {
		s.log.Warn("end the BGP sessions: " + err.Error())
	}
	s.gobgp = nil
	s.stateMu.Lock()
	clear(s.peerStates)
	s.stateMu.Unlock()
}

// setAnnounced records the announced VIPs in the state.
func (s *Speaker) setAnnounced(vips []netip.Addr) {
	s.stateMu.Lock()
	s.announced = vips
	s.stateMu.Unlock()
}

// gobgpLog is the handler of GoBGP's log. The log says why a session is not established, which GoBGP's events do not.
type gobgpLog struct {
	speaker *Speaker
	// peer is the address of the peer that the records are about.
	peer string
}
