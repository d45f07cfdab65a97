// SPDX-License-Identifier: Apache-2.0

package speaker

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/apiutil"
	gobgp "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"github.com/jeoul/jeoul/internal/balancer/ops"
)

const (
	// pollInterval is how often the routes that peers send are counted.
	pollInterval = time.Second
	// floodPause is how long a session is closed with a peer that sends too many routes.
	floodPause = time.Minute
)

// handlePeerEvent handles a change of a peer's state.
func (s *Speaker) handlePeerEvent(event *apiutil.WatchEventMessage_PeerEvent, at time.Time) {
	if event.Type != apiutil.PEER_EVENT_STATE && event.Type != apiutil.PEER_EVENT_INIT {
		return
	}
	state := event.Peer.State
	s.stateMu.Lock()
	defer s.stateMu.Unlock()
	p := s.peerStates[state.NeighborAddress.String()]
	if p == nil {
		return
	}
	was := p.State
	p.State = strings.ToLower(strings.TrimPrefix(state.SessionState.String(), "BGP_FSM_"))
	switch {
	case p.State == ops.BGPEstablished && was != ops.BGPEstablished:
		p.Since, p.Sessions, p.Reason = at, p.Sessions+1, ""
	case p.State != ops.BGPEstablished && was == ops.BGPEstablished:
		p.Since = at
		p.RouterID, p.HoldSeconds, p.Restarts, p.Received = "", 0, false, 0
		if reason := downReason(state); reason != "" && !strings.HasPrefix(p.Reason, lostByBFD) {
			p.Reason = reason
		}
	}
	s.notifyChangedLocked()
}

// downReason returns the reason for the end of a session, unless the log has given a better one before.
func downReason(state apiutil.PeerState) string {
	switch state.DisconnectReason {
	case api.PeerState_DISCONNECT_REASON_HOLD_TIMER_EXPIRED:
		return "its hold time has expired"
	case api.PeerState_DISCONNECT_REASON_READ_FAILED, api.PeerState_DISCONNECT_REASON_WRITE_FAILED,
		api.PeerState_DISCONNECT_REASON_GRACEFUL_RESTART:
		return "the connection broke"
	}
	return ""
}

// pollPeers counts the routes that peers send, and ends the pauses of those that have sent too many, until ctx
// ends.
func (s *Speaker) pollPeers(ctx context.Context) {
	ticks := time.NewTicker(pollInterval)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
			s.pollPeersOnce(ctx)
		}
	}
}

func (s *Speaker) pollPeersOnce(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	var listed []*api.Peer
	if err := s.gobgp.ListPeer(ctx, &api.ListPeerRequest{}, func(p *api.Peer) {
		listed = append(listed, p)
	}); err != nil {
		return
	}
	for _, p := range listed {
		s.updateCounters(ctx, p)
	}
}

// updateCounters updates the state of a peer from GoBGP's counters.
func (s *Speaker) updateCounters(ctx context.Context, p *api.Peer) {
	name := p.State.GetNeighborAddress()
	if p.State.GetAdminState() == api.PeerState_ADMIN_STATE_PFX_CT {
		s.pausePeer(ctx, name)
		return
	}
	var received uint64
	for _, f := range p.AfiSafis {
		received += f.GetState().GetReceived()
	}
	s.stateMu.Lock()
	defer s.stateMu.Unlock()
	known := s.peerStates[name]
	if known == nil || known.State != ops.BGPEstablished {
		return
	}
	now := *known
	now.Received, now.RouterID = received, p.State.GetRouterId()
	now.HoldSeconds = float64(p.Timers.GetState().GetNegotiatedHoldTime())
	// A router that has the capability keeps our routes even if it names no family: it names the families of which it
	// keeps forwarding over a restart of its own (RFC 4724 section 3).
	now.Restarts = s.peers[name].GracefulRestart && slices.ContainsFunc(p.State.GetRemoteCap(),
		func(c *api.Capability) bool { return c.GetGracefulRestart() != nil })
	if now != *known {
		*known = now
		s.notifyChangedLocked()
	}
}

// pausePeer closes the session with a peer that has sent too many routes, and opens it again after a while. It
// records the reason at each poll: the event that the session has ended may come after the first.
func (s *Speaker) pausePeer(ctx context.Context, name string) {
	until, paused := s.paused[name]
	if !paused {
		until = time.Now().Add(floodPause)
		s.paused[name] = until
	}
	if time.Now().After(until) {
		delete(s.paused, name)
		if err := s.gobgp.EnablePeer(ctx, &api.EnablePeerRequest{Address: name}); err != nil {
			s.log.Warn(fmt.Sprintf("speak to %s again: %v", name, err))
		}
		return
	}
	s.setDownReason(name,
		fmt.Sprintf("it announces more than %d routes, of which this balancer wants none: have the router announce nothing to it; tried again in %s", maxReceived, floodPause))
}

