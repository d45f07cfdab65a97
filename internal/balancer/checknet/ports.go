// SPDX-License-Identifier: Apache-2.0

package checknet

import (
	"net/netip"
	"sync"
)

const (
	// FirstPort is the least source port of a check; the data plane looks for answers from there
	// on (RFC 6335 section 6, the dynamic ports).
	FirstPort = 49152
	// firstTranslated is the least of those to backends that answer under their own address,
	// where the host has connections of its own: it is beyond the ports that Linux gives those.
	firstTranslated = 61000
	lastPort        = 65535
)

// portKey is the key by which an answer is matched to its check: two checks at a time must differ in it.
type portKey struct {
	from     netip.AddrPort
	protocol int
	port     uint16
}

// ports are the ports that checks have at the moment.
type ports struct {
	mu        sync.Mutex
	allocated map[portKey]bool
	next      uint16
}

// allocate returns a port for a check of the target, the next after the last; false if none is free.
func (p *ports) allocate(t Target, protocol int) (portKey, bool) {
	first := FirstPort
	if t.ReplySource != t.Remote {
		first = firstTranslated
	}
	count := lastPort + 1 - first
	p.mu.Lock()
	defer p.mu.Unlock()
	for range count {
		p.next++
		key := portKey{t.ReplySource, protocol, uint16(first + int(p.next)%count)}
		if !p.allocated[key] {
			p.allocated[key] = true
			return key, true
		}
	}
	return portKey{}, false
}

func (p *ports) release(key portKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.allocated, key)
}
