// SPDX-License-Identifier: Apache-2.0

package jeoul

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"net/netip"
	"path/filepath"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/config"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/weigh/bench/router"
	"github.com/jeoul/jeoul/internal/weigh/bench/subject"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// drainPause is how long the router prefers all other routes to those of a draining balancer before they are withdrawn.
const drainPause = time.Second

// addresses returns the source addresses of full NAT on this balancer. Each of several balancers has an address of its
// own. Members know each other's addresses.
func addresses(s subject.Setup) (pool []config.PoolAddress) {
	address := s.Lab.FullNAT
	if len(s.Lab.Balancers) == 0 {
		return []config.PoolAddress{{Address: address}}
	}
	for _, h := range s.Lab.Balancers {
		switch {
		case s.Members:
			pool = append(pool, config.PoolAddress{Address: address, Member: h.IPv4})
		case h == s.Balancer():
			pool = append(pool, config.PoolAddress{Address: address})
		}
		address = address.Prev()
	}
	return pool
}

// detourReplies routes replies to the addresses that members share through the router, which knows which member has
// each address.
func detourReplies(s subject.Setup, on bool) error {
	var pool []netip.Addr
	for _, a := range addresses(s) {
		pool = append(pool, a.Address)
	}
	return s.Lab.DetourPool(pool, on)
}

// announce makes the balancer announce the VIP to the router, over its own link. The router must not keep the routes of
// a dead balancer: in a laboratory, the data plane of a dead balancer would continue to serve, which that of a dead
// machine cannot.
func announce(file *config.Config, s subject.Setup) {
	at := s.Balancer()
	file.Interfaces = append(file.Interfaces, at.Uplink)
	file.BGP = lb.BGP{ASN: subject.BalancerAS, RouterID: at.Uplink4, DrainPause: drainPause,
		Peers: []lb.BGPPeer{{Address: at.Gateway4, ASN: subject.RouterAS, Port: lb.DefaultBGPPort,
			HoldTime: subject.HoldTime, BFD: bfd(s)}}}
	if s.Members {
		file.Members = lb.MembersConfig{Listen: netip.AddrPortFrom(at.IPv4, lb.DefaultMembersPort),
			KeyFile: membersKey(at), Name: at.Name, HandOver: true}
		for _, h := range s.Lab.Balancers {
			file.Members.Peers = append(file.Members.Peers, h.IPv4)
		}
	}
}

// bfd returns how a balancer monitors its path to the router.
func bfd(s subject.Setup) lb.BFD {
	if s.BFD == 0 {
		return lb.BFD{}
	}
	return lb.BFD{On: true, Interval: s.BFD, Multiplier: router.Multiplier}
}

// Announce is announce for a balancer that no subject configures, in a laboratory of several balancers that are members
// of each other.
func Announce(file *config.Config, l *lab.Lab, at *lab.Host) {
	announce(file, subject.Setup{Lab: l, Members: true, At: at})
}

// membersKey returns the path of the key by which a balancer recognises other members.
func membersKey(at *lab.Host) string { return filepath.Join(at.Dir, "members.key") }

// ShareKey gives the same key to all balancers that are members ([Announce]).
func ShareKey(l *lab.Lab) error {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // it never fails
	for _, h := range l.Balancers {
		if err := h.WriteSecret(membersKey(h), []byte(base64.StdEncoding.EncodeToString(key))); err != nil {
			return fmt.Errorf("write the members' key: %w", err)
		}
	}
	return nil
}
