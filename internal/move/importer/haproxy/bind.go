// SPDX-License-Identifier: Apache-2.0

package haproxy

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/jeoul/jeoul/internal/move/importer/draft"
)

// bindFlags are the parameters of bind without a value (section 5.1 of HAProxy's configuration manual). All others have
// one.
var bindFlags = []string{"accept-proxy", "defer-accept", "tfo", "transparent", "v4v6", "v6only", "ssl", "allow-0rtt",
	"force-sslv3", "force-tlsv10", "force-tlsv11",
	"force-tlsv12", "force-tlsv13", "generate-certificates", "no-alpn", "no-ca-names", "no-sslv3", "no-strict-sni",
	"no-tls-tickets", "no-tlsv10", "no-tlsv11", "no-tlsv12",
	"no-tlsv13", "prefer-client-ciphers", "strict-sni", "quic-force-retry"}

// ofTLS are the parameters of bind for TLS. Without ssl they have no effect.
var ofTLS = []string{"allow-0rtt", "alpn", "ca-file", "ca-ignore-err", "ca-sign-file", "ca-sign-pass", "ca-verify-file",
	"ciphers", "ciphersuites", "crl-file", "crt", "crt-ignore-err",
	"crt-list", "curves", "ecdhe", "force-sslv3", "force-tlsv10", "force-tlsv11", "force-tlsv12", "force-tlsv13",
	"generate-certificates", "no-alpn", "no-ca-names", "no-sslv3",
	"no-tls-tickets", "no-tlsv10", "no-tlsv11", "no-tlsv12", "no-tlsv13", "npn", "prefer-client-ciphers", "ssl-max-ver",
	"ssl-min-ver", "strict-sni", "no-strict-sni", "tls-ticket-keys",
	"verify", "client-sigalgs", "sigalgs"}

// parameter is a parameter of bind.
type parameter struct{ name, value string }

// bindParameters returns the parameters of a bind line.
func bindParameters(l line) (list []parameter) {
	for i := 2; i < len(l.words); i++ {
		p := parameter{name: l.words[i]}
		if !slices.Contains(bindFlags, p.name) && i+1 < len(l.words) {
			i++
			p.value = l.words[i]
		}
		list = append(list, p)
	}
	return list
}

// has reports whether a bind line has a parameter.
func has(l line, name string) bool {
	return slices.ContainsFunc(bindParameters(l), func(p parameter) bool { return p.name == name })
}

// bindWhyNot returns the reason why clients that connect to the bind line cannot be served, or "". It remarks on
// differences.
func (r *reader) bindWhyNot(s *section, l line) string {
	var left []string
	encrypted := has(l, "ssl")
	for _, p := range bindParameters(l) {
		if why := r.forbids(s, p, encrypted); why != "" {
			return why
		}
		why, needless := Keywords.Why(inBind, p.name)
		switch {
		case (p.name == "v4v6" || p.name == "v6only") && !strings.HasPrefix(l.words[1], ":::") &&
			!strings.Contains(l.words[1], "[::]:"):
			r.Needless(l.at, "%s: says how every address of IPv6 is taken, and this is another one", p.name)
		case slices.Contains([]string{"ssl", "accept-proxy", "v4v6", "v6only", "maxconn"}, p.name): // read elsewhere
		case p.name == "interface":
			r.Arrives(p.value)
			r.Approximate(l.at, "interface: packets are taken on the interfaces of the configuration, for all services")
		case needless:
			r.Needless(l.at, "%s: %s", p.name, why)
		case slices.Contains(ofTLS, p.name) && !encrypted:
			r.Needless(l.at, "%s: is of TLS, which the address is without", p.name)
		case p.name == "verify", p.name == "alpn", p.name == "no-alpn", p.name == "ssl-min-ver" && p.value == "TLSv1.2":
		case p.name == "mss" && !s.proxied:
		case p.name == "crt-list":
			r.Left(l.at, "a list of certificates; %s", nameCertificates)
		case p.name == "crt" && !absolute(based(r.crtBase, p.value)):
			r.Left(l.at, "%q is no file by its absolute path; %s", p.value, nameCertificates)
		case p.name == "crt":
		default:
			left = append(left, p.name)
		}
	}
	if len(left) > 0 {
		r.Left(l.at, "of this bind's parameters no key is like: %s", strings.Join(left, ", "))
	}
	if encrypted && len(r.certificates(l)) == 0 {
		return "ends TLS without a certificate that could be carried over; " + nameCertificates
	}
	return ""
}

// forbids returns the reason why a parameter makes it impossible to serve the address, or "".
func (r *reader) forbids(s *section, p parameter, encrypted bool) string {
	switch {
	case p.name == "accept-netscaler-cip":
		return "clients come by a protocol that Jeoul does not take; it takes PROXY (accept_proxy)"
	case p.name == "namespace":
		return "is of another network namespace: run Jeoul there"
	case p.name == "proto" && p.value != "h1":
		return "clients speak " + p.value + " alone, which Jeoul's proxy offers over TLS beside HTTP/1.1; " + keep
	case encrypted && !s.proxied:
		return "TLS ends in HAProxy: " + needsProxy + "; or let the backends end it"
	case p.name == "accept-proxy" && !s.proxied:
		return "clients come by the PROXY protocol: " + needsProxy
	case p.name == "verify" && p.value != "none" && encrypted:
		return "clients are asked for certificates, which Jeoul does not do; " + keep
	case (p.name == "strict-sni" || p.name == "ca-verify-file") && encrypted:
		return "refuses clients by what they say in TLS (" + p.name + "), which Jeoul does not do; " + keep
	}
	return ""
}

// places reads the addresses and ports of a bind line's services. The wildcard address of IPv6 gives one for each
// family.
func (r *reader) places(l line, text string) (list []netip.AddrPort, err error) {
	six := strings.HasPrefix(text, "ipv6@") || strings.HasPrefix(text, "[::]") || strings.HasPrefix(text, ":::")
	text = strings.TrimPrefix(strings.TrimPrefix(text, "ipv4@"), "ipv6@")
	if strings.ContainsAny(text, "@/") {
		return nil, fmt.Errorf("%s is no address of IP", text)
	}
	host, port := draft.SplitPort(text)
	if i := strings.LastIndexByte(text, ':'); i >= 0 && port == "" { // :::80
		host, port = text[:i], text[i+1:]
	}
	if strings.Contains(port, "-") {
		return nil, fmt.Errorf("a range of ports; a service has one port: write one for each")
	}
	number, err := draft.Port("tcp", port)
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
	families := []bool{!six}
	if six && !has(l, "v6only") {
		families = []bool{true, false} // as net.ipv6.bindv6only=0 has it
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
		r.Left(l.at, "listens on every address of IPv4 and IPv6, and --vip names one family: clients of the other are not served")
	}
	return list, nil
}

// mostConnections returns the maxconn of a bind line, 0 for none.
func (l line) mostConnections() (n uint64) {
	for _, p := range bindParameters(l) {
		if p.name == "maxconn" {
			n, _, _ = draft.Number(p.value, mostConnections)
		}
	}
	return n
}

// segments returns the mss of a bind line, 0 for none.
func (r *reader) segments(l line) uint16 {
	for _, p := range bindParameters(l) {
		if p.name != "mss" {
			continue
		}
		n, err := strconv.ParseUint(p.value, 10, 16)
		if err != nil || n < 536 || n > 65495 {
			r.Left(l.at, "mss %s is no number of bytes that Jeoul lowers an MSS to", p.value)
			return 0
		}
		return uint16(n)
	}
	return 0
}
