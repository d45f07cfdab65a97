// SPDX-License-Identifier: Apache-2.0

package members

import (
	"fmt"
	"log"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"time"
)

// filter reduces memberlist's log to lines for a person: each of them once in a while, for a stranger on the port can
// cause as many lines as it likes.
type filter struct {
	log *slog.Logger

	mu sync.Mutex
	// seen is when a thing was said last.
	seen    map[string]time.Time
	refused uint64
}

const (
	// pause is the time after which a line is logged again.
	pause = 10 * time.Minute
	// mostSeen bounds the lines that are remembered for that.
	mostSeen = 256
)

// logger returns the logger for memberlist.
func (f *filter) logger() *log.Logger { return log.New(f, "", 0) }

// foreign are texts of memberlist's that say of a sender that it has another key or protocol.
var foreign = []string{"Decrypt packet failed", "failed to receive", "unacceptable label", "missing message type",
	"not supported",
	"failed to remove", "Failed to read remote state", "Failed to receive user message", "invalid msgType"}

// Write takes a line of memberlist's log.
func (f *filter) Write(line []byte) (int, error) {
	text := strings.TrimSpace(string(line))
	for _, part := range foreign {
		if strings.Contains(text, part) {
			from := "an unknown address"
			if at := strings.LastIndex(text, "from="); at >= 0 {
				from = text[at+len("from="):]
				if address, err := netip.ParseAddrPort(from); err == nil {
					from = address.Addr().Unmap().String()
				}
			}
			f.refuse(from,
				fmt.Sprintf("refused what %s sends to the members' port: it has another key, or is no member", from))
			return len(line), nil
		}
	}
	return len(line), nil // whom it reaches, the events say; the rest is of its inner life
}

// stranger counts packets and connections from an address that is no peer's.
func (f *filter) stranger(from netip.Addr) {
	f.refuse(from.String(),
		fmt.Sprintf("refused what %s sends to the members' port: its address is not under members.peers", from))
}

// Refuse counts a refusal at the port where flows are handed over, and logs it if none was logged lately.
func (m *Membership) Refuse(from netip.Addr, why error) {
	m.logs.refuse("flows "+from.String(),
		fmt.Sprintf("refused what %s sends to the port at which members take flows: %v", from, why))
}

// refuse counts a refusal, and says it if that was not lately.
func (f *filter) refuse(whom, text string) {
	f.mu.Lock()
	f.refused++
	now := time.Now()
	last, known := f.seen[whom]
	say := !known || now.Sub(last) >= pause
	if say && !known && len(f.seen) >= mostSeen {
		for key, at := range f.seen {
			if now.Sub(at) >= pause {
				delete(f.seen, key)
			}
		}
		say = len(f.seen) < mostSeen
	}
	if say {
		f.seen[whom] = now
	}
	f.mu.Unlock()
	if say {
		f.log.Warn(text, about("")...)
	}
}

func (f *filter) count() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.refused
}

// joinText says why a peer is not joined, without memberlist's frame around it.
func joinText(err error) string {
	text := err.Error()
	switch {
	case strings.Contains(text, "o installed keys could decrypt"), strings.Contains(text, "remote error"),
		strings.Contains(text, "encrypted"):
		return "it has another key"
	case strings.Contains(text, "connection refused"):
		return "nothing listens there"
	case strings.Contains(text, "i/o timeout"), strings.Contains(text, "deadline"):
		return "it does not answer"
	case strings.HasSuffix(strings.TrimSpace(text), "EOF"), strings.Contains(text, "reset by peer"):
		return "it closes the connection: this balancer's address is not under its members.peers, or it has another key"
	}
	if at := strings.LastIndex(text, ": "); at >= 0 {
		text = text[at+2:]
	}
	return strings.TrimSpace(text)
}
