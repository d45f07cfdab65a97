// SPDX-License-Identifier: Apache-2.0

package haproxy

import (
	"cmp"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/move/importer/draft"
)

// checkOption reads an option that sets the type of the servers' check.
func (r *reader) checkOption(s *section, l line) {
	c := s.ownCheck()
	c.kind, c.option = lb.CheckTCP, true
	switch l.words[1] {
	case "tcp-check":
		r.Carry(l.at)
	case "ssl-hello-chk":
		c.kind = lb.CheckTLS
		r.Approximate(l.at, "HAProxy sends a hello and waits for the answer; here the handshake is completed")
	case "httpchk":
		c.kind = lb.CheckHTTP
		if !c.sent {
			c.ask(request(l.words[2:]))
		}
		r.Carry(l.at)
	case "external-check":
		c.kind = lb.CheckExec
		r.Carry(l.at)
	default:
		r.Approximate(l.at,
			"Jeoul does not speak the protocol of %s; it opens a connection (tcp), and a program can ask more (exec)",
			l.words[1])
	}
}

// request reads METHOD URI VERSION, or URI alone, or nothing. Header fields may follow the version.
func request(words []string) lb.HTTPCheck {
	h := lb.HTTPCheck{Method: "OPTIONS", Path: "/"}
	switch {
	case len(words) == 1 && strings.HasPrefix(words[0], "/"):
		h.Path = words[0]
	case len(words) >= 1:
		h.Method = words[0]
	}
	if len(words) > 1 {
		h.Path = words[1]
	}
	if len(words) > 2 {
		for _, field := range strings.Split(strings.Join(words[2:], " "), "\r\n")[1:] {
			name, value, _ := strings.Cut(field, ":")
			addHeader(&h, name, strings.TrimSpace(value))
		}
	}
	return h
}

func addHeader(h *lb.HTTPCheck, name, value string) {
	switch {
	case name == "":
	case strings.EqualFold(name, "Host"):
		h.Host = value
	default:
		h.Headers = append(h.Headers, lb.Header{Name: name, Value: value})
	}
}

// ownCheck returns the check of a section that has lines of its own about it.
func (s *section) ownCheck() *check {
	if s.settings.check == nil {
		s.settings.check = &check{kind: lb.CheckTCP}
	}
	return s.settings.check
}

// requestCheck returns a section's check for a rule of requests and answers. Such rules replace all rules of the
// defaults, but not the option there. Before 2.2, HAProxy sent the request of that option where a section only expects
// something; since then, it sends none, and no server is up, so the request is meant.
func (s *section) requestCheck() *check {
	c := s.ownCheck()
	if c.option || c.kind == lb.CheckHTTP || s.defaults == nil {
		return c
	}
	if base := s.defaults.effective().check; base != nil && base.kind == lb.CheckHTTP {
		c.kind = lb.CheckHTTP
		c.ask(base.http)
	}
	return c
}

// ask sets the request of a check; what the check expects stays.
func (c *check) ask(request lb.HTTPCheck) {
	request.Headers = slices.Clip(request.Headers)
	request.Status, request.Body = c.http.Status, c.http.Body
	c.http = request
}

// checkLine reads http-check, tcp-check and external-check.
func (r *reader) checkLine(s *section, l line) {
	switch {
	case l.is("http-check", "send"):
		c := s.requestCheck()
		if !c.option && !c.sent {
			c.ask(request(nil))
		}
		c.sent = true
		r.send(c, l)
	case l.is("http-check", "expect"):
		r.expect(s.requestCheck(), l)
	case l.is("http-check", "connect"), l.is("tcp-check", "connect"):
		r.connect(s.ownCheck(), l)
	case l.is("external-check", "command") && len(l.words) == 3 && strings.HasPrefix(l.words[2], "/"):
		s.settings.checkCommand = []string{l.words[2]}
		r.Approximate(l.at,
			"Jeoul gives the program no arguments: the backend's address is in JEOUL_ADDRESS, and its port in JEOUL_PORT")
	case l.is("external-check", "path"):
		r.Left(l.at, "a program of a check is named by its absolute path")
	default:
		r.Left(l.at, "Jeoul's check has no like of it; a program can ask (exec)")
	}
}

