// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/balancer/config"
	"github.com/jeoul/jeoul/internal/balancer/datapath"
	"github.com/jeoul/jeoul/internal/balancer/handover"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/members"
	"github.com/jeoul/jeoul/internal/balancer/ops"
)

// handoverPeers are the members at the addresses where they take flows.
type handoverPeers struct {
	*members.Membership
	port uint16
}

func (g handoverPeers) Peers() (peers []lb.Peer) {
	for _, p := range g.Membership.Peers() {
		peers = append(peers, lb.Peer{Name: p.Name, Address: netip.AddrPortFrom(p.Address.Addr(), g.port)})
	}
	return peers
}

// flowKeys are the keys by which members with these keys hand flows over.
func flowKeys(of members.Keys) ([][]byte, error) {
	keys, err := of.Derive(handover.Purpose)
	if err != nil {
		return nil, fmt.Errorf("derive the keys by which members hand flows over: %w", err)
	}
	return keys, nil
}

// startHandover starts the handover of flows between members, unless the configuration switches it off.
func (m *member) startHandover(ctx context.Context, cfg *config.Config, name string, plane *datapath.Datapath,
	log *slog.Logger) error {
	if !cfg.Members.HandOver {
		return nil
	}
	keys, err := flowKeys(m.Keys())
	if err != nil {
		return err
	}
	at := netip.AddrPortFrom(cfg.Members.Listen.Addr(), cfg.Members.FlowsAt())
	listener, err := listenBeforeAddress(ctx, at)
	if err != nil {
		return cfg.At("members", "the port at which members take flows cannot be listened on: %v; "+
			"choose another one for all members (flows_port)", err)
	}
	m.exchange, err = handover.New(handover.Options{Name: name, Keys: keys, Listener: listener,
		Group: handoverPeers{m.Membership, at.Port()}, DataPlane: plane, Log: log, IsPeer: m.IsPeer,
		Refused: m.LogRefusal})
	if err != nil {
		listener.Close()
		return err
	}
	m.joined, m.log = make(chan struct{}, 1), log
	return nil
}

// listenBeforeAddress listens at an address that may come later, as members do.
func listenBeforeAddress(ctx context.Context, at netip.AddrPort) (net.Listener, error) {
	free := net.ListenConfig{Control: func(_, _ string, conn syscall.RawConn) (err error) {
		level, option := unix.SOL_IP, unix.IP_FREEBIND
		if at.Addr().Is6() {
			level, option = unix.SOL_IPV6, unix.IPV6_FREEBIND
		}
		if failed := conn.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), level, option, 1)
		}); failed != nil {
			return failed
		}
		return err
	}}
	return free.Listen(ctx, "tcp", at.String())
}

// flushTimeout is for how long a stop, a drain or a withdrawal waits until other members know the flows that this one
// remembers.
const flushTimeout = time.Second

// flush has members know all flows that are proven here, as far as they are reached: packets are about to go to them.
func (m *member) flush(ctx context.Context) {
	if m == nil || m.exchange == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, flushTimeout)
	defer cancel()
	if err := m.exchange.Flush(ctx); err != nil {
		m.log.Warn(fmt.Sprintf("the last connections may break: other members have not taken all flows within %s",
			flushTimeout))
	}
}

// requestEarly has members send new flows at once, for a while: packets are about to come here.
func (m *member) requestEarly() {
	if m != nil && m.exchange != nil {
		m.exchange.RequestEarly()
	}
}

// notifyJoined passes on that all is known that others remember.
func (m *member) notifyJoined(ctx context.Context) {
	select {
	case <-m.exchange.Joined():
		m.joined <- struct{}{}
	case <-ctx.Done():
	}
}

// addFlows adds the state of the handover to members of a status.
func (m *member) addFlows(all []ops.Member) {
	if m.exchange == nil {
		return
	}
	sent, received := m.exchange.Status()
	of := map[string]*ops.MemberFlows{}
	for _, t := range sent {
		f := &ops.MemberFlows{Sending: t.Connected, Sent: t.Flows, Bytes: t.Bytes, Behind: t.Behind,
			Resyncs: t.FullSyncs, Overflows: t.Overflows}
		if t.Failed != nil {
			f.Reason = t.Failed.Error()
		}
		of[t.Peer.Name] = f
	}
	for _, h := range received {
		if f := of[h.Name]; f != nil {
			f.Receiving, f.Synced = h.Connected, h.Complete
			f.Added, f.Followed, f.Refused = h.Added, h.Followed, h.Refused
		}
	}
	for i := range all {
		all[i].Flows = of[all[i].Name]
	}
}
