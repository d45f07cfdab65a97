// SPDX-License-Identifier: Apache-2.0

package nginx

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/move/importer/draft"
	"github.com/jeoul/jeoul/internal/move/remark"
)

// guardsOfStream are directives without which a server of stream would serve clients that it must not.
var guardsOfStream = []string{"limit_conn", "js_access", "js_preread", "js_filter", "ssl_verify_client",
	"ssl_reject_handshake"}

// server makes the services of a server: one for each address and port that it listens on.
func (r *reader) server(n, stream *node) {
	u, why := r.target(n, stream)
	for _, name := range guardsOfStream {
		if guard := child(name, n, stream); why == "" && on(guard) {
			why = fmt.Sprintf(
				"`%s` at %s refuses connections, and Jeoul has nothing like it; keep nginx in front of these backends",
				name, guard.at)
		}
	}
	if why != "" {
		r.leave(n, why)
		return
	}
	rules, bad := r.clients(n, stream)
	if bad != nil {
		r.leave(n, fmt.Sprintf("`%s` at %s says who is served, and is no network; write allow or deny by hand",
			strings.Join(bad.words, " "), bad.at))
		return
	}
	r.Carry(n.at)
	mode := lb.FullNAT
	if bind := child("proxy_bind", n, stream); bind != nil {
		mode = r.bind(bind)
	}
	protocols := protocolsOf(n)
	for _, c := range n.children {
		r.directive(c, protocols)
	}
	if slices.Contains(protocols, lb.UDP) && child("proxy_timeout", n, stream) == nil &&
		child("proxy_responses", n, stream) == nil {
		r.Idle(n.at, lb.UDP, usualSilence)
	}
	for _, c := range n.children {
		if c.words[0] == "listen" {
			r.listen(c, u, mode, rules)
		}
	}
	if child("listen", n) == nil {
		r.Left(n.at, "listens nowhere")
	}
}

// usualSilence is nginx's default of proxy_timeout.
const usualSilence = 10 * time.Minute

