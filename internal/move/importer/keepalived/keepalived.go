// SPDX-License-Identifier: Apache-2.0

// Package keepalived reads keepalived.conf: its virtual servers, and the checks of their real servers.
package keepalived

import (
	"fmt"
	"slices"

	"github.com/jeoul/jeoul/internal/move/importer/draft"
)

// reader reads one input.
type reader struct {
	*draft.Draft
	groups map[string]*node
	// instances are the blocks vrrp_instance, and syncGroups the blocks vrrp_sync_group.
	instances, syncGroups []*node
}

// Read reads a file into a draft.
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
	r.vrrp()
	for _, n := range root.children {
		if n.word(0) == "virtual_server_group" { // by now, the virtual servers that name it have read it
			r.group(n)
		}
	}
	return nil
}

// top reads a statement outside of all blocks.
func (r *reader) top(n *node) {
	switch n.word(0) {
	case "virtual_server":
		r.virtualServer(n)
	case "vrrp_instance":
		if at := n.child("interface"); at != nil {
			r.Arrives(at.word(1))
		}
		r.instances = append(r.instances, n)
	case "vrrp_sync_group":
		r.syncGroups = append(r.syncGroups, n)
	case "vrrp_script", "vrrp_track_process", "vrrp_track_file", "track_file", "track_process", "bfd_instance":
		r.leave(n, "Jeoul's priority falls by vrrp.weight for each service without a backend that serves, and by no program's word")
	case "static_ipaddress", "static_routes", "static_rules", "static_track_group":
		r.leave(n, "of this host's network, which Jeoul configures for VIPs alone")
	case "global_defs":
		r.globals(n)
	default:
		r.passOver(inTop, n)
	}
}

// leave leaves out a statement and its block.
func (r *reader) leave(n *node, why string) {
	r.Left(n.at, "%s", why)
	r.below(n, func(c *node) { r.Left(c.at, "of the block at %s, which is left out", n.at) })
}

// needless is leave for blocks that need no counterpart.
func (r *reader) needless(n *node, why string) {
	r.Needless(n.at, "%s", why)
	r.below(n, func(c *node) { r.Needless(c.at, "of the block at %s, which is not needed", n.at) })
}

// below calls do for all statements of a block that are on other lines than the statement that opens it.
func (r *reader) below(n *node, do func(*node)) {
	for _, c := range n.children {
		if c.at != n.at {
			do(c)
		}
		r.below(c, do)
	}
}

// group carries over a group that a virtual server uses, and leaves out any other.
func (r *reader) group(n *node) {
	if !slices.ContainsFunc(n.children, func(c *node) bool { return r.Noted(c.at) }) {
		r.leave(n, "no virtual server that is carried over names it")
		return
	}
	r.Carry(n.at)
}
