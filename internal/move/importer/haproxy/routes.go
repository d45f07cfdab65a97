// SPDX-License-Identifier: Apache-2.0

package haproxy

import (
	"cmp"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/move/remark"
)

// mostRoutes limits the routes of a service.
const mostRoutes = 500

// readRoutes reads which requests go to other sections. If routes cannot express it, it sets the section's misroutes.
func (r *reader) readRoutes(s *section) {
	acls := s.tests()
	s.led, s.used = map[remark.At]string{}, map[string]bool{}
	for _, l := range s.lines {
		if !l.is("use_backend") || len(l.words) < 2 || l.no {
			continue
		}
		dynamic := strings.Contains(l.words[1], "%[")
		if len(l.words) == 2 && !dynamic { // for all other requests; see target
			return
		}
		some, ok := r.readRoute(l, acls, dynamic)
		if !ok || len(s.routes)+len(some) > mostRoutes {
			s.misroutes = "sends requests on by `" + r.Text(l.at) + "` at " + l.at.String() +
				", and routes go by hosts and beginnings of paths alone: its requests would go elsewhere; " + keep
			return
		}
		s.led[l.at] = ""
		for _, one := range some {
			one.at = l.at
			s.routes, s.led[l.at] = append(s.routes, one), cmp.Or(s.led[l.at], one.differs)
			for _, name := range one.acls {
				s.used[name] = true
			}
		}
	}
}

// readRoute reads a use_backend. It becomes one route or, if the section's name contains the host, one route for each
// such section.
func (r *reader) readRoute(l line, acls map[string]test, dynamic bool) ([]route, bool) {
	if dynamic {
		if len(l.words) > 2 {
			return nil, false
		}
		return r.byHost(l.words[1])
	}
	to := r.servedBy[l.words[1]]
	if to == nil || l.words[2] != "if" {
		return nil, false
	}
	one, ok := parseRoute(l.words[3:], acls)
	one.to = to
	return []route{one}, ok
}

// ofHost matches a section name that contains the request's host.
var ofHost = regexp.MustCompile(`^([^%]*)%\[(?:req\.)?hdr\(host\)(?:,(?:lower|host_only|field\(1,:\)))*\]([^%]*)$`)

