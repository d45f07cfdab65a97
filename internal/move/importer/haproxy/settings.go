// SPDX-License-Identifier: Apache-2.0

package haproxy

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/move/importer/draft"
)

// effective returns the section's settings, with those of the defaults for unset ones.
func (s *section) effective() settings {
	if s.defaults == nil {
		return *s.settings
	}
	all, own := s.defaults.effective(), *s.settings
	if own.balance == nil {
		own.balance = all.balance
	}
	if own.check == nil {
		own.check = all.check
	}
	if own.checkCommand == nil {
		own.checkCommand = all.checkCommand
	}
	for _, v := range []struct{ own, of *uint64 }{{&own.maxconn, &all.maxconn}, {&own.rate, &all.rate}} {
		if *v.own == 0 {
			*v.own = *v.of
		}
	}
	for _, v := range []struct{ own, of *time.Duration }{{&own.connect, &all.connect},
		{&own.checkTimeout, &all.checkTimeout}} {
		if *v.own == 0 {
			*v.own = *v.of
		}
	}
	own.requests = own.requests.over(all.requests)
	own.server = slices.Concat(all.server, own.server)
	own.transparent, own.allBackups = own.transparent || all.transparent, own.allBackups || all.allBackups
	return own
}

// setting reads a line of a section that is carried over; false: the line is unknown.
func (r *reader) setting(s *section, l line) bool {
	if l.no {
		r.takenBack(s, l)
		return true
	}
	switch l.words[0] {
	case "bind", "server", "server-template": // read by serve
		return true
	case "mode", "default_backend", "use_backend":
		r.Carry(l.at)
	case "balance":
		s.settings.balance = &l
		r.Carry(l.at)
	case "maxconn":
		r.number(l, 1<<28, &s.settings.maxconn,
			"what is beyond waits in HAProxy's queue; here new connections of each service are refused, and their clients try again")
	case "rate-limit":
		l.words = l.words[1:]
		r.number(l, 10_000_000, &s.settings.rate,
			"what is beyond waits in HAProxy's queue; here SYNs are dropped, and clients send them again")
	case "timeout":
		r.timeout(s, l)
	case "default-server":
		s.settings.server = append(s.settings.server, l.words[1:]...)
		r.Carry(l.at)
	case "source":
		r.source(s, l)
	case "acl", "tcp-request":
		r.clients(s, l)
	case "stick-table", "stick":
		r.stick(s, l)
	case "http-check", "tcp-check", "external-check":
		r.checkLine(s, l)
	case "option":
		return r.option(s, l)
	default:
		return r.other(l)
	}
	return true
}

// number reads the numeric value of a line.
func (r *reader) number(l line, most uint64, into *uint64, differs string) {
	if len(l.words) < 2 {
		r.Left(l.at, "a number is missing")
		return
	}
	n, _, err := draft.Number(l.words[1], most)
	if err != nil {
		r.Left(l.at, "%v", err)
		return
	}
	*into = n
	r.Approximate(l.at, "%s", differs)
}

// takenBack remarks on a line that begins with "no".
func (r *reader) takenBack(s *section, l line) {
	before := slices.ContainsFunc(s.all(), func(o line) bool {
		return !o.no && len(o.words) > 1 && o.is(l.words[:min(2, len(l.words))]...)
	})
	if before || l.is("option", "redispatch") && s.proxied {
		r.Left(l.at, "takes back what goes on here; look at it by hand")
		return
	}
	r.Needless(l.at, "takes back what is not on here")
}

