// SPDX-License-Identifier: Apache-2.0

package speaker

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/balancer/bfd"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
)

// setBFDPeers starts BFD sessions with these peers. Where that fails, BGP goes on without BFD, and the peer's state
// says why.
func (s *Speaker) setBFDPeers(peers []lb.BGPPeer) {
	var watched []bfd.Peer
	for _, p := range peers {
		if p.BFD.On {
			watched = append(watched, bfd.Peer{Address: p.AddressWithZone(), Local: p.LocalAddress,
				Interface: p.Interface,
				Timing:    bfd.Timing{Interval: p.BFD.Interval, Multiplier: p.BFD.Multiplier}})
		}
	}
	if err := s.bfd.SetPeers(watched); err != nil {
		s.log.Error(err.Error())
	}
}

// handleBFDChange ends the session with a peer that BFD has lost. GoBGP opens the next one by itself.
func (s *Speaker) handleBFDChange(peer netip.Addr, change bfd.Change, status bfd.Status) {
	if change.Failed {
		s.setDownReason(peer.String(), fmt.Sprintf("%s (%s)", lostByBFD, status.Diagnostic))
		if err := s.dropConnection(peer); err != nil {
			s.log.Error(fmt.Sprintf("end the session with %s, which BFD has lost: %v", peer, err))
		}
	}
	s.notifyChanged()
}

// dropConnection ends the connection with a peer as if it had broken. GoBGP's API can only send a Cease, on which a
// router drops the routes that it would keep over a restart, although only its BFD may have ended (RFC 5882 section
// 4.3.2); and GoBGP sends in the next session the messages that it could not send in this one. So dropConnection finds
// the connection among the process's descriptors.
func (s *Speaker) dropConnection(peer netip.Addr) error {
	s.mu.Lock()
	port := s.peers[peer.String()].Port
	s.mu.Unlock()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		if number, err := strconv.Atoi(e.Name()); err == nil {
			errs = append(errs, shutdownIfConnectedTo(number, netip.AddrPortFrom(peer, port)))
		}
	}
	return errors.Join(errs...)
}

// shutdownIfConnectedTo ends a connection to an address. It duplicates the descriptor first, because the number may be
// reused meanwhile.
func shutdownIfConnectedTo(number int, peer netip.AddrPort) error {
	fd, err := unix.FcntlInt(uintptr(number), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil // closed meanwhile
	}
	defer unix.Close(fd)
	kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	if err != nil || kind != unix.SOCK_STREAM {
		return nil
	}
	far, err := unix.Getpeername(fd)
	if err != nil {
		return nil
	}
	var to netip.AddrPort
	switch a := far.(type) {
	case *unix.SockaddrInet4:
		to = netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port))
	case *unix.SockaddrInet6:
		to = netip.AddrPortFrom(netip.AddrFrom16(a.Addr), uint16(a.Port))
	}
	// The zone of a link-local address is not compared: a router with one address on two links loses both sessions.
	if to != netip.AddrPortFrom(peer.Addr().WithZone(""), peer.Port()) {
		return nil
	}
	if err := unix.Shutdown(fd, unix.SHUT_RDWR); err != nil && err != unix.ENOTCONN {
		return err
	}
	return nil
}

// bfdStatus returns the BFD session with a peer; nil where there is none.
func (s *Speaker) bfdStatus(name string) *ops.BFD {
	peer, err := netip.ParseAddr(name)
	if err != nil {
		return nil
	}
	b, watched := s.bfd.Status(peer)
	if !watched {
		return nil
	}
	return &ops.BFD{State: b.State.String(), Since: b.Since, RemoteState: b.RemoteState.String(),
		Diagnostic: b.Diagnostic.String(), RemoteDiagnostic: b.RemoteDiagnostic.String(),
		IntervalSeconds: b.Interval.Seconds(), DetectionSeconds: b.Detection.Seconds(), Ups: b.Ups,
		Failures: b.Failures, Sent: b.Sent, Received: b.Received, Refused: b.Refused,
		Late: b.Late, Problem: b.Problem}
}
