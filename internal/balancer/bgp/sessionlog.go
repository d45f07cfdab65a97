// SPDX-License-Identifier: Apache-2.0

package bgp

import (
	"fmt"
	"log/slog"

	"github.com/jeoul/jeoul/internal/balancer/events"
	"github.com/jeoul/jeoul/internal/balancer/ops"
)

// logAttrs marks log lines about routers.
func logAttrs() slog.Attr { return events.About{Kind: events.KindRoutes}.Attr() }

// sessionLog logs how the sessions with the peers change.
type sessionLog struct {
	log *slog.Logger
	// established is called after each new session; nil: no call.
	established func()
	known       map[string]*loggedPeer
}

// loggedPeer is a peer as it was logged last.
type loggedPeer struct {
	peer ops.BGPPeer
	// reasons are the reasons that were logged since the last session.
	reasons map[string]bool
	floods  bool
}

// speakerReplaced makes the next sessions new ones: they are those of another process.
func (l *sessionLog) speakerReplaced() {
	for _, h := range l.known {
		h.peer.Sessions, h.peer.BFD = 0, nil
	}
}

// logPeers logs changes since the last call.
func (l *sessionLog) logPeers(peers []ops.BGPPeer) {
	there := map[string]bool{}
	for _, p := range peers {
		there[p.Address] = true
		h := l.known[p.Address]
		if h == nil {
			h = &loggedPeer{reasons: map[string]bool{}}
			l.known[p.Address] = h
		}
		l.logPeer(h, p)
		h.peer = p
	}
	for name := range l.known {
		if !there[name] {
			delete(l.known, name)
		}
	}
}

func (l *sessionLog) logPeer(h *loggedPeer, p ops.BGPPeer) {
	was, is := h.peer.Established(), p.Established()
	switch {
	case was && (!is || p.Sessions != h.peer.Sessions):
		l.log.Warn(fmt.Sprintf("BGP peer %s (AS %d) down: %s", p.Address, p.ASN, reasonOf(p)), logAttrs())
		h.reasons[p.Reason] = true
	case !is && p.Reason != "" && !h.reasons[p.Reason]:
		l.log.Warn(fmt.Sprintf("BGP peer %s (AS %d) has no session: %s", p.Address, p.ASN, p.Reason), logAttrs())
		h.reasons[p.Reason] = true
	}
	if is && (!was || p.Sessions != h.peer.Sessions) {
		l.log.Info(fmt.Sprintf("BGP peer %s (AS %d) established", p.Address, p.ASN), logAttrs())
		clear(h.reasons)
		h.floods = false
		if l.established != nil {
			l.established()
		}
	}
	l.logBFD(h, p)
	if is && p.Received > 0 && !h.floods {
		l.log.Info(fmt.Sprintf("BGP peer %s announces routes (%d so far), which are ignored", p.Address, p.Received),
			logAttrs())
		h.floods = true
	}
}

// logBFD logs the changes of the BFD session since the last call.
func (l *sessionLog) logBFD(h *loggedPeer, p ops.BGPPeer) {
	if p.BFD == nil {
		return
	}
	before := ops.BFD{}
	if h.peer.BFD != nil {
		before = *h.peer.BFD
	}
	switch {
	case p.BFD.Failures > before.Failures:
		l.log.Warn(fmt.Sprintf("BFD with BGP peer %s down: %s", p.Address, p.BFD.Diagnostic), logAttrs())
	case before.State == "up" && p.BFD.State != "up":
		l.log.Info(fmt.Sprintf("BFD with BGP peer %s was taken down by the router", p.Address), logAttrs())
	}
	if p.BFD.State == "up" && p.BFD.Ups != before.Ups {
		l.log.Info(fmt.Sprintf("BFD with BGP peer %s up", p.Address), logAttrs())
	}
	if p.BFD.State != "up" && p.BFD.Problem != "" && p.BFD.Problem != before.Problem {
		l.log.Warn(fmt.Sprintf("BFD with BGP peer %s is %s: %s", p.Address, p.BFD.State, p.BFD.Problem), logAttrs())
	}
}

func reasonOf(p ops.BGPPeer) string {
	if p.Reason == "" {
		return "the session ended"
	}
	return p.Reason
}
