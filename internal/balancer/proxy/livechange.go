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
	success []string
	// repeated are the answers if HAProxy has executed the command before.
	repeated []string
}

// steps are the commands that change a running HAProxy from one rendering to another.
type steps struct {
	// added adds servers, changed sets weights and limits and enables servers again, and removed disables those to be
	// removed.
	added, changed, removed []step
	// draining are the servers to be removed, by the names of section and server: they can be deleted when no
	// connection is left.
	draining map[string]Server
}

// commands are all commands in order.
func (s *steps) commands() []step { return slices.Concat(s.added, s.changed, s.removed) }

// compareRenderings returns the steps from one rendering to another; left are servers that HAProxy still has although
// the old rendering lacks them. It returns false if HAProxy must be reloaded.
func compareRenderings(old, next *Rendering, left map[string]Server) (*steps, bool) {
	if len(old.Blocks) != len(next.Blocks) || !maps.Equal(old.Files, next.Files) ||
		!maps.Equal(old.Certificates, next.Certificates) || !maps.Equal(old.Authorities, next.Authorities) {
		return nil, false
	}
	s := &steps{draining: maps.Clone(left)}
	if s.draining == nil {
		s.draining = map[string]Server{}
	}
	for i := range next.Blocks {
		a, b := &old.Blocks[i], &next.Blocks[i]
		if a.Pool != b.Pool || !slices.Equal(a.Lines, b.Lines) || !s.comparePool(a, b) {
			return nil, false
		}
	}
	return s, true
}

// comparePool compares the servers of a section.
func (s *steps) comparePool(old, next *Block) bool {
	var ready []step
	added := false
	before := map[string]Server{}
	for _, server := range old.Servers {
		before[server.Name] = server
	}
	for _, server := range next.Servers {
		name := next.Pool + "/" + server.Name
		was, has := before[server.Name]
		delete(before, server.Name)
		if !has {
			if was, has = s.draining[name]; has {
				delete(s.draining, name)
			}
		}
		switch {
		case !has:
			s.addServer(name, server)
			added = true
			if !server.Off {
				ready = append(ready, step{command: "set server " + name + " state ready"})
			}
		case !was.changesLive(server):
			return false
		default:
			s.setServer(name, was, server)
		}
	}
	if added && next.CookieKey != "" {
		// Servers added at run time have a cookie only if the key is set again; the same key does not change the
		// others' cookies.
		s.added = append(s.added, step{command: "set dynamic-cookie-key backend " + next.Pool + " " + next.CookieKey})
	}
	s.added = append(s.added, ready...)
	for _, server := range old.Servers {
		if _, gone := before[server.Name]; gone {
			name := next.Pool + "/" + server.Name
			server.Off = true
			s.draining[name] = server
			s.removed = append(s.removed, step{command: "set server " + name + " state maint"})
		}
	}
	return true
}

// changesLive reports whether commands can change a server into another.
func (s Server) changesLive(o Server) bool {
	return s.Name == o.Name && s.Address == o.Address && s.ID == o.ID && slices.Equal(s.Fixed, o.Fixed)
}

// HAProxy's answers to commands that succeed, where they are not empty.
const (
	registered = "New server registered."
	deleted    = "Server deleted."
	// nameTaken is the answer if the server was added before, unless HAProxy checks its id first.
	nameTaken = "Already exists a server with the same name in backend."
)

func (s *steps) addServer(name string, server Server) {
	words := append([]string{"add", "server", name, server.Address, "id", strconv.FormatUint(uint64(server.ID), 10)},
		server.settings()...)
	numberTaken := fmt.Sprintf("('server %s')", server.Name)
	s.added = append(s.added, step{escapeWords(words), []string{registered}, []string{nameTaken, numberTaken}})
}

func (s *steps) setServer(name string, was, server Server) {
	if was.Weight != server.Weight {
		s.changed = append(s.changed, step{command: fmt.Sprintf("set server %s weight %d", name, server.Weight)})
	}
	if was.MaxConn != server.MaxConn {
		s.changed = append(s.changed, step{command: fmt.Sprintf("set maxconn server %s %d", name, server.MaxConn)})
	}
	switch {
	case was.Off && !server.Off:
		s.changed = append(s.changed, step{command: "set server " + name + " state ready"})
	case !was.Off && server.Off:
		s.removed = append(s.removed, step{command: "set server " + name + " state maint"})
	}
	if server.EndsConnections && !(was.EndsConnections && was.Off) {
		s.removed = append(s.removed, step{command: "shutdown sessions server " + name})
	}
}

// escapeWords joins words to a command, in which a backslash escapes special characters (management guide, section
// 9.3).
func escapeWords(words []string) string {
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
