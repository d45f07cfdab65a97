// SPDX-License-Identifier: Apache-2.0

package discover

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/miekg/dns"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

const (
	// minTTL and maxTTL bound the time after which a name is queried again, which is otherwise its TTL: a TTL of 0 must
	// not cause constant queries, nor a TTL of a week none.
	minTTL = time.Second
	maxTTL = time.Hour
	// maxNegativeTTL bounds the caching of an answer without records.
	maxNegativeTTL = time.Minute
	// dnsMinBackoff is the pause before the first retry of a failed query. Each later one is twice as long, up to
	// dnsMaxBackoff.
	dnsMinBackoff = time.Second
	dnsMaxBackoff = 30 * time.Second
	// dnsTimeout bounds an exchange with a server, and dnsAnswerTimeout all those of one answer.
	dnsTimeout       = 2 * time.Second
	dnsAnswerTimeout = 30 * time.Second
	// dnsPayload is the largest answer over UDP that is asked for, in bytes (DNS flag day 2020).
	dnsPayload = 1232
	// maxReadings bounds the queries of SRV records for one answer if the zone changes meanwhile.
	maxReadings = 4
	// maxAliases bounds a chain of CNAME records.
	maxAliases = 16
	resolvConf = "/etc/resolv.conf"
)

// errNoServers is the error of a host whose resolver is not configured.
var errNoServers = errors.New("no name server is configured")

// dnsProvider follows a name of the DNS.
type dnsProvider struct {
	lb.DNSOrigin
	// types are the queried types of records: dns.TypeA, dns.TypeAAAA.
	types []uint16
	// exchange sends a query to a server; nil: over the network.
	exchange func(ctx context.Context, network, server string, ask *dns.Msg) (*dns.Msg, error)
	// conf is the path of the resolver's configuration.
	conf string
}

// newDNSProvider returns the provider that follows a service's name in the DNS.
func newDNSProvider(s lb.Service) dnsProvider {
	return dnsProvider{DNSOrigin: s.Discovery.DNS, types: addressTypes(s), conf: resolvConf}
}

// addressTypes returns the types of records to query: those of the families that the service's mode supports.
func addressTypes(s lb.Service) (types []uint16) {
	four := s.VIP.Is4() || s.Mode.CrossesFamilies()
	six := !s.VIP.Is4() || s.Mode.CrossesFamilies()
	queried := s.Discovery.DNS.Type
	if queried == "A" || queried != "AAAA" && four {
		types = append(types, dns.TypeA)
	}
	if queried == "AAAA" || queried != "A" && six {
		types = append(types, dns.TypeAAAA)
	}
	return types
}

// records are the backends that a name has in the DNS.
type records struct {
	found []Found
	// ttl is the time for which they are valid.
	ttl time.Duration
	// emptyReason is the reason for which there is no record.
	emptyReason string
}

