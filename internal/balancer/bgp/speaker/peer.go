// SPDX-License-Identifier: Apache-2.0

package speaker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/osrg/gobgp/v4/api"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
)

const (
	// restartTime is how long routers keep the routes of a lost speaker, in seconds: it must restart within that. The
	// routes of a dead machine stay for as long, too.
	restartTime = 10
	// deferral bounds the wait of a restarted speaker for its peers' routes, in seconds, before it announces: it uses
	// none of them.
	deferral = 3
	// connectRetry and idleHold are how long the speaker waits before it tries again, in seconds.
	connectRetry, idleHold = 3, 3
	// maxReceived is how many routes a peer may send, of each family, before the session is closed for floodPause:
	// GoBGP keeps the routes that it refuses, some 500 bytes each.
	maxReceived = 20_000
	// maxPassword is the longest password that a kernel takes (TCP_MD5SIG_MAXKEYLEN).
	maxPassword = 80
)

// readPasswords reads the passwords that are in files. A peer whose password cannot be read stays as it was among the
// peers before; one that was not among them is left out, because a session without its password would be refused.
func readPasswords(desired *lb.BGP, before []lb.BGPPeer) error {
	var errs []error
	peers := make([]lb.BGPPeer, 0, len(desired.Peers))
	for _, p := range desired.Peers {
		if p.PasswordFile != "" {
			password, err := readPassword(p)
			p.Password = password
			if err != nil {
				errs = append(errs, err)
				i := slices.IndexFunc(before, func(o lb.BGPPeer) bool { return o.Name() == p.Name() })
				if i < 0 {
					continue
				}
				p = before[i]
			}
		}
		peers = append(peers, p)
	}
	desired.Peers = peers
	return errors.Join(errs...)
}

// readPassword reads the password of a peer from its file.
func readPassword(p lb.BGPPeer) (string, error) {
	text, err := os.ReadFile(p.PasswordFile)
	if err != nil {
		return "", fmt.Errorf("read the password of the BGP peer %s: %w", p.Name(), err)
	}
	password := strings.TrimRight(string(text), "\r\n")
	if password == "" || len(password) > maxPassword {
		return "", fmt.Errorf("read the password of the BGP peer %s: %s has %d bytes, and a password has 1 to %d",
			p.Name(), p.PasswordFile, len(password), maxPassword)
	}
	return password, nil
}

// sessionSettings returns a peer without the settings of routes and BFD: where they change, the session must be opened
// again.
func sessionSettings(p lb.BGPPeer) lb.BGPPeer {
	p.BFD = lb.BFD{}
	p.Communities, p.MED, p.LocalPreference, p.Prepend, p.NextHops = nil, nil, nil, 0, nil
	return p
}

// reconcilePeers makes these routers GoBGP's only peers. Sessions with unchanged peers go on.
func (s *Speaker) reconcilePeers(peers []lb.BGPPeer) error {
	desired := make(map[string]lb.BGPPeer, len(peers))
	for _, p := range peers {
		desired[p.Name()] = sessionSettings(p)
	}
	var errs []error
	for name, p := range s.peers {
		if w, exists := desired[name]; !exists || !reflect.DeepEqual(w, p) {
			errs = append(errs, s.removePeer(name, !exists))
		}
	}
	for _, p := range peers {
		if _, there := s.peers[p.Name()]; !there {
			errs = append(errs, s.addPeer(sessionSettings(p)))
		}
	}
	return errors.Join(errs...)
}

// removePeer ends the session with a peer, and notifies it.
func (s *Speaker) removePeer(name string, forget bool) error {
	if err := s.gobgp.DeletePeer(context.Background(), &api.DeletePeerRequest{Address: name}); err != nil {
		return fmt.Errorf("end the session with %s: %w", name, err)
	}
	delete(s.peers, name)
	delete(s.paused, name)
	if forget {
		s.stateMu.Lock()
		delete(s.peerStates, name)
		s.stateMu.Unlock()
	}
	return nil
}

// addPeer adds a peer, with which GoBGP opens a session as soon as it answers.
func (s *Speaker) addPeer(p lb.BGPPeer) error {
	s.stateMu.Lock()
	if s.peerStates[p.Name()] == nil {
		s.peerStates[p.Name()] = &ops.BGPPeer{Address: p.Name(), State: "idle"}
	}
	s.peerStates[p.Name()].ASN = p.ASN
	s.stateMu.Unlock()
	if err := s.gobgp.AddPeer(context.Background(), &api.AddPeerRequest{Peer: s.gobgpPeer(p)}); err != nil {
		s.stateMu.Lock()
		s.peerStates[p.Name()].Reason = err.Error()
		s.stateMu.Unlock()
		return fmt.Errorf("speak to %s: %w", p.Name(), err)
	}
	s.peers[p.Name()] = p
	return nil
}

// gobgpPeer returns a peer as GoBGP's API has it. BFD is ours (bfd.go): GoBGP 4.8's ends the session after the one
// that it should have ended.
func (s *Speaker) gobgpPeer(p lb.BGPPeer) *api.Peer {
	hold := uint64(p.HoldTime.Seconds())
	made := &api.Peer{
		Conf: &api.PeerConf{NeighborAddress: p.Name(), PeerAsn: p.ASN, AuthPassword: p.Password},
		Timers: &api.Timers{Config: &api.TimersConfig{HoldTime: hold, KeepaliveInterval: hold / 3,
			ConnectRetry: connectRetry, IdleHoldTimeAfterReset: idleHold}},
		Transport: &api.Transport{RemotePort: uint32(p.Port), BindInterface: p.Interface},
		GracefulRestart: &api.GracefulRestart{Enabled: p.GracefulRestart, RestartTime: restartTime,
			DeferralTime: deferral, LocalRestarting: p.GracefulRestart && s.restarting},
	}
	if p.LocalAddress.IsValid() {
		made.Transport.LocalAddress = p.LocalAddress.String()
	}
	if p.TTLSecurity {
		// 255 less the hops between: a packet from further away has a smaller TTL (RFC 5082 section 3).
		made.TtlSecurity = &api.TtlSecurity{Enabled: true, TtlMin: 255 - uint32(max(p.Multihop, 1)-1)}
	} else if p.Multihop > 0 {
		made.EbgpMultihop = &api.EbgpMultihop{Enabled: true, MultihopTtl: uint32(p.Multihop)}
	}
	for _, f := range p.Announces() {
		family := familyOf(f)
		spoken := &api.AfiSafi{
			Config:            &api.AfiSafiConfig{Family: family, Enabled: true},
			MpGracefulRestart: &api.MpGracefulRestart{Config: &api.MpGracefulRestartConfig{Enabled: p.GracefulRestart}},
			PrefixLimits:      &api.PrefixLimit{Family: family, MaxPrefixes: maxReceived},
		}
		if p.AddPath {
			spoken.AddPaths = &api.AddPaths{Config: &api.AddPathsConfig{SendMax: 1}}
		}
		made.AfiSafis = append(made.AfiSafis, spoken)
	}
	return made
}
