// SPDX-License-Identifier: Apache-2.0

package haproxy

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/move/importer/draft"
)

// Parameters of server without a counterpart: for TLS, with a value, and without one.
var (
	leftOfTLS = []string{"crl-file", "ciphers", "ciphersuites", "curves", "ssl-min-ver", "ssl-max-ver", "alpn",
		"verifyhost", "crt", "sni", "npn", "client-sigalgs", "sigalgs"}
	flagsOfTLS = []string{"allow-0rtt", "force-sslv3", "force-tlsv10", "force-tlsv11", "force-tlsv12",
		"force-tlsv13", "no-tlsv12", "no-tlsv13"}
	leftWithValue = []string{"cookie", "minconn", "maxqueue", "downinter", "track", "observe", "error-limit", "redir",
		"namespace", "socks4", "source", "usesrc", "interface", "addr",
		"agent-addr", "agent-send", "proxy-v2-options", "set-proxy-v2-tlv-fmt", "tcp-ut", "check-alpn", "check-proto",
		"ws", "init-state", "shard", "hash-key", "idle-ping", "pool-conn-name",
		"guid", "log-bufsize"}
	leftFlags = []string{"non-stick", "check-send-proxy", "check-via-socks4", "strict-maxconn", "check-reuse-pool"}
)

// whyLeft has the reasons for leaving out some parameters.
var whyLeft = map[string]string{
	"on-marked-up":   "on-marked-up: when a server serves again, connections of backups go on until they end",
	"on-error":       "on-error: what clients are answered decides of no check; outliers ejects servers that fail them",
	"non-stick":      "non-stick: persistence keeps clients at this server, too",
	"tcp-ut":         "tcp-ut: a connection whose other end acknowledges nothing ends by the timeouts of its ends",
	"on-marked-down": "on-marked-down: of what it can do, shutdown-sessions is on_down: reset",
}

// parse reads the parameters of a server.
func (s *server) parse(words []string) error {
	for i := 0; i < len(words); i++ {
		word, value := words[i], ""
		if i+1 < len(words) {
			value = words[i+1]
		}
		if s.flag(word) {
			continue
		}
		i++
		if value == "" {
			return fmt.Errorf("the parameter %s has no value, or is unknown", word)
		}
		known, err := s.value(word, value)
		if err != nil {
			return err
		}
		if !known {
			s.left = append(s.left, word)
			i-- // the next word may be a parameter
		}
	}
	return nil
}

// flag reads a parameter without a value.
func (s *server) flag(word string) bool {
	switch word {
	case "check":
		s.check = true
	case "no-check":
		s.check = false
	case "backup":
		s.backend.Backup = true
	case "no-backup":
		s.backend.Backup = false
	case "disabled":
		s.backend.Draining = true
	case "enabled":
		s.backend.Draining = false
	case "agent-check":
		if s.agent.Type == "" {
			s.agent = draft.NewCheck(lb.CheckAgent)
		}
	case "ssl":
		s.ssl, s.checkTLS, s.verify = true, true, true
	case "no-ssl":
		s.ssl, s.checkTLS = false, false
	case "check-ssl":
		s.checkTLS, s.verify = true, true
	case "no-check-ssl":
		s.checkTLS = false
	case "send-proxy":
		s.sendProxy = 1
	case "send-proxy-v2", "send-proxy-v2-ssl", "send-proxy-v2-ssl-cn":
		s.sendProxy = 2
	case "no-send-proxy", "no-send-proxy-v2":
		s.sendProxy = 0
	case "no-agent-check":
		s.agent = lb.Check{}
	case "no-send-proxy-v2-ssl", "no-send-proxy-v2-ssl-cn":
		s.sendProxy = 0
	default:
		switch why, needless := Keywords.Why(inServer, word); {
		case needless && !takesValue[word]:
			s.needless = append(s.needless, word+": "+why)
		case slices.Contains(flagsOfTLS, word):
			s.tls = append(s.tls, word)
		case slices.Contains(leftFlags, word):
			s.left = append(s.left, word)
		default:
			return false
		}
	}
	return true
}

