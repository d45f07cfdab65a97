// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/tools/doctor/evidence"
)

// Limits of the probes: more would be a load themselves.
const (
	maxListeners = 8
	maxQuestions = 64
	maxEchoes    = 256
)

// rounds is the number of times each probe is sent, so that one lost frame causes no finding.
const rounds = 3

// survey resolves addresses on the watched interfaces.
type survey struct {
	listeners []*listener
	arpProbes []arpProbe
	pings     []ping
	// silent: nothing may be sent.
	silent bool
}

type arpProbe struct {
	listener   *listener
	claim      evidence.Claim
	from       netip.Addr
	sendResult sendResult
}

type ping struct {
	listener   *listener
	mac        net.HardwareAddr
	from       netip.Addr
	echo       evidence.Echo
	own, vip   uint16 // the sequence numbers
	sendResult sendResult
}

// sendResult reports whether the kernel took a probe in a round. Its queues may be full, above all on a busy host.
type sendResult struct {
	sent bool
	err  error // of the last round
}

func (f *sendResult) note(err error) {
	f.sent = f.sent || err == nil
	f.err = err
}

// lost reports whether no round sent the probe, though each of them tried.
func (f *sendResult) lost() bool { return !f.sent && f.err != nil }

// number returns the sequence number of the probe's SYN.
func (p ping) number() uint32 { return uint32(p.vip) << 16 }

// newSurvey opens listeners on the interfaces that have addresses, and plans the probes. It must be called in the
// host's network namespace.
func newSurvey(r *evidence.Reading, vips []netip.Addr, silent bool) (*survey, error) {
	s := &survey{silent: silent}
	for _, l := range r.Links {
		from4, from6 := l.Sender(false), l.Sender(true)
		if !l.Watched || !l.Up || len(l.MAC) != len("00:00:00:00:00:00") || !from4.IsValid() && !from6.IsValid() ||
			len(s.listeners) == maxListeners {
			continue
		}
		e, err := listen(l.Name)
		if err != nil {
			s.close()
			return nil, err
		}
		s.listeners = append(s.listeners, e)
		for _, vip := range vips {
			if s.isFull() {
				break
			}
			claim := evidence.Claim{Address: vip, Interface: l.Name, VIP: true, Known: r.Known(vip, l.Index)}
			s.arpProbes = append(s.arpProbes, arpProbe{listener: e, claim: claim, from: sameFamily(vip, from4, from6)})
		}
		for _, n := range r.Neighbours {
			if !s.isFull() && n.Interface == l.Index && r.ShouldProbe(n) && !slices.Contains(vips, n.Address) {
				claim := evidence.Claim{Address: n.Address, Interface: l.Name, Known: n.MAC}
				from := sameFamily(n.Address, from4, from6)
				s.arpProbes = append(s.arpProbes, arpProbe{listener: e, claim: claim, from: from})
			}
		}
		if r.Balancer != nil {
			s.planPings(e, r.Balancer, l.Name, from4, from6)
		}
	}
	return s, nil
}

func sameFamily(a, four, six netip.Addr) netip.Addr {
	if a.Is4() {
		return four
	}
	return six
}

// isFull reports whether as many addresses are to be resolved as may be.
func (s *survey) isFull() bool { return len(s.arpProbes) >= maxQuestions }

// planPings plans probes of each backend of mode l2dsr, at its MAC address, for its own address and for the VIP. In the
// other modes the VIP arrives in a tunnel or not at all. A cluster node has the VIP only for the service's port, so the
// probe is a connection to that port, if the node takes flows.
func (s *survey) planPings(e *listener, status *ops.Status, name string, from4, from6 netip.Addr) {
	for i := range status.Services {
		service := &status.Services[i]
		if !service.Mode.NeedsNeighbours() {
			continue
		}
		from, port := sameFamily(service.VIP, from4, from6), uint16(0)
		if status.IsOfCluster(service) {
			if port = service.Port; service.Protocol != lb.TCP {
				continue // there is no datagram that every server would answer
			}
		}
		for _, b := range service.Backends {
			mac, err := net.ParseMAC(b.MAC)
			known := slices.ContainsFunc(s.pings, func(p ping) bool {
				return p.echo.Address == b.Address && p.echo.VIP == service.VIP && p.echo.Port == port
			})
			if err != nil || known || !from.IsValid() || b.Address.Is6() != service.VIP.Is6() ||
				port > 0 && b.State != lb.Up ||
				cmp.Or(b.Interface, status.Interface) != name || len(s.pings) == maxEchoes {
				continue
			}
			n := uint16(2 * len(s.pings))
			echo := evidence.Echo{Backend: service.Name + "/" + b.Name, Address: b.Address, VIP: service.VIP, Port: port}
			s.pings = append(s.pings, ping{listener: e, mac: mac, from: from, echo: echo, own: n, vip: n + 1})
		}
	}
}