// Watch queries the name again when the TTL of the answer has passed.
func (n dnsProvider) Watch(ctx context.Context, notify func(Answer)) {
	retry := dnsMinBackoff
	for ctx.Err() == nil {
		bounded, cancel := context.WithTimeout(ctx, dnsAnswerTimeout)
		got, err := n.resolve(bounded)
		cancel()
		if ctx.Err() != nil {
			return
		}
		wait := min(max(got.ttl, minTTL), maxTTL)
		if err != nil {
			wait, retry = retry, min(2*retry, dnsMaxBackoff)
		} else {
			retry = dnsMinBackoff
		}
		notify(Answer{Found: got.found, Err: err, EmptyReason: got.emptyReason})
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

// resolve returns the records of the first name, among those that the resolver's search domains make of it, that has
// any.
func (n dnsProvider) resolve(ctx context.Context) (got records, err error) {
	names, servers, err := n.readResolver()
	if err != nil {
		return records{}, err
	}
	for _, full := range names {
		q := query{n, servers, full}
		if n.Type == "SRV" {
			got, err = q.services(ctx)
		} else {
			got, err = q.addresses(ctx)
		}
		if err != nil || len(got.found) > 0 {
			return got, err
		}
	}
	return got, nil
}

// readResolver returns the names to query, and the servers.
func (n dnsProvider) readResolver() (names, servers []string, err error) {
	conf, err := dns.ClientConfigFromFile(n.conf)
	for _, server := range n.Servers {
		servers = append(servers, server.String())
	}
	if err != nil && len(servers) == 0 {
		return nil, nil, fmt.Errorf("read which name servers to ask: %w", err)
	}
	if err != nil {
		return []string{dns.Fqdn(n.Name)}, servers, nil
	}
	if len(servers) == 0 {
		for _, server := range conf.Servers {
			if addr, err := netip.ParseAddr(server); err == nil {
				servers = append(servers, netip.AddrPortFrom(addr, 53).String())
			}
		}
	}
	if len(servers) == 0 {
		return nil, nil, fmt.Errorf("%w in %s: add one there, or write `servers`", errNoServers, n.conf)
	}
	return conf.NameList(n.Name), servers, nil
}

// query is a name to query, and the servers.
type query struct {
	dnsProvider
	servers []string
	full    string
}

// addresses queries the addresses of the name. Each backend is named by its address.
func (q query) addresses(ctx context.Context) (records, error) {
	addrs, got, err := q.hosts(ctx, q.full)
	for _, addr := range addrs {
		got.found = append(got.found, Found{Backend: lb.Backend{Name: backendName(addr.String()), Address: addr,
			Weight: 1}})
	}
	return got, err
}

// hosts queries the addresses of a host.
func (q query) hosts(ctx context.Context, host string) (addrs []netip.Addr, got records, err error) {
	got.ttl = maxTTL
	for _, kind := range q.types {
		answer, err := q.queryAny(ctx, host, kind)
		if err != nil {
			return nil, records{}, err
		}
		some, ttl := addressesOf(answer, host, kind)
		if len(some) == 0 {
			ttl, got.emptyReason = negativeTTL(answer), isAbsent(answer, host, kind)
		}
		addrs, got.ttl = append(addrs, some...), min(got.ttl, ttl)
	}
	slices.SortFunc(addrs, netip.Addr.Compare)
	return slices.Compact(addrs), got, nil
}

// services queries SRV records (RFC 2782), and the addresses of their targets. A target without an address, or two
// targets with the same one, may mean that the zone has changed between two queries. Then the records are queried
// again, until two answers are equal.
func (q query) services(ctx context.Context) (got records, err error) {
	var list []*dns.SRV
	for range maxReadings {
		answer, err := q.queryAny(ctx, q.full, dns.TypeSRV)
		if err != nil {
			return records{}, err
		}
		now, ttl := servicesOf(answer, q.full)
		if len(now) == 0 {
			return records{ttl: negativeTTL(answer), emptyReason: isAbsent(answer, q.full, dns.TypeSRV)}, nil
		}
		same := slices.EqualFunc(now, list, func(a, b *dns.SRV) bool { return dns.IsDuplicate(a, b) })
		if same && !shareEndpoint(got.found) {
			break
		}
		list = now
		before, whole := got.found, false
		if got, whole, err = q.targets(ctx, list, ttl); err != nil || whole && !shareEndpoint(got.found) {
			return got, err
		}
		if same && slices.EqualFunc(before, got.found, sameFound) {
			break
		}
	}
	return got, nil
}

// shareEndpoint reports whether two backends have the same address and port.
func shareEndpoint(found []Found) bool {
	taken := map[netip.AddrPort]bool{}
	for _, f := range found {
		at := netip.AddrPortFrom(f.Address, f.Port)
		if taken[at] {
			return true
		}
		taken[at] = true
	}
	return false
}

// sameFound reports whether two answers have the same backend under a name.
func sameFound(a, b Found) bool {
	return a.Name == b.Name && a.Address == b.Address && a.Port == b.Port
}

// targets queries the addresses of SRV records' targets; whole reports whether each queried target has one.
func (q query) targets(ctx context.Context, list []*dns.SRV, ttl time.Duration) (got records, whole bool, err error) {
	got, whole = records{ttl: ttl}, true
	most := int(lb.Discovery{DNS: q.DNSOrigin}.LimitsOf(lb.FromDNS).Max)
	known := map[string][]netip.Addr{}
	for i, record := range list {
		if i > most { // the caller drops the surplus, and reports that
			break
		}
		target := strings.ToLower(record.Target)
		addrs, queried := known[target]
		if !queried {
			var of records
			if addrs, of, err = q.hosts(ctx, target); err != nil {
				return records{}, false, err
			}
			known[target], got.ttl = addrs, min(got.ttl, max(of.ttl, minTTL))
			whole = whole && len(addrs) > 0
		}
		for _, addr := range addrs {
			got.found = append(got.found,
				Found{Target: record.Target, Backend: lb.Backend{Address: addr, Port: record.Port,
					Weight: max(record.Weight, 1), Backup: record.Priority > list[0].Priority}})
		}
	}
	if len(got.found) == 0 {
		got.emptyReason = fmt.Sprintf("no target of %s has an address", q.full)
	}
	nameTargets(got.found)
	return got, whole, nil
}

// nameTargets names backends of SRV records by their targets, with the address if a target has several addresses or
// ports.
func nameTargets(found []Found) {
	count := map[string]int{}
	for _, f := range found {
		count[f.Target]++
	}
	for i := range found {
		f, text := &found[i], strings.TrimSuffix(found[i].Target, ".")
		if f.Target == "" {
			continue
		}
		if count[f.Target] > 1 {
			text += "-" + netip.AddrPortFrom(f.Address, f.Port).String()
		}
		f.Name = backendName(strings.NewReplacer("[", "", "]", "").Replace(text))
	}
}

// queryAny queries the servers one after the other, until one answers.
func (q query) queryAny(ctx context.Context, full string, kind uint16) (*dns.Msg, error) {
	var failed error
	for _, server := range q.servers {
		answer, err := q.queryServer(ctx, server, full, kind)
		if err == nil {
			return answer, nil
		}
		failed = fmt.Errorf("%s %s of %s: %w", full, dns.TypeToString[kind], server, err)
		if ctx.Err() != nil {
			break
		}
	}
	return nil, failed
}

// queryServer queries a server over UDP, and over TCP if the answer was truncated.
func (q query) queryServer(ctx context.Context, server, full string, kind uint16) (*dns.Msg, error) {
	ask := new(dns.Msg).SetQuestion(dns.Fqdn(full), kind).SetEdns0(dnsPayload, false)
	exchange := q.exchange
	if exchange == nil {
		exchange = exchangeOverNetwork
	}
	answer, err := exchange(ctx, "udp", server, ask)
	if err == nil && answer.Truncated {
		answer, err = exchange(ctx, "tcp", server, ask)
	}
	switch {
	case err != nil:
		return nil, withoutAddresses(err)
	case len(answer.Question) != 1 || !strings.EqualFold(answer.Question[0].Name, ask.Question[0].Name) ||
		answer.Question[0].Qtype != kind:
		return nil, errors.New("the server answers another question")
	case answer.Rcode != dns.RcodeSuccess && answer.Rcode != dns.RcodeNameError:
		return nil, fmt.Errorf("the server says %s",
			cmp.Or(dns.RcodeToString[answer.Rcode], fmt.Sprint("rcode ", answer.Rcode)))
	case answer.Truncated:
		return nil, errors.New("the answer is cut off over TCP, too")
	}
	return answer, nil
}

// withoutAddresses removes the addresses from the text of an error of a connection: the port of ours is another one
// each time, and the same trouble must have the same text, by which it is reported once.
func withoutAddresses(err error) error {
	if of := (*net.OpError)(nil); errors.As(err, &of) {
		return fmt.Errorf("%s: %w", of.Op, of.Err)
	}
	return err
}

func exchangeOverNetwork(ctx context.Context, network, server string, ask *dns.Msg) (*dns.Msg, error) {
	client := dns.Client{Net: network, Timeout: dnsTimeout, UDPSize: dnsPayload}
	answer, _, err := client.ExchangeContext(ctx, ask, server)
	return answer, err
}

// addressesOf returns the addresses that an answer has for a host, through its aliases, and their TTL.
func addressesOf(answer *dns.Msg, host string, kind uint16) (addrs []netip.Addr, ttl time.Duration) {
	owner, ttl := resolveAlias(answer, host)
	for _, record := range answer.Answer {
		var addr netip.Addr
		switch r := record.(type) {
		case *dns.A:
			addr, _ = netip.AddrFromSlice(r.A)
		case *dns.AAAA:
			addr, _ = netip.AddrFromSlice(r.AAAA)
		}
		head := record.Header()
		if addr = addr.Unmap(); addr.IsValid() && head.Rrtype == kind && addr.Is4() == (kind == dns.TypeA) &&
			strings.EqualFold(head.Name, owner) {
			addrs, ttl = append(addrs, addr), min(ttl, seconds(head.Ttl))
		}
	}
	return addrs, ttl
}

// servicesOf returns the SRV records of an answer in the order of their priority, and their TTL. A target of "." means
// that there is no such service.
func servicesOf(answer *dns.Msg, full string) (list []*dns.SRV, ttl time.Duration) {
	owner, ttl := resolveAlias(answer, full)
	for _, record := range answer.Answer {
		if r, is := record.(*dns.SRV); is && r.Target != "." && r.Port != 0 && strings.EqualFold(r.Hdr.Name, owner) {
			list, ttl = append(list, r), min(ttl, seconds(r.Hdr.Ttl))
		}
	}
	slices.SortStableFunc(list, func(a, b *dns.SRV) int {
		return cmp.Or(cmp.Compare(a.Priority, b.Priority), cmp.Compare(a.Target, b.Target), cmp.Compare(a.Port, b.Port))
	})
	return list, ttl
}

// resolveAlias returns the canonical name of a name in an answer, and its TTL.
func resolveAlias(answer *dns.Msg, full string) (owner string, ttl time.Duration) {
	owner, ttl = dns.Fqdn(full), maxTTL
	for range maxAliases {
		i := slices.IndexFunc(answer.Answer, func(record dns.RR) bool {
			r, is := record.(*dns.CNAME)
			return is && strings.EqualFold(r.Hdr.Name, owner)
		})
		if i < 0 {
			break
		}
		r := answer.Answer[i].(*dns.CNAME)
		owner, ttl = r.Target, min(ttl, seconds(r.Hdr.Ttl))
	}
	return owner, ttl
}

// negativeTTL returns the TTL of a negative answer (RFC 2308 section 5).
func negativeTTL(answer *dns.Msg) time.Duration {
	for _, record := range answer.Ns {
		if soa, is := record.(*dns.SOA); is {
			return min(seconds(soa.Hdr.Ttl), seconds(soa.Minttl), maxNegativeTTL)
		}
	}
	return minTTL
}

func isAbsent(answer *dns.Msg, full string, kind uint16) string {
	if answer.Rcode == dns.RcodeNameError {
		return fmt.Sprintf("%s does not exist (NXDOMAIN)", full)
	}
	return fmt.Sprintf("%s has no record of type %s", full, dns.TypeToString[kind])
}

func seconds(n uint32) time.Duration { return time.Duration(n) * time.Second }
