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
	// all has the upstreams in their order. requests is set if they are of the module http.
	all      []*upstream
	requests bool
}

// passOver remarks on a directive that a reader does not know: it has no effect, or it is left out.
func (r *reader) passOver(where string, n *node) {
	if why, needless := Keywords.Why(where, n.words[0]); needless {
		r.needless(n, why)
		return
	}
	r.leave(n, "Jeoul has nothing like it; look at it by hand")
}

// leave leaves out a directive and its block.
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

// below calls do for all directives of a block that are on other lines than the directive that opens it.
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

// on reports whether a directive exists and is not off.
func on(n *node) bool { return n != nil && n.word(1) != "off" && !strings.HasPrefix(n.word(1), "0") }

// upstream is a group of servers that connections or requests are passed to.
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
	// answer is the server's fixed answer to each request: a rule of HAProxy without its condition.
	answer string
	// redirect: the answer redirects clients to TLS, at the same host.
	redirect bool
	// rules are the server's access rules for clients.
	rules []draft.Rule
	// why is the reason why the server cannot be carried over. The addresses that it listens on are then left out,
	// because its requests would go to the other servers there.
	why string
	// served: a service is made from the server.
	served bool
}

// location has the upstream for requests whose path begins with a prefix.
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
	// listen is the first listen directive of the address.
	listen *node
	// why is the reason why no service can be made from the address.
	why string
}

// name is a server name at an address; "": the server gets requests that match no name.
type name struct {
	host string
	of   *web
}