// timeout reads the timeouts of checks, and those of connections, which become the idle timeouts of flows.
func (r *reader) timeout(s *section, l line) {
	if len(l.words) < 3 {
		r.Left(l.at, "a length of time is missing")
		return
	}
	d, err := draft.Time(l.words[2], time.Millisecond)
	why, needless := Keywords.Why(inTimeout, l.words[1])
	switch {
	case err != nil:
		r.Left(l.at, "%v", err)
	case l.words[1] == "check":
		s.settings.checkTimeout = d
		r.Carry(l.at)
	case l.words[1] == "connect":
		s.settings.connect = d
		if s.proxied && !s.direct {
			return
		}
		r.Approximate(l.at,
			"bounds checks, beside timeout check; a client whose backend does not answer sends its SYN again, until it gives up itself")
	case slices.Contains([]string{"client", "server", "tunnel"}, l.words[1]):
		r.Idle(l.at, lb.TCP, d)
	case slices.Contains([]string{"client-fin", "server-fin"}, l.words[1]):
		r.HalfClosed(l.at, d)
	case needless:
		r.Needless(l.at, "%s", why)
	default:
		r.Left(l.at, "no timeout of Jeoul's is like it")
	}
}

// source reads the address that HAProxy sends from.
func (r *reader) source(s *section, l line) {
	if slices.Contains(l.words, "usesrc") {
		s.settings.transparent = true
		r.Approximate(l.at,
			"HAProxy sends from the client's address: that is mode nat, in which backends must answer through this host")
		return
	}
	if len(l.words) < 2 {
		r.Left(l.at, "an address is missing")
		return
	}
	host, _ := draft.SplitPort(l.words[1])
	addr, err := r.Address(host)
	if err != nil || addr.IsUnspecified() {
		r.Left(l.at, "no address to send from; name one by --source")
		return
	}
	r.SendsFrom(l.at, addr)
	r.Carry(l.at)
}

// stick reads persistence by the client's address.
func (r *reader) stick(s *section, l line) {
	const longest, usual = 24 * time.Hour, 24 * time.Hour
	switch {
	case l.is("stick-table", "type", "ip"), l.is("stick-table", "type", "ipv6"):
		s.settings.persistence = usual
		if at := slices.Index(l.words, "expire"); at > 0 && at+1 < len(l.words) {
			if d, err := draft.Time(l.words[at+1], time.Millisecond); err == nil {
				s.settings.persistence = min(max(d, time.Second), longest)
			}
		}
		r.Approximate(l.at,
			"becomes persistence where `stick on src` goes by it; what it counts, and its size, are not carried over")
	case l.is("stick", "on") && len(l.words) == 3 && clientKey.MatchString(l.words[2]):
		s.settings.prefix = clientPrefix(l.words[2])
		r.Carry(l.at)
	default:
		r.Left(l.at, "Jeoul knows clients by their addresses, and in mode proxy by a cookie (proxy.cookie)")
	}
}

// clientKey matches a stick table's key that identifies clients by their address or its leading bits. IPv6 has its own
// number of bits.
var clientKey = regexp.MustCompile(`^src(,ipmask\((\d{1,3})(,(\d{1,3}))?\))?$`)

// clientPrefix returns the number of leading address bits in a key, 0 for all.
func clientPrefix(key string) clientBits {
	match := clientKey.FindStringSubmatch(key)
	four, _ := strconv.Atoi(match[2])
	six, _ := strconv.Atoi(match[4])
	return clientBits{four, six}
}

// of returns the number of bits for a family, 0 if its addresses are shorter.
func (b clientBits) of(four bool) uint8 {
	switch {
	case four && b.four <= 32:
		return uint8(b.four)
	case !four && b.six <= 128:
		return uint8(b.six)
	}
	return 0
}

// checkOptions are the options that set the type of the servers' check.
var checkOptions = []string{"httpchk", "tcp-check", "ssl-hello-chk", "mysql-check", "pgsql-check", "redis-check",
	"ldap-check", "smtpchk", "spop-check", "external-check"}

// httpOptions apply to HTTP only.
var httpOptions = []string{"http-server-close", "http-keep-alive", "http-pretend-keepalive", "prefer-last-server",
	"http-no-delay", "http-buffer-request",
	"accept-invalid-http-request", "accept-invalid-http-response", "h1-case-adjust-bogus-client",
	"h1-case-adjust-bogus-server", "disable-h2-upgrade",
	"http-ignore-probes", "http-use-proxy-header", "http-use-htx", "httpclose", "forwardfor", "originalto"}

