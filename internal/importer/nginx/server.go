// SPDX-License-Identifier: Apache-2.0

package nginx

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/jeoul/jeoul/internal/importer/draft"
	"github.com/jeoul/jeoul/internal/lb"
	"github.com/jeoul/jeoul/internal/remark"
)

// server makes the services of a server: one for each address and port that it listens on.
func (r *reader) server(n, stream *node) {
	u, why := r.target(n, stream)
	if why != "" {
		r.leave(n, why)
		return
	}
	r.Carry(n.at)
	mode := lb.FullNAT
	if bind := child("proxy_bind", n, stream); bind != nil {
		mode = r.bind(bind)
	}
	allow, deny := r.clients(n, stream)
	for _, c := range n.children {
		r.directive(c)
	}
	for _, c := range n.children {
		if c.words[0] == "listen" {
			r.listen(c, u, mode, allow, deny)
		}
	}
	if child("listen", n) == nil {
		r.Left(n.at, "listens nowhere")
	}
}

// target returns what a server passes connections to, or why none can be carried over.
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
	return &upstream{node: pass, scheduler: lb.WeightedRoundRobin, backends: []lb.Backend{b}, lines: []remark.At{pass.at}}, ""
}

// bind reads the address that nginx sends from.
func (r *reader) bind(c *node) lb.Mode {
	if strings.HasPrefix(c.word(1), "$remote_addr") {
		r.Approximate(c.at, "nginx sends from the client's address: that is mode nat, in which backends must answer through this host")
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

// directive speaks of a directive of a server that is no address.
func (r *reader) directive(c *node) {
	switch name := c.words[0]; {
	case name == "listen", name == "proxy_bind", name == "allow", name == "deny":
	case name == "proxy_pass":
		r.Carry(c.at)
	case name == "proxy_timeout", name == "proxy_connect_timeout", name == "proxy_socket_keepalive", name == "proxy_buffer_size", name == "tcp_nodelay",
		name == "proxy_requests", name == "proxy_half_close", name == "preread_timeout", name == "preread_buffer_size", name == "server_name", name == "ssl_preread", name == "status_zone":
		r.Needless(c.at, "is of nginx's own connections; here client and backend end theirs, and flows.timeouts says how long a silent one is remembered")
	case name == "proxy_responses":
		r.Needless(c.at, "a flow of UDP ends by flows.timeouts, whatever it is answered")
	case name == "proxy_protocol", name == "proxy_ssl":
		r.Needless(c.at, "is off, as here")
	case strings.HasPrefix(name, "ssl_"):
		r.Left(c.at, "TLS that ends in nginx: %s", needsProxy)
	case strings.HasPrefix(name, "proxy_next_upstream"):
		r.Left(c.at, "a connection that a backend does not answer is not tried at another; outliers takes such a backend out for the next ones")
	case name == "access_log", name == "error_log":
		r.Left(c.at, "Jeoul logs no connections; it counts them: `jeoul status`, and metrics")
	case name == "limit_conn", name == "proxy_download_rate", name == "proxy_upload_rate", name == "health_check":
		r.leave(c, "Jeoul has limits of a service, and checks, which say it in another way: write them by hand")
	default:
		r.leave(c, "Jeoul has nothing like it; look at it by hand")
	}
}

// clients reads allow and deny. In nginx the first that fits counts, here the smallest network.
func (r *reader) clients(n, stream *node) (allow, deny []netip.Prefix) {
	from := n
	if child("allow", n) == nil && child("deny", n) == nil {
		from = stream
	}
	decided, denied := false, false // by the first line on all
	for _, c := range from.children {
		if c.words[0] != "allow" && c.words[0] != "deny" {
			continue
		}
		if decided {
			r.Needless(c.at, "stands below a line on all")
			continue
		}
		if c.word(1) == "all" {
			decided, denied = true, c.words[0] == "deny"
			r.Carry(c.at)
			continue
		}
		prefix, ok := draft.Network(c.word(1))
		switch {
		case !ok:
			r.Left(c.at, "no network; until allow or deny say otherwise, the services serve every client")
			continue
		case c.words[0] == "allow":
			allow = append(allow, prefix)
		default:
			deny = append(deny, prefix)
		}
		if len(allow) > 0 && len(deny) > 0 {
			r.Approximate(c.at, "in nginx the first line that fits counts, and here the smallest network that a client is in")
		}
		r.Carry(c.at)
	}
	if !denied { // who is in no list is served
		allow = nil
	}
	return allow, deny
}

// listen makes a service.
func (r *reader) listen(c *node, u *upstream, mode lb.Mode, allow, deny []netip.Prefix) {
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
		}
	}
	vip, port, err := r.listens(c.word(1), protocol)
	if err != nil {
		r.Left(c.at, "%v", err)
		return
	}
	s := r.NewService(c.at)
	s.VIP, s.Port, s.Protocol, s.Mode = vip, port, protocol, mode
	s.Scheduler, s.Hash, s.Outliers = u.scheduler, u.hash, u.outliers
	s.SlowStart = min(u.slowStart, time.Hour)
	s.Allow, s.Deny = draft.OfFamily(allow, vip), draft.OfFamily(deny, vip)
	if len(allow) > 0 && len(s.Allow) == 0 {
		r.Left(c.at, "allows clients of the other family alone, so that no client is served")
		return
	}
	for j, b := range u.backends {
		s.Add(u.lines[j], b)
	}
	weighted := slices.ContainsFunc(s.Backends, func(b lb.Backend) bool { return b.Weight != s.Backends[0].Weight })
	if s.Scheduler == lb.WeightedRoundRobin && !weighted {
		s.Scheduler = lb.RoundRobin
	}
}

// listens reads ADDRESS:PORT, PORT, *:PORT.
func (r *reader) listens(text string, protocol lb.Protocol) (netip.Addr, uint16, error) {
	var none netip.Addr
	if strings.HasPrefix(text, "unix:") {
		return none, 0, fmt.Errorf("listens on a unix socket")
	}
	host, port := draft.SplitPort(text)
	if port == "" {
		host, port = "*", host
	}
	if strings.Contains(port, "-") {
		return none, 0, fmt.Errorf("a range of ports; a service has one port: write one for each")
	}
	number, err := draft.Port(protocol.String(), port)
	if err != nil {
		return none, 0, err
	}
	if host == "" || host == "*" || host == "0.0.0.0" || host == "::" {
		vip, named := r.VIP(host != "::")
		if !named {
			return none, 0, fmt.Errorf("listens on every address; name the VIP by --vip")
		}
		return vip, number, nil
	}
	addr, err := r.Address(host)
	return addr, number, err
}
