// SPDX-License-Identifier: Apache-2.0

package bgp

import (
	"fmt"
	"log/slog"

	"github.com/jeoul/jeoul/internal/balancer/events"
)

// about marks what is logged of routers.
func about() slog.Attr { return events.About{Kind: events.KindRoutes}.Attr() }

// tale logs what becomes of the peers.
type tale struct {
	log *slog.Logger
	// established is called with each session that is new; nil: nothing is.
	established func()
	known       map[string]*heard
}

// heard is what was logged of a peer.
type heard struct {
	peer Peer
	// reasons are those that were logged since the last session.
	reasons map[string]bool
	floods  bool
}

// another says that the speaker is another process, whose sessions are new.
func (t *tale) another() {
	for _, h := range t.known {
		h.peer.Sessions, h.peer.BFD = 0, nil
	}
}

// tell logs what is new.
func (t *tale) tell(peers []Peer) {
	there := map[string]bool{}
	for _, p := range peers {
		there[p.Name] = true
		h := t.known[p.Name]
		if h == nil {
			h = &heard{reasons: map[string]bool{}}
			t.known[p.Name] = h
		}
		t.tellOne(h, p)
		h.peer = p
	}
	for name := range t.known {
		if !there[name] {
			delete(t.known, name)
		}
	}
}

func (t *tale) tellOne(h *heard, p Peer) {
	was, is := h.peer.State == Established, p.State == Established
	switch {
	case was && (!is || p.Sessions != h.peer.Sessions):
		t.log.Warn(fmt.Sprintf("BGP peer %s (AS %d) down: %s", p.Name, p.ASN, reasonOf(p)), about())
		h.reasons[p.Reason] = true
	case !is && p.Reason != "" && !h.reasons[p.Reason]:
		t.log.Warn(fmt.Sprintf("BGP peer %s (AS %d) has no session: %s", p.Name, p.ASN, p.Reason), about())
		h.reasons[p.Reason] = true
	}
	if is && (!was || p.Sessions != h.peer.Sessions) {
		t.log.Info(fmt.Sprintf("BGP peer %s (AS %d) established", p.Name, p.ASN), about())
		clear(h.reasons)
		h.floods = false
		if t.established != nil {
			t.established()
		}
	}
	t.tellBFD(h, p)
	if is && p.Received > 0 && !h.floods {
		t.log.Info(fmt.Sprintf("BGP peer %s announces routes (%d so far), which are ignored", p.Name, p.Received), about())
		h.floods = true
	}
}

// tellBFD logs what BFD has found since.
func (t *tale) tellBFD(h *heard, p Peer) {
	if p.BFD == nil {
		return
	}
	before := BFD{}
	if h.peer.BFD != nil {
		before = *h.peer.BFD
	}
	switch {
	case p.BFD.Failures > before.Failures:
		t.log.Warn(fmt.Sprintf("BFD with BGP peer %s down: %s", p.Name, p.BFD.Diagnostic), about())
	case before.State == "up" && p.BFD.State != "up":
		t.log.Info(fmt.Sprintf("BFD with BGP peer %s was taken down by the router", p.Name), about())
	}
	if p.BFD.State == "up" && p.BFD.Ups != before.Ups {
		t.log.Info(fmt.Sprintf("BFD with BGP peer %s up", p.Name), about())
	}
	if p.BFD.State != "up" && p.BFD.Problem != "" && p.BFD.Problem != before.Problem {
		t.log.Warn(fmt.Sprintf("BFD with BGP peer %s is %s: %s", p.Name, p.BFD.State, p.BFD.Problem), about())
	}
}

func reasonOf(p Peer) string {
	if p.Reason == "" {
		return "the session ended"
	}
	return p.Reason
}
