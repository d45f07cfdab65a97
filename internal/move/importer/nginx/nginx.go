// SPDX-License-Identifier: Apache-2.0

// Package nginx reads nginx.conf: the servers of the module stream, which balance connections, and the servers of the
// module http that pass requests to upstreams. The latter become services in mode proxy.
package nginx

import (
	"maps"
	"slices"

	"github.com/jeoul/jeoul/internal/move/importer/draft"
)

// Read reads a file into a draft.
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

// stream reads the upstreams of the module stream, and then its servers.
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
