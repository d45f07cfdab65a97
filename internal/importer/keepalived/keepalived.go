// SPDX-License-Identifier: Apache-2.0

// Package keepalived reads keepalived.conf: its virtual servers, and how it checks their real servers.
package keepalived

import (
	"fmt"
	"slices"

	"github.com/jeoul/jeoul/internal/importer/draft"
)

// reader is one input.
type reader struct {
	*draft.Draft
	groups map[string]*node
}

// Read fills a draft.
func Read(d *draft.Draft, file draft.File) error {
	root := &node{}
	p := &parser{Draft: d, stack: []*node{root}, variables: map[string]string{}}
	if err := p.file(file); err != nil {
		return err
	}
	if len(p.stack) > 1 {
		return fmt.Errorf("%s: a block that does not end", p.stack[len(p.stack)-1].at)
	}
	r := &reader{Draft: d, groups: map[string]*node{}}
	for _, n := range root.children {
		if n.word(0) == "virtual_server_group" {
			r.groups[n.word(1)] = n
		}
	}
	for _, n := range root.children {
		if n.word(0) != "virtual_server_group" {
			r.top(n)
		}
	}
	for _, n := range root.children {
		if n.word(0) == "virtual_server_group" { // which those that name it have read by now
			r.group(n)
		}
	}
	return nil
}

// top reads a statement that stands in no block.
func (r *reader) top(n *node) {
	switch n.word(0) {
	case "virtual_server":
		r.virtualServer(n)
	case "vrrp_instance":
		if at := n.child("interface"); at != nil {
			r.Arrives(at.word(1))
		}
		r.leave(n, "Jeoul does not move VIPs between balancers by VRRP yet: keep keepalived for this block, on each balancer; Jeoul goes on with an address that is there")
	case "vrrp_sync_group", "vrrp_script", "vrrp_track_process", "vrrp_track_file", "track_file", "track_process", "bfd_instance":
		r.leave(n, "of VRRP, which Jeoul does not speak yet: keep keepalived for it")
	case "static_ipaddress", "static_routes", "static_rules", "static_track_group":
		r.leave(n, "of this host's network, which Jeoul configures for VIPs alone")
	case "global_defs":
		r.needless(n, "of keepalived's process; for mail, watch Jeoul's events or metrics")
	default:
		r.leave(n, "Jeoul has nothing like it; look at it by hand")
	}
}

// leave leaves out a statement and the block that it opens.
func (r *reader) leave(n *node, why string) {
	r.Left(n.at, "%s", why)
	r.below(n, func(c *node) { r.Left(c.at, "of the block at %s, which is left out", n.at) })
}

// needless is leave for what needs no counterpart.
func (r *reader) needless(n *node, why string) {
	r.Needless(n.at, "%s", why)
	r.below(n, func(c *node) { r.Needless(c.at, "of the block at %s, which is not needed", n.at) })
}

// below calls do for all statements of a block that stand on lines of their own.
func (r *reader) below(n *node, do func(*node)) {
	for _, c := range n.children {
		if c.at != n.at {
			do(c)
		}
		r.below(c, do)
	}
}

// group remarks on a group that no virtual server names, and carries over one that is named.
func (r *reader) group(n *node) {
	if !slices.ContainsFunc(n.children, func(c *node) bool { return r.Spoken(c.at) }) {
		r.leave(n, "no virtual server that is carried over names it")
		return
	}
	r.Carry(n.at)
}