// protocolsOf returns the protocols of the servers in a block.
func protocolsOf(n *node) (list []lb.Protocol) {
	for _, c := range n.children {
		switch {
		case c.words[0] == "server":
			list = append(list, protocolsOf(c)...)
		case c.words[0] == "listen" && slices.Contains(c.words, "udp"):
			list = append(list, lb.UDP)
		case c.words[0] == "listen":
			list = append(list, lb.TCP)
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// target returns the upstream that a server passes connections to, or the reason why it cannot be carried over.
func (r *reader) target(n, stream *node) (*upstream, string) {
	pass := child("proxy_pass", n)
	switch {
	case pass == nil:
		return nil, "passes connections to no upstream"
	case strings.Contains(pass.word(1), "$"):
		return nil, "chooses its upstream by what clients send: " + needsProxy
	case on(child("proxy_protocol", n, stream)):
		return nil, "its backends expect the PROXY protocol: " + needsProxy
	case on(child("proxy_ssl", n, stream)):
		return nil, "nginx speaks TLS to its backends: " + needsProxy
	}
	if u := r.upstreams[pass.word(1)]; u != nil {
		u.used = true
		r.Carry(u.node.at)
		return u, ""
	}
	b := lb.Backend{Weight: 1}
	if err := r.place(&b, pass.word(1)); err != nil {
		return nil, err.Error()
	}
	return &upstream{node: pass, scheduler: lb.WeightedRoundRobin, backends: []lb.Backend{b},
		lines: []remark.At{pass.at}}, ""
}

// bind reads the address that nginx sends from.
func (r *reader) bind(c *node) lb.Mode {
	if strings.HasPrefix(c.word(1), "$remote_addr") {
		r.Approximate(c.at,
			"nginx sends from the client's address: that is mode nat, in which backends must answer through this host")
		return lb.NAT
	}
	host, _ := draft.SplitPort(c.word(1))
	if addr, err := r.Address(host); err == nil {
		r.SendsFrom(c.at, addr)
		r.Carry(c.at)
	} else {
		r.Left(c.at, "no address to send from; name one by --source")
	}
	return lb.FullNAT
}

// directive carries over a directive of stream or a server, or remarks on it. protocols are those of the servers.
func (r *reader) directive(c *node, protocols []lb.Protocol) {
	switch name := c.words[0]; {
	case name == "listen", name == "proxy_bind", name == "allow", name == "deny":
	case name == "proxy_pass":
		r.Carry(c.at)
	case name == "proxy_timeout":
		silence, err := draft.Time(c.word(1), time.Second)
		if err != nil {
			r.Left(c.at, "%v", err)
			return
		}
		for _, protocol := range protocols {
			r.Idle(c.at, protocol, silence)
		}
	case name == "proxy_responses", name == "proxy_requests":
		r.Approximate(c.at,
			"nginx chooses a backend anew after so many datagrams; here a client's address and port keep theirs until flows.timeouts ends the flow")
	case name == "proxy_protocol", name == "proxy_ssl":
		r.Needless(c.at, "is off, as here")
	case strings.HasPrefix(name, "proxy_next_upstream"):
		r.Left(c.at, "a connection that a backend does not answer is not tried at another; outliers takes such a backend out for the next ones")
	case name == "access_log", name == "error_log":
		r.Left(c.at, "Jeoul logs no connections; it counts them: `jeoul status`, and metrics")
	case name == "proxy_download_rate", name == "proxy_upload_rate", name == "health_check":
		r.leave(c, "Jeoul has limits of a service, and checks, which say it in another way: write them by hand")
	default:
		if _, needless := Keywords.Why(inStream, name); !needless && strings.HasPrefix(name, "ssl_") {
			r.Left(c.at, "TLS that ends in nginx: %s", needsProxy)
			return
		}
		r.passOver(inStream, c)
	}
}

// clients reads allow and deny. The first rule that matches a client decides. bad is a rule without a valid network.
func (r *reader) clients(n, outer *node) (rules []draft.Rule, bad *node) {
	from := n
	if child("allow", n) == nil && child("deny", n) == nil {
		from = outer
	}
	for _, c := range from.children {
		if c.words[0] != "allow" && c.words[0] != "deny" {
			continue
		}
		rule := draft.Everyone(c.words[0] == "allow")
		if c.word(1) != "all" && c.word(1) != "unix:" {
			prefix, ok := draft.Network(c.word(1))
			if !ok {
				return nil, c
			}
			rule.Networks, rule.Others = []netip.Prefix{prefix}, false
		}
		if c.word(1) != "unix:" {
			rules = append(rules, rule)
		}
		r.Carry(c.at)
	}
	return rules, nil
}

// listen makes the services of an address, one for each of its families.
func (r *reader) listen(c *node, u *upstream, mode lb.Mode, rules []draft.Rule) {
	protocol := lb.TCP
	for _, word := range c.words[min(2, len(c.words)):] {
		switch {
		case word == "udp":
			protocol = lb.UDP
		case word == "ssl":
			r.Left(c.at, "TLS ends in nginx: %s; or let the backends end it", needsProxy)
			return
		case word == "proxy_protocol":
			r.Left(c.at, "clients come by the PROXY protocol: %s", needsProxy)
			return
		default:
			r.listenParameter(c, word)
		}
	}
	places, err := r.listens(c, protocol)
	if err != nil {
		r.Left(c.at, "%v", err)
		return
	}
	for _, at := range places {
		s := r.NewService(c.at)
		s.VIP, s.Port, s.Protocol, s.Mode = at.Addr(), at.Port(), protocol, mode
		s.Scheduler, s.Hash, s.Outliers = u.scheduler, u.hash, u.outliers
		s.SlowStart = min(u.slowStart, time.Hour)
		var noClients bool
		if s.Allow, s.Deny, noClients = draft.Access(s.VIP, rules); noClients {
			s.Unsafe = noClient
		}
		for j, b := range u.backends {
			s.Add(u.lines[j], b)
		}
		evenly(s)
	}
}

const noClient = "no client of the VIP's family is served, which allow and deny cannot say"

// evenly replaces weighted round robin by round robin where all weights are equal.
func evenly(s *draft.Service) {
	weighted := slices.ContainsFunc(s.Backends, func(b lb.Backend) bool { return b.Weight != s.Backends[0].Weight })
	if s.Scheduler == lb.WeightedRoundRobin && !weighted {
		s.Scheduler = lb.RoundRobin
	}
}

// listenParameter remarks on a parameter of listen.
func (r *reader) listenParameter(c *node, word string) {
	name, _, _ := strings.Cut(word, "=")
	if name == "ipv6only" {
		return // read by listens
	}
	why, needless := Keywords.Why(inListen, name)
	if !needless {
		r.Left(c.at, "of this address's parameters Jeoul has no like of %s", name)
		return
	}
	r.Needless(c.at, "%s: %s", name, why)
}

// listens reads ADDRESS:PORT, PORT or *:PORT, and returns the addresses of the services. The wildcard address of IPv6
// with ipv6only=off gives one for each family.
func (r *reader) listens(c *node, protocol lb.Protocol) (list []netip.AddrPort, err error) {
	text := c.word(1)
	if strings.HasPrefix(text, "unix:") {
		return nil, fmt.Errorf("listens on a unix socket")
	}
	host, port := draft.SplitPort(text)
	switch {
	case port == "" && r.requests && (strings.HasPrefix(text, "[") || strings.ContainsAny(text, ".*")):
		port = "80"
	case port == "":
		host, port = "*", host
	}
	if strings.Contains(port, "-") {
		return nil, fmt.Errorf("a range of ports; a service has one port: write one for each")
	}
	number, err := draft.Port(protocol.String(), port)
	if err != nil {
		return nil, err
	}
	if host != "" && host != "*" && host != "0.0.0.0" && host != "::" {
		addr, err := r.Address(host)
		if err != nil {
			return nil, err
		}
		return []netip.AddrPort{netip.AddrPortFrom(addr, number)}, nil
	}
	families := []bool{host != "::"}
	if host == "::" && slices.Contains(c.words, "ipv6only=off") {
		families = []bool{true, false}
	}
	for _, four := range families {
		if vip, named := r.VIP(four); named {
			list = append(list, netip.AddrPortFrom(vip, number))
		}
	}
	switch {
	case len(list) == 0:
		return nil, fmt.Errorf("listens on every address; name the VIP by --vip")
	case len(list) < len(families):
		r.Left(c.at, "listens on every address of IPv4 and IPv6, and --vip names one family: clients of the other are not served")
	}
	return list, nil
}