// takesValue are the parameters in Keywords that have a value.
var takesValue = map[string]bool{"id": true, "init-addr": true, "resolve-net": true, "resolve-opts": true,
	"resolve-prefer": true, "resolvers": true, "max-reuse": true,
	"pool-low-conn": true, "pool-max-conn": true, "pool-purge-delay": true, "log-proto": true}

// value reads a parameter with a value. known is false if the parameter is unknown.
func (s *server) value(word, value string) (known bool, err error) {
	times := map[string]*time.Duration{"inter": &s.inter, "fastinter": &s.fast, "slowstart": &s.slowStart,
		"agent-inter": new(time.Duration)}
	counts := map[string]*uint16{"rise": &s.rise, "fall": &s.fall, "port": &s.checkPort, "weight": &s.backend.Weight,
		"agent-port": new(uint16)}
	switch {
	case times[word] != nil:
		*times[word], err = draft.Time(value, time.Millisecond)
		if word == "agent-inter" && err == nil {
			s.agentCheck()
			draft.SetTimes(&s.agent, *times[word], 0)
		}
	case counts[word] != nil:
		var n uint64
		n, _, err = draft.Number(value, 65535)
		*counts[word] = uint16(n)
		if word == "agent-port" {
			s.agentCheck()
			s.agent.Port = uint16(n)
		}
	case word == "maxconn":
		var n uint64
		n, _, err = draft.Number(value, 1<<28)
		s.backend.Upper = uint32(n)
	case word == "verify":
		s.verify, s.plain = value != "none", append(s.plain, word)
	case word == "ca-file" && value == "@system-ca": // the default
	case word == "ca-file":
		s.ca, s.plain = value, append(s.plain, word)
	case word == "check-sni":
		s.checkSNI, s.plain = value, append(s.plain, word)
	case word == "on-marked-down" && value == "shutdown-sessions":
		s.closes = true
	case word == "on-marked-down", word == "on-marked-up", word == "on-error":
		s.left = append(s.left, word)
	case word == "proto":
		s.proto = value
	case word == "resolvers":
		s.resolvers = value
	case slices.Contains(leftOfTLS, word):
		s.tls = append(s.tls, word)
	case slices.Contains(leftWithValue, word):
		s.left = append(s.left, word)
	default:
		why, needless := Keywords.Why(inServer, word)
		if needless {
			s.needless = append(s.needless, word+": "+why)
		}
		return needless, nil
	}
	return true, err
}

func (s *server) agentCheck() {
	if s.agent.Type == "" {
		s.agent = draft.NewCheck(lb.CheckAgent)
	}
}

// readServers reads the servers of a section.
func (r *reader) readServers(s *section, set settings) []server {
	var list []server
	shared := r.uses(s) > 1
	for _, l := range s.lines {
		switch {
		case l.is("server-template"):
			if one, ok := r.template(s, l, set); ok && r.acceptable(&one, s, shared) {
				list = append(list, one)
			}
		case l.is("server") && len(l.words) < 3:
			r.Left(l.at, "a server has a name and an address")
		case l.is("server"):
			one := server{at: l.at, name: l.words[1], address: l.words[2], backend: lb.Backend{Weight: 1}}
			if err := one.parse(slices.Concat(set.server, l.words[3:])); err != nil {
				r.Left(l.at, "%v", err)
				continue
			}
			if one.ca != "" {
				one.ca = based(r.caBase, one.ca)
			}
			if r.byName(one) {
				if found, ok := r.looked(s, l, set, 1); ok && r.acceptable(&found, s, shared) {
					list = append(list, found)
				}
				continue
			}
			if s.proxied && len(list) > 0 && !one.like(list[0]) {
				r.Left(l.at, "is spoken to in another way than %s; a service speaks to all its backends alike",
					list[0].name)
				continue
			}
			if r.acceptable(&one, s, shared) {
				list = append(list, one)
			}
		}
	}
	return list
}

// like reports whether HAProxy uses the same protocols to two servers.
func (s *server) like(o server) bool {
	return s.sendProxy == o.sendProxy && s.ssl == o.ssl && (!s.ssl || s.verify == o.verify && s.ca == o.ca)
}