// run sends probes until the context ends, and then waits a little for the last answers. Its error reports the probes
// that no round could send.
func (s *survey) run(ctx context.Context, length time.Duration) (err error) {
	pause := time.NewTicker(max(length/(rounds+1), 20*time.Millisecond))
	defer pause.Stop()
	for round := 0; round < rounds && !s.silent; round++ {
		err = s.askAll()
		select {
		case <-ctx.Done():
			return err
		case <-pause.C:
		}
	}
	<-ctx.Done()
	return err
}

// askAll sends each probe once. Its error reports those that were not sent in any round so far.
func (s *survey) askAll() error {
	for i := range s.arpProbes {
		q := &s.arpProbes[i]
		err := q.listener.ask(q.claim.Address, q.from)
		if err != nil {
			err = fmt.Errorf("ask for %s: %w", q.claim.Address, err)
		}
		q.sendResult.note(err)
	}
	for i := range s.pings {
		s.pings[i].sendResult.note(s.pings[i].ask())
	}
	var lost []error
	for i := range s.arpProbes {
		if s.arpProbes[i].sendResult.lost() {
			lost = append(lost, s.arpProbes[i].sendResult.err)
		}
	}
	for i := range s.pings {
		if s.pings[i].sendResult.lost() {
			lost = append(lost, s.pings[i].sendResult.err)
		}
	}
	if len(lost) == 0 {
		return nil
	}
	return fmt.Errorf("%d of %d probes were never sent: %w", len(lost), len(s.arpProbes)+len(s.pings), lost[0])
}

// ask probes a backend for its own address and for the VIP.
func (p ping) ask() error {
	if err := p.listener.ping(p.mac, p.from, p.echo.Address, p.own); err != nil {
		return fmt.Errorf("ping %s: %w", p.echo.Address, err)
	}
	if err := p.askVIP(); err != nil {
		return fmt.Errorf("ask for %s at %s: %w", p.echo.VIP, p.mac, err)
	}
	return nil
}

// askVIP probes a backend for the VIP: by a ping, or by a connection.
func (p ping) askVIP() error {
	if p.echo.Port == 0 {
		return p.listener.ping(p.mac, p.from, p.echo.VIP, p.vip)
	}
	return p.listener.sendSYN(p.mac, p.from, netip.AddrPortFrom(p.echo.VIP, p.echo.Port), p.number())
}

// close ends the survey and returns the answers.
func (s *survey) close() (w evidence.Wire) {
	for _, e := range s.listeners {
		e.close()
	}
	for _, q := range s.arpProbes {
		c := q.claim
		claimed := q.listener.claims[c.Address]
		for _, mac := range slices.Sorted(maps.Keys(claimed)) {
			if mac == "" {
				c.Ours = true
			} else {
				c.MACs = append(c.MACs, mac)
			}
		}
		if len(claimed) > 0 {
			w.Claims = append(w.Claims, c)
		}
	}
	for _, p := range s.pings {
		answers := p.listener.echoes[echoKey{p.echo.VIP, p.vip}]
		p.echo.Own, p.echo.Has = p.listener.echoes[echoKey{p.echo.Address, p.own}] > 0, answers > 0
		if p.echo.Port > 0 {
			// A node without the VIP forwards the SYN, and another node may answer.
			p.echo.Has = p.listener.answered[p.number()][p.mac.String()]
			answers = len(p.listener.answered[p.number()])
		}
		w.Provoked += uint64(answers)
		if p.sendResult.lost() {
			continue // silence is no evidence
		}
		w.Echoes = append(w.Echoes, p.echo)
	}
	return w
}