// plainHost matches a host that a section name can contain.
var plainHost = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$`)

// byHost makes a route for each section whose name matches the format of a use_backend with a host in it.
func (r *reader) byHost(format string) (some []route, ok bool) {
	match := ofHost.FindStringSubmatch(format)
	if match == nil {
		return nil, false
	}
	for _, name := range slices.Sorted(maps.Keys(r.servedBy)) {
		host, before := strings.CutPrefix(name, match[1])
		host, after := strings.CutSuffix(host, match[2])
		if before && after && plainHost.MatchString(host) && len(host) <= 253 {
			some = append(some, route{to: r.servedBy[name], when: []lb.Route{{Hosts: []string{host}}},
				differs: "becomes a route for each section that is there now"})
		}
	}
	return some, true
}

// tests returns the ACLs of a section and its defaults by name. An ACL that routes cannot express has no hosts and no
// paths.
func (s *section) tests() map[string]test {
	named := map[string]test{}
	for _, l := range s.all() {
		if !l.is("acl") || len(l.words) < 3 {
			continue
		}
		now, _ := parseTest(l.words[2:])
		if before, more := named[l.words[1]]; more {
			now = before.or(now)
		}
		named[l.words[1]] = now
	}
	return named
}

// or returns a test that passes if either of two does. Routes cannot express "a host or a path".
func (t test) or(o test) test {
	if !t.can() || !o.can() || (len(t.hosts) > 0) != (len(o.hosts) > 0) {
		return test{}
	}
	if o.differs == "" {
		o.differs = t.differs
	}
	return test{slices.Concat(t.hosts, o.hosts), slices.Concat(t.paths, o.paths), o.differs}
}

// whole joins a path with all paths below it. They are one prefix of a route, and two conditions in HAProxy.
func (t test) whole() test {
	var paths []string
	alone := 0
	for _, p := range t.paths {
		above := strings.TrimSuffix(p, "/")
		if above == "" {
			above = p
		}
		if !slices.Contains(t.paths, above) || !slices.Contains(t.paths, above+"/") {
			alone++
		}
		if !slices.Contains(paths, above) {
			paths = append(paths, above)
		}
	}
	if alone == 0 && len(paths) > 0 {
		t.differs = ""
	}
	t.paths = paths
	return t
}

// can reports whether routes can express the test.
func (t test) can() bool { return len(t.hosts)+len(t.paths) > 0 }

// parseRoute reads a condition: tests that must all pass, or alternatives separated by "or".
func parseRoute(words []string, acls map[string]test) (route, bool) {
	var all route
	now, some := lb.Route{}, false
	for i := 0; i < len(words); i++ {
		var t test
		switch word := words[i]; {
		case word == "or" || word == "||":
			if !some {
				return route{}, false
			}
			all.when = append(all.when, now)
			now, some = lb.Route{}, false
			continue
		case word == "{":
			end := slices.Index(words[i:], "}")
			if end < 2 {
				return route{}, false
			}
			t, _ = parseTest(words[i+1 : i+end])
			i += end
		default:
			t = acls[word]
			all.acls = append(all.acls, word)
		}
		t = t.whole()
		if !t.can() || len(t.hosts) > 0 && len(now.Hosts) > 0 || len(t.paths) > 0 && len(now.Paths) > 0 {
			return route{}, false
		}
		now.Hosts, now.Paths, some = append(now.Hosts, t.hosts...), append(now.Paths, t.paths...), true
		if t.differs != "" {
			all.differs = t.differs
		}
	}
	all.when = append(all.when, now)
	return all, some
}

// hostFetches and pathFetches map HAProxy's fetches of a request's host and path to the match method.
var (
	hostFetches = map[string]string{"hdr": "str", "hdr_dom": "dom", "hdr_end": "end", "req.hdr": "str",
		"req.hdr_dom": "dom", "req.hdr_end": "end", "ssl_fc_sni": "str", "ssl_fc_sni_end": "end", "hdr_beg": "beg",
		"req.hdr_beg": "beg"}
	pathFetches = map[string]string{"path": "str", "path_beg": "beg", "url_beg": "beg", "path_dir": "dir",
		"path_end": "end"}
)

// parseTest reads a sample fetch of a request, flags and patterns.
func parseTest(words []string) (test, bool) {
	sample, _, _ := strings.Cut(words[0], ",") // converters: lower and host_only do what routes do
	name, argument, _ := strings.Cut(strings.TrimSuffix(sample, ")"), "(")
	match, ignoreCase := "", false
	patterns := words[1:]
	for len(patterns) > 0 && strings.HasPrefix(patterns[0], "-") {
		flag := patterns[0]
		patterns = patterns[1:]
		switch {
		case flag == "-i":
			ignoreCase = true
			continue
		case flag == "-m" && len(patterns) > 0:
			match, patterns = patterns[0], patterns[1:]
			continue
		case flag == "--":
		default:
			return test{}, false
		}
		break
	}
	for _, converter := range strings.Split(words[0], ",")[1:] {
		if converter != "lower" && converter != "host_only" && converter != "field(1" && converter != ":)" {
			return test{}, false
		}
	}
	how, host := hostFetches[name]
	if host = host && (strings.EqualFold(argument, "host") || strings.HasPrefix(name, "ssl_")); !host {
		if how = pathFetches[name]; how == "" || argument != "" {
			return test{}, false
		}
	}
	if match != "" {
		how = match
	}
	if host {
		return hostTest(how, patterns, strings.HasPrefix(name, "ssl_"))
	}
	return pathTest(how, patterns, ignoreCase)
}

// hostTest converts patterns to hosts.
func hostTest(how string, patterns []string, sni bool) (t test, ok bool) {
	if sni {
		t.differs = "goes by the name that TLS asked for; here by that of each request"
	}
	for _, p := range patterns {
		p = strings.ToLower(p)
		name, below := strings.CutPrefix(p, ".")
		switch {
		case how == "str":
			t.hosts = append(t.hosts, p)
		case how == "end" && below:
			t.hosts = append(t.hosts, "*."+name)
		case how == "end", how == "dom":
			t.hosts = append(t.hosts, name, "*."+name)
			t.differs = "becomes the name and all below it"
		default:
			return test{}, false
		}
	}
	return t, len(t.hosts) > 0
}

// pathTest converts patterns to path prefixes.
func pathTest(how string, patterns []string, ignoreCase bool) (t test, ok bool) {
	for _, p := range patterns {
		if !strings.HasPrefix(p, "/") || how != "str" && how != "beg" {
			return test{}, false
		}
		if how == "str" && strings.Trim(p, "/") == "" { // a route has no path without all below it, and here that is all
			return test{}, false
		}
		path := "/" + strings.Trim(p, "/")
		below := ""
		if how == "beg" && !ignoreCase && path != "/" && strings.HasSuffix(p, "/") {
			below = "/" // see whole
		}
		t.paths = append(t.paths, path+below)
		switch {
		case ignoreCase:
			t.differs = "letters of paths are compared as they are, and up to a slash"
		case how == "str":
			t.differs = "becomes the path and all below it"
		case path != "/":
			t.differs = "paths are compared up to a slash: " + path +
				" is it and all below it, and nothing else that begins so"
		}
	}
	return t, len(t.paths) > 0
}