// acceptable leaves out a server that needs more than Jeoul supports, and remarks on differences.
func (r *reader) acceptable(s *server, of *section, shared bool) bool {
	switch {
	case s.ssl && !of.proxied:
		r.Left(s.at, "HAProxy speaks TLS to this server, and not to the first; a service speaks to all its backends alike, in mode proxy by TLS")
		return false
	case s.sendProxy > 0 && !of.proxied:
		r.Left(s.at, "this server expects the PROXY protocol, and the first does not; a service speaks to all its backends alike, in mode proxy by that protocol")
		return false
	case s.proto != "" && s.proto != "h1":
		r.Left(s.at, "this server is spoken to by %s alone; Jeoul's proxy speaks HTTP/1.1 to backends", s.proto)
		return false
	case s.ca != "" && !absolute(s.ca):
		r.Left(s.at, "the file %q of authorities is not named by its absolute path", s.ca)
		return false
	}
	if i := slices.Index(s.left, "cookie"); i >= 0 && of.proxied {
		s.left = slices.Delete(s.left, i, i+1)
		r.Approximate(s.at,
			"the value of a server's cookie is made of its address: clients with one from before get another")
	}
	if s.ssl || s.checkTLS {
		s.left = append(s.left, s.tls...)
	}
	r.parameters(s)
	switch {
	case s.backend.Upper == 0:
	case of.proxied && !of.direct:
		if shared {
			r.Approximate(s.at, "maxconn becomes upper of each service that has the server, and each counts by itself")
		}
	default:
		r.Approximate(s.at,
			"maxconn becomes upper: what is beyond goes to the other backends, and is refused where all are full; in HAProxy it waits")
	}
	if s.backend.Draining {
		r.Approximate(s.at, "disabled becomes drain: checks go on")
	}
	return true
}

// parameters remarks on a server's parameters that are not carried over.
func (r *reader) parameters(s *server) {
	var left []string
	for _, word := range s.left {
		if why, more := whyLeft[word]; more {
			r.Left(s.at, "%s", why)
		} else {
			left = append(left, word)
		}
	}
	if len(left) > 0 {
		r.Left(s.at, "of this server's parameters Jeoul has no like of: %s", strings.Join(left, ", "))
	}
	if words := slices.Concat(s.plain, s.tls); len(words) > 0 && !s.ssl && !s.checkTLS {
		r.Needless(s.at, "%s: of TLS, which HAProxy does not speak to this server", strings.Join(words, ", "))
	}
	if s.agent.Type != "" && s.agent.Port == 0 {
		r.Left(s.at, "agent-check: no agent-port is named")
	}
	if host, _ := draft.SplitPort(s.address); s.resolvers != "" && !s.template {
		r.Needless(s.at, "resolvers: %s (%s)", ofNames, host)
	}
	for _, text := range s.needless {
		if s.resolvers == "" || !strings.Contains(text, ofNames) {
			r.Needless(s.at, "%s", text)
		}
	}
}

// backend returns a server as a backend of a service.
func (r *reader) backend(s server, of *draft.Service) (lb.Backend, error) {
	b := s.backend
	b.Name = s.name
	address := strings.TrimPrefix(strings.TrimPrefix(s.address, "ipv4@"), "ipv6@")
	if strings.ContainsAny(address, "@/") {
		return b, fmt.Errorf("%s is no address of IP", s.address)
	}
	host, port := draft.SplitPort(address)
	var err error
	if b.Address, err = r.Address(host); err != nil {
		return b, err
	}
	switch {
	case port == "":
		b.Port = of.Port
	case port[0] == '+' || port[0] == '-':
		n, _, err := draft.Number(port[1:], 65535)
		sum := int(of.Port) + int(n)
		if port[0] == '-' {
			sum = int(of.Port) - int(n)
		}
		if err != nil || sum < 1 || sum > 65535 {
			return b, fmt.Errorf("%s is no port", port)
		}
		b.Port = uint16(sum)
	default:
		b.Port, err = draft.Port("tcp", port)
	}
	return b, err
}

// uses returns the number of services that have the servers of a section.
func (r *reader) uses(of *section) (n int) {
	for _, s := range r.sections {
		if s.listens() && s.carried && slices.Contains(s.parts(), of) {
			n += s.places()
		}
	}
	return n
}
