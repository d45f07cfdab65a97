// SPDX-License-Identifier: Apache-2.0

package capture

// Progress makes events of a capture's packets and counts, and ends it at its bounds.
type Progress struct {
	request Request
	notify  func(Event) error
	end     func()
	packets uint64
	counts  Counts
	ended   Reason
}

// NewProgress returns the progress of a complete request, which calls end, maybe more than once, when a bound is
// reached.
func NewProgress(request Request, notify func(Event) error, end func()) *Progress {
	return &Progress{request: request, notify: notify, end: end}
}

// Packet reports a packet, unless it is beyond the bound.
func (p *Progress) Packet(packet *Packet) error {
	if p.request.Packets > 0 && p.packets >= p.request.Packets {
		return nil // of another CPU, at the same time
	}
	if err := p.notify(Event{Packet: packet}); err != nil {
		return err
	}
	if p.packets++; p.packets == p.request.Packets {
		p.stop(EndPackets)
	}
	return nil
}

func (p *Progress) stop(why Reason) {
	p.ended = why
	p.end()
}

// Count takes the counts so far; beyond says that packets came after the bound of packets or bytes. It reports the
// counts where packets were left out.
func (p *Progress) Count(counts Counts, beyond bool) error {
	left := counts.Lost != p.counts.Lost || counts.Limited != p.counts.Limited
	p.counts = counts
	if beyond && p.ended == "" && (p.request.Packets == 0 || counts.Captured < p.request.Packets) {
		p.stop(EndBytes)
	}
	if !left || p.ended != "" {
		return nil
	}
	return p.notify(Event{Counts: &counts})
}

// End reports the counts of the whole capture, and why it ended, which is its time unless a bound was reached or the
// daemon stops.
func (p *Progress) End(stopping bool) error {
	switch {
	case p.ended != "":
	case stopping:
		p.ended = EndClosed
	default:
		p.ended = EndTime
	}
	return p.notify(Event{Counts: &p.counts, Ended: p.ended})
}
