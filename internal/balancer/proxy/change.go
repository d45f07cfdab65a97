// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// step is a command to a worker, and the answers by which it may succeed.
type step struct {
	command string
	fine    []string
	// done are the answers where HAProxy has had the command before.
	done []string
}

// steps are the commands that make a running HAProxy of one rendering that of another.
type steps struct {
	// come are servers that are added, other those that have another weight or limit, or are on again, and leave those
	// that get no client any more: in this order there is always one for a client.
	come, other, leave []step
	// left are servers that go, by the names of their section and their own: they can be deleted when no connection
	// of theirs is left.
	left map[string]Server
}

// all are the commands in order.
func (s *steps) all() []step { return slices.Concat(s.come, s.other, s.leave) }

// plan compares renderings, where left are servers that the old one has no more and HAProxy has still. It returns
// false where commands cannot do it: then HAProxy must be reloaded.
func plan(old, next *Rendering, left map[string]Server) (*steps, bool) {
	if len(old.Blocks) != len(next.Blocks) || !maps.Equal(old.Files, next.Files) ||
		!maps.Equal(old.Certificates, next.Certificates) {
		return nil, false
	}
	s := &steps{left: maps.Clone(left)}
	if s.left == nil {
		s.left = map[string]Server{}
	}
	for i := range next.Blocks {
		a, b := &old.Blocks[i], &next.Blocks[i]
		if a.Pool != b.Pool || !slices.Equal(a.Lines, b.Lines) || !s.pool(a, b) {
			return nil, false
		}
	}
	return s, true
}

// pool compares the servers of a section.
func (s *steps) pool(old, next *Block) bool {
	var ready []step
	before := map[string]Server{}
	for _, server := range old.Servers {
		before[server.Name] = server
	}
	for _, server := range next.Servers {
		name := next.Pool + "/" + server.Name
		was, has := before[server.Name]
		delete(before, server.Name)
		if !has {
			if was, has = s.left[name]; has {
				delete(s.left, name)
			}
		}
		switch {
		case !has:
			s.add(name, server)
			if !server.Off {
				ready = append(ready, step{command: "set server " + name + " state ready"})
			}
		case !was.same(server):
			return false
		default:
			s.set(name, was, server)
		}
	}
	if len(ready) > 0 && next.CookieKey != "" {
		// Only a key has servers that came at run time have a cookie; the same one leaves the others theirs.
		s.come = append(s.come, step{command: "set dynamic-cookie-key backend " + next.Pool + " " + next.CookieKey})
	}
	s.come = append(s.come, ready...)
	for _, server := range old.Servers {
		if _, gone := before[server.Name]; gone {
			name := next.Pool + "/" + server.Name
			server.Off = true
			s.left[name] = server
			s.leave = append(s.leave, step{command: "set server " + name + " state maint"})
		}
	}
	return true
}

// same says whether only commands are between two servers.
func (s Server) same(o Server) bool {
	return s.Name == o.Name && s.Address == o.Address && s.ID == o.ID && slices.Equal(s.Fixed, o.Fixed)
}

// HAProxy's answers to commands that succeed, where they are not empty.
const (
	registered = "New server registered."
	deleted    = "Server deleted."
	// nameTaken is the answer to a server that was added before, unless its number is looked at first.
	nameTaken = "Already exists a server with the same name in backend."
)

func (s *steps) add(name string, server Server) {
	words := append([]string{"add", "server", name, server.Address, "id", strconv.FormatUint(uint64(server.ID), 10)},
		server.settings()...)
	numberTaken := fmt.Sprintf("('server %s')", server.Name)
	s.come = append(s.come, step{escaped(words), []string{registered}, []string{nameTaken, numberTaken}})
}

func (s *steps) set(name string, was, server Server) {
	if was.Weight != server.Weight {
		s.other = append(s.other, step{command: fmt.Sprintf("set server %s weight %d", name, server.Weight)})
	}
	if was.Most != server.Most {
		s.other = append(s.other, step{command: fmt.Sprintf("set maxconn server %s %d", name, server.Most)})
	}
	switch {
	case was.Off && !server.Off:
		s.other = append(s.other, step{command: "set server " + name + " state ready"})
	case !was.Off && server.Off:
		s.leave = append(s.leave, step{command: "set server " + name + " state maint"})
	}
	if server.Ends && !(was.Ends && was.Off) {
		s.leave = append(s.leave, step{command: "shutdown sessions server " + name})
	}
}

// escaped makes a command of words: on the socket, a backslash takes away the special meaning of a character
// (management guide, section 9.3).
func escaped(words []string) string {
	var command strings.Builder
	for i, w := range words {
		if i > 0 {
			command.WriteByte(' ')
		}
		for _, c := range []byte(w) {
			if strings.IndexByte(" ;\\<#\"'", c) >= 0 {
				command.WriteByte('\\')
			}
			command.WriteByte(c)
		}
	}
	return command.String()
}