func (r *reader) option(s *section, l line) bool {
	if len(l.words) < 2 {
		return false
	}
	why, needless := Keywords.Why(inOption, l.words[1])
	switch name := l.words[1]; {
	case slices.Contains(checkOptions, name):
		r.checkOption(s, l)
	case name == "allbackups":
		s.settings.allBackups = true
		r.Carry(l.at)
	case needless:
		r.Needless(l.at, "%s", why)
	case slices.Contains(httpOptions, name) && !s.proxied:
		r.Needless(l.at, "%s", ofHTTP)
	case name == "abortonclose" && !s.proxied, name == "persist" && !s.proxied, name == "independent-streams" &&
		!s.proxied:
		r.Needless(l.at, "is of connections that wait, and of silence that HAProxy measures; Jeoul has neither")
	case name == "redispatch":
		r.Left(l.at, "a connection that a backend does not answer is not sent to another; outliers takes such a backend out for the next ones")
	case name == "tcplog" || name == "httplog" || name == "httpslog":
		r.Left(l.at, "%s", noLog)
	default:
		r.Left(l.at, "Jeoul has nothing like it; where it is needed, proxy.frontend and proxy.backend of mode proxy take lines of HAProxy's")
	}
	return true
}

// other remarks on lines that are not read.
func (r *reader) other(l line) bool {
	switch l.words[0] {
	case "log", "log-format", "log-format-sd", "log-tag", "error-log-format", "unique-id-format", "unique-id-header":
		r.Left(l.at, "%s", noLog)
	case "retry-on":
		r.Left(l.at, "what has been sent to a backend is not sent again to another")
	case "retries":
		r.Left(l.at, "a connection that a backend does not answer is not tried again; its client's SYN is sent again")
	case "errorfile", "errorfiles", "errorloc", "errorloc302", "errorloc303", "http-error":
		r.Left(l.at, "Jeoul answers by HAProxy's own pages, and without a proxy by none")
	case "http-reuse", "compression", "monitor-uri", "monitor-net", "monitor":
		r.Needless(l.at, "%s", ofHTTP)
	case "email-alert":
		r.Left(l.at, "Jeoul sends no mail; watch its events or metrics")
	case "stats":
		r.Left(l.at, "HAProxy's page is not served, and a request for it goes to the backends; see `jeoul status`, and metrics")
	default:
		why, needless := Keywords.Why(inSection, l.words[0])
		if !needless {
			return false
		}
		r.Needless(l.at, "%s", why)
	}
	return true
}

// balances maps HAProxy's algorithms to the closest scheduler.
var balances = map[string]lb.Scheduler{
	"roundrobin": lb.WeightedRoundRobin, "static-rr": lb.WeightedRoundRobin, "leastconn": lb.WeightedLeastConnections,
	"first":  lb.Failover,
	"source": lb.SourceHash, "random": lb.TwoChoices,
}

// schedule gives a service the scheduler closest to a balance line.
func (r *reader) schedule(s *draft.Service, balance *line) {
	s.Scheduler = lb.WeightedRoundRobin // HAProxy's default without a balance line
	if balance == nil || len(balance.words) < 2 {
		return
	}
	name, _, _ := strings.Cut(balance.words[1], "(")
	if balance.is("balance", "hash", "src") {
		name = "source"
	}
	scheduler, known := balances[name]
	if !known {
		scheduler = lb.SourceHash
		r.Approximate(balance.at,
			"goes by what clients send, and no scheduler of Jeoul's does; here clients are spread by their address")
	}
	if name == "first" {
		r.Approximate(balance.at,
			"first goes on to the next server when one has maxconn connections, which becomes upper")
	}
	s.Scheduler = scheduler
}
