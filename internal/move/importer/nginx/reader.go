// SPDX-License-Identifier: Apache-2.0

package nginx

import (
	"net/netip"
	"strings"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/move/importer/draft"
	"github.com/jeoul/jeoul/internal/move/remark"
)

const needsProxy = "write it as a service of mode proxy by hand, or keep nginx in front of these backends"

// reader reads one input.
type reader struct {
	*draft.Draft
	upstreams map[string]*upstream
	// all are the upstreams in their order, and requests says that they are of the module http.
	all      []*upstream
	requests bool
}

// passOver speaks of a directive that a reader does not know: it changes nothing, or it is left out.
func (r *reader) passOver(where string, n *node) {
	if why, needless := Keywords.Why(where, n.words[0]); needless {
		r.needless(n, why)
		return
	}
	r.leave(n, "Jeoul has nothing like it; look at it by hand")
}

// leave leaves out a directive and the block that it opens.
func (r *reader) leave(n *node, why string) {
	r.Forget(n.at)
	r.Left(n.at, "%s", why)
	r.below(n, func(c *node) { r.Left(c.at, "of the block at %s, which is left out", n.at) })
}

// needless is leave for blocks that need no counterpart.
func (r *reader) needless(n *node, why string) {
	r.Needless(n.at, "%s", why)
	r.below(n, func(c *node) { r.Needless(c.at, "of the block at %s, which is not needed", n.at) })
}

// below calls do for all directives of a block that stand on lines of their own.
func (r *reader) below(n *node, do func(*node)) {
	for _, c := range n.children {
		if c.at != n.at {
			r.Forget(c.at)
			do(c)
		}
		r.below(c, do)
	}
}

// child returns the last directive of a name in the innermost of several blocks, or nil.
func child(name string, blocks ...*node) *node {
	for _, block := range blocks {
		for i := len(block.children) - 1; i >= 0; i-- {
			if block.children[i].words[0] == name {
				return block.children[i]
			}
		}
	}
	return nil
}

// on reports whether a directive is there and not off.
func on(n *node) bool { return n != nil && n.word(1) != "off" && !strings.HasPrefix(n.word(1), "0") }

// upstream is a group of servers that connections are passed to.
type upstream struct {
	node      *node
	used      bool
	scheduler lb.Scheduler
	hash      lb.Hash
	outliers  lb.Outliers
	slowStart time.Duration
	backends  []lb.Backend
	lines     []remark.At
}

// web is a server of the module http.
type web struct {
	node, http *node
	names      []string
	locations  []location
	// answer is its own answer to each request, in place of passing it on: a rule of HAProxy's without its condition.
	answer string
	// redirect: the answer sends clients to TLS, at the same host.
	redirect bool
	// rules say which clients it serves.
	rules []draft.Rule
	// why is the reason why it cannot be carried over: the addresses that it listens on are left out, because its
	// requests would go to the other servers there.
	why string
	// served: a service is made with it.
	served bool
}

// location is where a server passes requests to by the beginning of their path.
type location struct {
	at   remark.At
	node *node
	path string
	to   *upstream
	tls  bool
}

// place is an address that servers listen on.
type place struct {
	at   remark.At
	vip  netip.AddrPort
	tls  bool
	webs []*web
	// listen has the words of the first of its lines.
	listen *node
	// why is the reason why no service can be made.
	why string
}

// name is a name of a server at an address; empty: it gets requests that no name fits.
type name struct {
	host string
	of   *web
}