// send reads http-check send.
func (r *reader) send(c *check, l line) {
	words := l.words[2:]
	for i := 0; i < len(words); i++ {
		value := func(n int) string {
			if i+n < len(words) {
				return words[i+n]
			}
			return ""
		}
		switch words[i] {
		case "meth":
			c.http.Method = value(1)
			i++
		case "uri":
			c.http.Path = value(1)
			i++
		case "ver":
			i++
		case "hdr":
			addHeader(&c.http, value(1), strings.ReplaceAll(value(2), "%%", "%"))
			i += 2
		default:
			r.Left(l.at, "Jeoul's check sends no %s", words[i])
			return
		}
	}
	r.Carry(l.at)
}

// expect reads http-check expect.
func (r *reader) expect(c *check, l line) {
	words := l.words[2:]
	for len(words) > 2 && (words[0] == "min-recv" || words[0] == "comment") {
		words = words[2:]
	}
	if len(words) < 2 {
		r.Left(l.at, "nothing is expected")
		return
	}
	pattern := strings.Join(words[1:], " ")
	switch words[0] {
	case "status":
		ranges, ok := statuses(pattern)
		if !ok {
			r.Left(l.at, "%q is no list of status codes", pattern)
			return
		}
		c.http.Status = ranges
	case "rstatus":
		c.http.Status = matching(pattern)
		if len(c.http.Status) == 0 || len(c.http.Status) > 16 {
			c.http.Status = nil
			r.Left(l.at, "no list of status codes is the like of it")
			return
		}
	case "string":
		c.http.Body = regexp.QuoteMeta(pattern)
	case "rstring":
		if _, err := regexp.Compile(pattern); err != nil {
			r.Left(l.at, "RE2, of which Jeoul's expressions are, does not take it: %v", err)
			return
		}
		c.http.Body = pattern
	default:
		r.Left(l.at, "Jeoul's check expects a status and a body")
		return
	}
	r.Carry(l.at)
}

// statuses reads status codes and ranges, separated by commas.
func statuses(text string) ([]lb.StatusRange, bool) {
	var list []lb.StatusRange
	for word := range strings.SplitSeq(text, ",") {
		first, last, isRange := strings.Cut(strings.TrimSpace(word), "-")
		if !isRange {
			last = first
		}
		from, err1 := strconv.ParseUint(first, 10, 16)
		to, err2 := strconv.ParseUint(last, 10, 16)
		if err1 != nil || err2 != nil || from < 100 || to > 599 || from > to {
			return nil, false
		}
		list = append(list, lb.StatusRange{First: uint16(from), Last: uint16(to)})
	}
	return list, true
}

// matching returns the status codes, as ranges, that an expression matches.
func matching(pattern string) []lb.StatusRange {
	expression, err := regexp.Compile(pattern)
	if err != nil {
		return nil
	}
	var list []lb.StatusRange
	for code := uint16(100); code <= 599; code++ {
		if !expression.MatchString(strconv.Itoa(int(code))) {
			continue
		}
		if n := len(list); n > 0 && list[n-1].Last == code-1 {
			list[n-1].Last = code
		} else {
			list = append(list, lb.StatusRange{First: code, Last: code})
		}
	}
	return list
}

// connect reads http-check connect and tcp-check connect.
func (r *reader) connect(c *check, l line) {
	for i, word := range l.words {
		switch {
		case word == "ssl":
			c.tls = true
		case word == "sni" && i+1 < len(l.words):
			c.sni = l.words[i+1]
		case word == "port" && i+1 < len(l.words):
			port, err := draft.Port("tcp", l.words[i+1])
			if err != nil {
				r.Left(l.at, "%v", err)
				return
			}
			c.port = port
		}
	}
	r.Carry(l.at)
}