// setDownReason records why there is no session with a peer.
func (s *Speaker) setDownReason(name, reason string) {
	s.stateMu.Lock()
	defer s.stateMu.Unlock()
	if p := s.peerStates[name]; p != nil && p.Reason != reason {
		p.Reason = reason
		s.notifyChangedLocked()
	}
}

// Enabled accepts all records: a useless one costs a comparison.
func (h *gobgpLog) Enabled(context.Context, slog.Level) bool { return true }

// WithGroup is not used by GoBGP.
func (h *gobgpLog) WithGroup(string) slog.Handler { return h }

// WithAttrs notes the peer that the records are about.
func (h *gobgpLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	next := *h
	for _, a := range attrs {
		if a.Key == "Key" {
			next.peer = a.Value.String()
		}
	}
	return &next
}

// Handle notes the reason that a record gives for the end of a session.
func (h *gobgpLog) Handle(_ context.Context, r slog.Record) error {
	if r.Level >= slog.LevelError {
		h.speaker.log.Error("GoBGP: " + r.Message)
	}
	if h.peer == "" {
		return nil
	}
	switch r.Message {
	case "sent notification":
		h.speaker.setDownReason(h.peer, "this balancer refused it: "+describeNotification(r))
	case "received notification":
		h.speaker.setDownReason(h.peer, "it refused this balancer: "+describeNotification(r))
	case "failed to connect":
		h.speaker.setDownReason(h.peer, describeConnectError(logAttr(r, "Error")))
	case "state changed":
		// GoBGP does not say why a router refuses a session after this balancer's OPEN.
		if reason := logAttr(r, "reason"); logAttr(r, "old") == "BGP_FSM_OPENCONFIRM" &&
			(reason == "invalid-msg" || reason == "read-failed") {
			h.speaker.setDownReason(h.peer,
				"it refused this balancer: are the AS, address and families those that it expects? Its log says which is not")
		}
	case "outgoing connection IO error":
		h.speaker.setDownReason(h.peer,
			"it closed the connection before it identified itself: check that it has this balancer's address as a neighbour")
	}
	return nil
}

// describeNotification names the error of a NOTIFICATION (RFC 4271 section 4.5, RFC 4486).
func describeNotification(r slog.Record) string {
	var code, subcode int64
	r.Attrs(func(a slog.Attr) bool {
		switch a.Key {
		case "Code":
			code = a.Value.Int64()
		case "Subcode":
			subcode = a.Value.Int64()
		}
		return true
	})
	return describeError(uint8(code), uint8(subcode))
}

// describeError names the error as the user of a peer would search for it.
func describeError(code, subcode uint8) string {
	switch [2]uint8{code, subcode} {
	case [2]uint8{gobgp.BGP_ERROR_OPEN_MESSAGE_ERROR, gobgp.BGP_ERROR_SUB_BAD_PEER_AS}:
		return "the AS is another than the configuration has (asn)"
	case [2]uint8{gobgp.BGP_ERROR_OPEN_MESSAGE_ERROR, gobgp.BGP_ERROR_SUB_BAD_BGP_IDENTIFIER}:
		return "the identifier cannot be, or is the same on both sides (router_id)"
	case [2]uint8{gobgp.BGP_ERROR_OPEN_MESSAGE_ERROR, gobgp.BGP_ERROR_SUB_UNACCEPTABLE_HOLD_TIME}:
		return "the hold time is not acceptable (hold_time)"
	case [2]uint8{gobgp.BGP_ERROR_OPEN_MESSAGE_ERROR, gobgp.BGP_ERROR_SUB_UNSUPPORTED_CAPABILITY}:
		return "no family is spoken by both (families)"
	}
	return strings.ToLower(gobgp.NewNotificationErrorCode(code, subcode).String())
}

func logAttr(r slog.Record, key string) (text string) {
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == key {
			text = a.Value.String()
		}
		return true
	})
	return text
}

// describeConnectError returns the reason why a router was not reached: with a wrong password, connecting times out,
// because the kernel drops segments with a wrong digest (RFC 2385 section 4.1).
func describeConnectError(text string) string {
	switch {
	case strings.Contains(text, "timeout"):
		return "it does not answer: is it there, and has it the same password, or none, and the same ttl_security?"
	case strings.Contains(text, "refused"):
		return "it refuses the connection: does BGP run there, and listen on that port and address?"
	}
	return "cannot be connected to: " + text
}

// lostByBFD begins the reason for the end of a session that BFD has ended.
const lostByBFD = "BFD has lost it"
