// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"fmt"
	"hash/fnv"
	"net/netip"
	"slices"
	"strconv"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// maxWeight is the largest weight that HAProxy has.
const maxWeight = 256

// backends renders a section with some of a service's backends.
func (c *service) backends(name, comment string, chosen []int) error {
	t := &sectionWriter{from: place{service: c.Key()}}
	timeouts := c.p.Timeouts.WithDefaults(c.p.Speaks)
	t.section("backends of "+comment, "backend", name)
	t.add("proxy.speaks", "mode", c.mode())
	if c.logs {
		t.add("", "log", "global")
	}
	c.balance(t)
	t.add("proxy.timeouts.connect", "timeout", "connect", milliseconds(timeouts.Connect))
	t.add("proxy.timeouts.server", "timeout", "server", milliseconds(timeouts.Server))
	t.add("proxy.timeouts.queue", "timeout", "queue", milliseconds(timeouts.Queue))
	if c.http {
		t.add("proxy.timeouts.tunnel", "timeout", "tunnel", milliseconds(timeouts.Tunnel))
	}
	retries := uint8(lb.DefaultProxyRetries)
	if c.p.Retries != nil {
		retries = *c.p.Retries
	}
	t.add("proxy.retries", "retries", strconv.Itoa(int(retries)))
	t.add("", "option", "redispatch")
	c.persist(t)
	t.verbatim("proxy.back", c.p.Back, nil)
	servers := c.servers(t, chosen)
	from := make([]place, len(servers))
	for i, index := range chosen {
		from[i] = place{service: c.Key(), field: fmt.Sprintf("backends[%d]", index)}
	}
	b := Block{Pool: name, Servers: servers, Persistent: c.Persistence.On()}
	if c.p.Cookie != "" {
		b.CookieKey = c.name
	}
	c.out.addBlock(t, b, from)
	return t.err
}

// balance renders the lines of the scheduler. With each of these algorithms, servers can be added, removed and
// reweighted at run time.
func (c *service) balance(t *sectionWriter) {
	add := func(words ...string) { t.add("scheduler", append([]string{"balance"}, words...)...) }
	switch {
	case c.Scheduler == lb.LeastConnections, c.Scheduler == lb.WeightedLeastConnections:
		add("leastconn")
	case c.Scheduler == lb.TwoChoices:
		add("random(2)")
	case c.Scheduler.InOrder():
		add("first")
	case c.BySource():
		add("source")
		t.add("scheduler", "hash-type", "consistent")
	case c.Scheduler == lb.Maglev:
		add("hash", "var(sess.flow)")
		t.add("scheduler", "hash-type", "consistent")
	default:
		add("roundrobin")
	}
}

// persist renders the lines for persistence.
func (c *service) persist(t *sectionWriter) {
	if c.Persistence.On() {
		kind, mask := "ip", fmt.Sprintf("src,ipmask(%d)", c.Persistence.Prefix)
		if c.VIP.Is6() {
			kind, mask = "ipv6", fmt.Sprintf("src,ipmask(32,%d)", c.Persistence.Prefix)
		}
		if c.Persistence.Prefix == 0 {
			mask = "src"
		}
		t.add("persistence.timeout", "stick-table", "type", kind, "size", maxPersistentClients, "expire",
			milliseconds(c.Persistence.Timeout))
		t.add("persistence.prefix", "stick", "on", mask)
	}
	if c.p.Cookie == "" {
		return
	}
	if !isToken(c.p.Cookie) {
		t.setError("proxy.cookie",
			fmt.Errorf("%q %w as the name of a cookie: it has letters, digits and some punctuation (RFC 6265, section 4.1.1)", c.p.Cookie, ErrValue))
	}
	words := []string{"cookie", c.p.Cookie, "insert", "indirect", "nocache", "httponly", "dynamic"}
	if len(c.p.Certificates) > 0 {
		words = append(words, "secure")
	}
	t.add("proxy.cookie", words...)
	// The key is hashed into a server's cookie with its address, so that clients cannot find the addresses of backends.
	t.add("proxy.cookie", "dynamic-cookie-key", c.name)
}