// checks gives a service the checks of the first server that has some.
func (r *reader) checks(s *draft.Service, set settings, servers []server) {
	i := slices.IndexFunc(servers, func(one server) bool { return one.check })
	if i >= 0 {
		c := r.checkOf(set, servers[i])
		r.times(&c, set, servers[i])
		s.Checks.List = append(s.Checks.List, c)
		r.compare(servers[i], servers)
	}
	if i := slices.IndexFunc(servers, func(one server) bool { return one.agent.Port != 0 }); i >= 0 {
		s.Checks.List = append(s.Checks.List, servers[i].agent)
	}
}

// checkOf makes a check from a section's check and a server's intervals.
func (r *reader) checkOf(set settings, of server) lb.Check {
	how := set.check
	if how == nil {
		how = &check{kind: lb.CheckTCP}
	}
	tls := how.tls || of.checkTLS
	kind := how.kind
	if kind == lb.CheckExec && len(set.checkCommand) == 0 {
		kind = lb.CheckTCP
	}
	if kind == lb.CheckTCP && tls {
		kind = lb.CheckTLS
	}
	if of.sendProxy > 0 && of.checkPort == 0 && how.port == 0 && kind != lb.CheckTCP && kind != lb.CheckExec {
		r.Approximate(of.at,
			"the server expects the PROXY protocol, which Jeoul's checks do not speak: they open a connection (tcp)")
		kind = lb.CheckTCP
	}
	c := draft.NewCheck(kind)
	switch kind {
	case lb.CheckHTTP:
		request := how.http
		c.HTTP = &request
	case lb.CheckExec:
		c.Exec.Command = set.checkCommand
	}
	if tls && (kind == lb.CheckHTTP || kind == lb.CheckTLS) {
		c.TLS = &lb.TLSCheck{Verify: of.verify, CA: of.ca, ServerName: how.sni}
		if of.checkSNI != "" {
			c.TLS.ServerName = of.checkSNI
		}
	}
	c.Port = how.port
	if of.checkPort != 0 {
		c.Port = of.checkPort
	}
	c.Rise, c.Fall, c.Fast = 2, 3, of.fast
	if of.rise > 0 {
		c.Rise = of.rise
	}
	if of.fall > 0 {
		c.Fall = of.fall
	}
	return c
}

// times sets a check's timeout and interval. In HAProxy, timeout check limits the wait for the answer, after a
// connection within timeout connect or inter; without it, inter limits the whole check (section 4.2 of HAProxy's
// configuration manual).
func (r *reader) times(c *lb.Check, set settings, of server) {
	interval := cmp.Or(of.inter, lb.DefaultCheckInterval)
	timeout := interval
	if set.checkTimeout > 0 {
		timeout = set.checkTimeout
		if connect := min(cmp.Or(set.connect, interval), interval); connect > timeout {
			r.Approximate(of.at,
				"a check ends after %s (timeout check), its connection included; HAProxy bounds that by %s of its own",
				timeout, connect)
		}
	}
	timeout = min(timeout, time.Minute)
	interval = r.FitInterval(of.at, interval, timeout, "timeout check")
	if c.Fast > 0 && c.Fast < timeout {
		r.Approximate(of.at,
			"fastinter %s is shorter than a check may take (%s), and the next one begins after it: that is its interval while answers change", c.Fast, timeout)
	}
	draft.SetTimes(c, interval, timeout)
}

// compare remarks on servers whose check differs from the service's.
func (r *reader) compare(of server, servers []server) {
	for _, other := range servers {
		switch {
		case !other.check:
			r.Approximate(other.at,
				"HAProxy does not check this server; here a service's checks are those of all its backends")
		case other.inter != of.inter || other.rise != of.rise || other.fall != of.fall || other.fast != of.fast ||
			other.checkPort != of.checkPort || other.checkTLS != of.checkTLS:
			r.Approximate(other.at,
				"this server is checked in another way than the one at %s; here a service's checks are those of all its backends, and they are that one's", of.at)
		}
	}
}
