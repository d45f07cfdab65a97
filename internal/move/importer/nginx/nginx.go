// SPDX-License-Identifier: Apache-2.0

// Package nginx reads nginx.conf: the servers of its module stream, which balance connections, and those of its module
// http that pass requests to upstreams, which become services of mode proxy.
package nginx

import (
	"maps"
	"slices"
	"strings"

	"github.com/jeoul/jeoul/internal/move/importer/draft"
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

// Read fills a draft.
func Read(d *draft.Draft, file draft.File) error {
	root := &node{}
	p := &parser{Draft: d, stack: []*node{root}}
	if err := p.file(file); err != nil {
		return err
	}
	r := &reader{Draft: d, upstreams: map[string]*upstream{}}
	for _, n := range root.children {
		switch n.words[0] {
		case "stream":
			r.Carry(n.at)
			r.stream(n)
		case "http":
			r.http(n)
		case "mail":
			r.leave(n, "Jeoul does not speak the protocols of mail; keep nginx in front of these backends")
		case "server", "upstream": // a file that nginx.conf includes
			r.Left(n.at, "stands outside of stream; import the file that includes this one")
			r.leave(n, "stands outside of stream; import the file that includes this one")
		default:
			r.passOver(inMain, n)
		}
	}
	return nil
}

// stream reads the module's upstreams, and then its servers.
func (r *reader) stream(n *node) {
	for _, c := range n.children {
		if c.words[0] == "upstream" {
			r.upstream(c)
		}
	}
	for _, c := range n.children {
		switch c.words[0] {
		case "upstream":
		case "server":
			r.server(c, n)
		case "allow", "deny", "proxy_bind": // read by server
			r.Carry(c.at)
		default:
			r.directive(c, protocolsOf(n))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.upstreams)) {
		if u := r.upstreams[name]; !u.used {
			r.leave(u.node, "no server that is carried over passes connections to it")
		}
	}
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

// on says whether a directive is there and not off.
func on(n *node) bool { return n != nil && n.word(1) != "off" && !strings.HasPrefix(n.word(1), "0") }
