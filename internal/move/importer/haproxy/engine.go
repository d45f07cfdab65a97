// SPDX-License-Identifier: Apache-2.0

package haproxy

import (
	"regexp"
	"strings"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/move/importer/draft"
)

// plain matches words that need no quotation in HAProxy's language.
var plain = regexp.MustCompile(`^[A-Za-z0-9_.:,+@!/=()-]+$`)

// verbatim returns a line in HAProxy's language, if its words need no quotation.
func verbatim(words []string) (string, bool) {
	for _, word := range words {
		if !plain.MatchString(word) {
			return "", false
		}
	}
	return strings.Join(words, " "), true
}

// addLine appends a line to lines.
func addLine(lines *string, line string) { *lines = strings.TrimPrefix(*lines+"\n"+line, "\n") }

// bases reads the base directories of certificates with relative paths.
func (r *reader) bases() {
	for _, s := range r.sections {
		if s.kind != "global" {
			continue
		}
		for _, l := range s.lines {
			switch {
			case l.is("crt-base") && len(l.words) == 2:
				r.crtBase = l.words[1]
			case l.is("ca-base") && len(l.words) == 2:
				r.caBase = l.words[1]
			}
		}
	}
}

// globals reads the section global.
func (r *reader) globals(s *section) {
	if r.proxying {
		r.Carry(s.at)
	} else {
		r.Needless(s.at, "is of HAProxy's process")
	}
	for _, l := range s.lines {
		name := l.words[0]
		for _, prefix := range []string{"tune.", "ssl-"} {
			if strings.HasPrefix(name, prefix) {
				name = prefix
			}
		}
		why, needless := Keywords.Why(inGlobal, name)
		switch {
		case l.unread != "":
		case l.undecided:
			r.Left(l.at, undecided)
		case r.proxying && !l.no && r.engine(l):
		case l.is("log"), l.is("log-tag"), l.is("log-send-hostname"):
			r.Left(l.at, "%s", noLog)
		case l.is("maxconn"), l.is("maxconnrate"), l.is("maxsessrate"), l.is("maxsslconn"), l.is("maxsslrate"):
			r.Left(l.at, "bounds all services together; give each its limits")
		case needless:
			r.Needless(l.at, "%s", why)
		case strings.HasPrefix(name, "lua-"):
			r.Left(l.at, "Jeoul runs no scripts of HAProxy's; a section with a rule that needs one is left out")
		default:
			r.Left(l.at, "no key is like it; where services of mode proxy need it, proxy.global takes lines of HAProxy's")
		}
	}
}

const noLog = "Jeoul logs no connections; it counts them: `jeoul status`, and metrics"

// Limits of the engine's keys.
const (
	mostThreads     = 64
	mostConnections = 1 << 28
	mostCPUMaps     = 64
)

// engine carries over a line that has a key of the engine, or tunes HAProxy; false: it does neither.
func (r *reader) engine(l line) bool {
	if l.unread != "" {
		return false
	}
	value := ""
	if len(l.words) > 1 {
		value = l.words[1]
	}
	number := func(most uint64, set func(uint64)) bool {
		n, cut, err := draft.Number(value, most)
		switch {
		case err != nil || n == 0:
			r.Left(l.at, "%q is not a number of them", value)
			return true
		case cut:
			r.Approximate(l.at, "Jeoul has up to %d", most)
		}
		set(n)
		r.Carry(l.at)
		return true
	}
	switch word := l.words[0]; {
	case word == "nbthread":
		return number(mostThreads, func(n uint64) { r.Engine.Threads = uint16(n) })
	case word == "maxconn":
		return number(mostConnections, func(n uint64) { r.Engine.Connections = uint32(n) })
	case word == "cpu-map":
		return r.cpuMap(l)
	case word == "hard-stop-after":
		d, err := draft.Time(value, time.Millisecond)
		if err != nil {
			r.Left(l.at, "%v", err)
			return true
		}
		r.Engine.HardStop = min(max(d, time.Second), 24*time.Hour)
		r.Carry(l.at)
	case word == "user" && account.MatchString(value):
		r.Engine.User = unlessUsual(value)
		r.Carry(l.at)
	case word == "group" && account.MatchString(value):
		r.Engine.Group = unlessUsual(value)
		r.Carry(l.at)
	case word == "crt-base", word == "ca-base":
		r.Carry(l.at)
	case word == "log" && logs(l):
		return r.tune(l)
	case strings.HasPrefix(word, "tune."), strings.HasPrefix(word, "ssl-default-"):
		return r.tune(l)
	default:
		return false
	}
	return true
}

var account = regexp.MustCompile(`^[a-z_][a-z0-9_-]{0,30}$`)

func unlessUsual(name string) string {
	if name == lb.DefaultProxyUser {
		return ""
	}
	return name
}

// logs reports whether a line logs to an address. Jeoul's HAProxy runs in an empty directory, where paths of sockets do
// not exist.
func logs(l line) bool {
	return len(l.words) > 2 && strings.ContainsAny(l.words[1], ".:") && !strings.ContainsAny(l.words[1], "/@")
}

func (r *reader) cpuMap(l line) bool {
	text, ok := verbatim(l.words[1:])
	if !ok || len(l.words) < 3 || len(r.Engine.CPUMap) == mostCPUMaps {
		r.Left(l.at, "no line of CPUs that can stand in proxy.cpu_map")
		return true
	}
	r.Engine.CPUMap = append(r.Engine.CPUMap, text)
	r.Carry(l.at)
	return true
}

// tune keeps a line verbatim in the engine's section global.
func (r *reader) tune(l line) bool {
	text, ok := verbatim(l.words)
	if !ok || len(r.Engine.Global)+len(text) > 32<<10 {
		r.Left(l.at, "has quotations; write it to proxy.global by hand, where it is needed")
		return true
	}
	addLine(&r.Engine.Global, text)
	r.Carry(l.at)
	return true
}
