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

// logFilter reduces memberlist's log, and limits the rate of each line, because an untrusted host on the port can cause
// any number of them.
type logFilter struct {
	log *slog.Logger

	mu sync.Mutex
	// loggedAt has the time at which each line was last logged.
	loggedAt map[string]time.Time
	refused  uint64
}

const (
	// repeatInterval is the time after which a line is logged again.
	repeatInterval = 10 * time.Minute
	// maxRemembered bounds loggedAt.
	maxRemembered = 256
)

// logger returns the logger for memberlist.
func (f *logFilter) logger() *log.Logger { return log.New(f, "", 0) }

// untrustedTexts are memberlist's texts about senders with another key or protocol.
var untrustedTexts = []string{"Decrypt packet failed", "failed to receive", "unacceptable label", "missing message type",
	"not supported",
	"failed to remove", "Failed to read remote state", "Failed to receive user message", "invalid msgType"}

// Write handles a line of memberlist's log.
func (f *logFilter) Write(line []byte) (int, error) {
	text := strings.TrimSpace(string(line))
	for _, part := range untrustedTexts {
		if strings.Contains(text, part) {
			from := "an unknown address"
			if at := strings.LastIndex(text, "from="); at >= 0 {
				from = text[at+len("from="):]
				if address, err := netip.ParseAddrPort(from); err == nil {
					from = address.Addr().Unmap().String()
				}
			}
			f.logRefusal(from,
				fmt.Sprintf("refused what %s sends to the members' port: it has another key, or is no member", from))
			return len(line), nil
		}
	}
	return len(line), nil // events report the members that it reaches; the rest are its internals
}

// countUntrusted counts packets and connections from an address that is not a peer's.
func (f *logFilter) countUntrusted(from netip.Addr) {
	f.logRefusal(from.String(),
		fmt.Sprintf("refused what %s sends to the members' port: its address is not under members.peers", from))
}

// LogRefusal counts a refusal at the port where flows are handed over, and logs it if none was logged lately.
func (m *Membership) LogRefusal(from netip.Addr, why error) {
	m.logFilter.logRefusal("flows "+from.String(),
		fmt.Sprintf("refused what %s sends to the port at which members take flows: %v", from, why))
}

// logRefusal counts a refusal, and logs it if none was logged recently.
func (f *logFilter) logRefusal(source, text string) {
	f.mu.Lock()
	f.refused++
	now := time.Now()
	last, known := f.loggedAt[source]
	log := !known || now.Sub(last) >= repeatInterval
	if log && !known && len(f.loggedAt) >= maxRemembered {
		for key, at := range f.loggedAt {
			if now.Sub(at) >= repeatInterval {
				delete(f.loggedAt, key)
			}
		}
		log = len(f.loggedAt) < maxRemembered
	}
	if log {
		f.loggedAt[source] = now
	}
	f.mu.Unlock()
	if log {
		f.log.Warn(text, logAttrs("")...)
	}
}

func (f *logFilter) count() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.refused
}

// joinError returns the reason for which a peer is not joined, without memberlist's wrapping.
func joinError(err error) string {
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