// servers makes a section's servers.
func (c *service) servers(t *sectionWriter, chosen []int) []Server {
	fixed := c.fixedParameters(t)
	ids := c.ids(chosen)
	var most uint32
	for _, i := range chosen {
		if !slices.Contains(c.Out, i) {
			most = max(most, uint32(c.Backends[i].Weight))
		}
	}
	servers := make([]Server, len(chosen))
	for n, i := range chosen {
		b := c.Backends[i]
		s := Server{Name: endpoint(b.Address, b.Port), Address: netip.AddrPortFrom(b.Address, b.Port).String(),
			ID: ids[n], Fixed: fixed, MaxConn: b.Upper}
		if o := c.Observed.Of(i); slices.Contains(c.Out, i) {
			s.Off, s.EndsConnections = true, true
		} else {
			s.Weight = c.weight(b, most)
			s.Off = o.Unhealthy != "" || o.Standby
			s.EndsConnections = o.Unhealthy != "" && !o.Ejected && !c.Checks.OnDown.Keeps()
		}
		servers[n] = s
	}
	return servers
}

// weight returns HAProxy's weight of a backend; most is the largest weight of the service's backends.
func (c *service) weight(b lb.Backend, most uint32) uint32 {
	switch {
	case b.Weight == 0 || b.Draining:
		return 0
	case !c.Scheduler.Weighted():
		return 1
	case most <= maxWeight:
		return uint32(b.Weight)
	}
	return max(uint32(b.Weight)*maxWeight/most, 1)
}

// ids returns the ids of servers: by their order if the scheduler goes by it, otherwise from their endpoints. HAProxy's
// hashes go by the ids, so all balancers of a service agree, and a server that was added at run time keeps its clients
// after a reload.
func (c *service) ids(chosen []int) []uint32 {
	ids := make([]uint32, len(chosen))
	if c.Scheduler.InOrder() {
		for n := range ids {
			ids[n] = uint32(n + 1)
		}
		return ids
	}
	order := make([]int, len(chosen))
	for n := range order {
		order[n] = n
	}
	name := func(n int) string { return endpoint(c.Backends[chosen[n]].Address, c.Backends[chosen[n]].Port) }
	slices.SortFunc(order, func(a, b int) int {
		if name(a) < name(b) {
			return -1
		}
		return 1
	})
	taken := map[uint32]bool{}
	for _, n := range order {
		hash := fnv.New32a()
		hash.Write([]byte(name(n)))
		id := hash.Sum32()&0x3fffffff | 1
		for taken[id] {
			id++
		}
		taken[id], ids[n] = true, id
	}
	return ids
}

// systemAuthorities is Debian's file of trusted certificate authorities.
const systemAuthorities = "/etc/ssl/certs/ca-certificates.crt"

// fixedParameters returns the parameters that all servers of the service have behind their addresses.
func (c *service) fixedParameters(*sectionWriter) (words []string) {
	switch c.p.SendProxy {
	case 1:
		words = append(words, "send-proxy")
	case 2:
		words = append(words, "send-proxy-v2")
	}
	name := "req.hdr(host),host_only"
	if !c.http {
		name = "ssl_fc_sni"
	}
	named := c.http || len(c.p.Certificates) > 0
	switch c.p.BackendTLS {
	case lb.BackendTLSUnverified:
		words = append(words, "ssl", "verify", "none")
	case lb.BackendTLSVerified:
		words = append(words, "ssl", "verify", "required", "ca-file")
		if c.p.BackendCA != "" {
			// With the operator's own authorities, a certificate may have any name, and none is sent.
			copied := c.host.authorities(c.p.BackendCA)
			c.out.Authorities[copied] = c.p.BackendCA
			words = append(words, copied)
			if c.http {
				// Without the parameter, HAProxy from 3.3 on sends the name of the Host header, and verifies the
				// certificate by it. Versions before 3.3 refuse no-sni-auto; a variable without a value sends none.
				words = append(words, "sni", "var(txn.jeoul_no_name)")
			}
			return words
		}
		words = append(words, systemAuthorities)
	default:
		return words
	}
	if named {
		words = append(words, "sni", name)
	}
	return words
}
