// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"net/netip"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/text/keytable"
	"github.com/jeoul/jeoul/internal/text/yamlfile"
)

const (
	// longestStale is a vacation's length: a person has noticed by then.
	longestStale = 30 * 24 * time.Hour
	// maxNameServers is far more than the C library asks (MAXNS, 3).
	maxNameServers = 8
	maxDomainName  = 254
)

// unlessEmpty is a key whose value stays zero where what holds anyway is written, or nothing is.
func unlessEmpty[T any, V comparable](at func(*T) *V, scalar keytable.Scalar[V], usual V) keytable.Value[T] {
	return keytable.Computed(func(t *T) (V, bool) { return *at(t), *at(t) != *new(V) },
		func(t *T, value V) {
			if *at(t) = value; value == usual {
				*at(t) = *new(V)
			}
		}, scalar, *new(V), fmt.Sprintf("`%s`", scalar.Show(usual)))
}

// domainName is a name of the DNS.
var domainName = text("a name of the DNS",
	`^([A-Za-z0-9_]([-A-Za-z0-9_]{0,61}[A-Za-z0-9_])?\.)*[A-Za-z0-9_]([-A-Za-z0-9_]{0,61}[A-Za-z0-9_])?\.?$`,
	"is not a name of the DNS; write one such as web.example.com", maxDomainName)

// nameServer is the address of a name server, with its port where that is another than 53.
var nameServer = keytable.Scalar[netip.AddrPort]{
	Parse: func(text string) (netip.AddrPort, string) {
		at, err := netip.ParseAddrPort(text)
		if err != nil {
			if addr, addrErr := netip.ParseAddr(text); addrErr == nil {
				at, err = netip.AddrPortFrom(addr, 53), nil
			}
		}
		if err != nil || at.Port() == 0 || at.Addr().Is4In6() || at.Addr().IsUnspecified() || at.Addr().IsMulticast() {
			return netip.AddrPort{}, yamlfile.Quote(text) +
				" is not the address of a name server; write one such as 192.0.2.53, 192.0.2.53:5353 or [2001:db8::53]:53"
		}
		return at, ""
	},
	Show:   netip.AddrPort.String,
	Kind:   "an IP address, or an IP address and a port as ADDRESS:PORT",
	Schema: map[string]any{"type": "string", "pattern": `^(\[[0-9A-Fa-f.:%a-z]+\]:[0-9]{1,5}|[0-9A-Fa-f.:]+)$`},
}

// checkDiscovery refuses a discovery that can find nothing, and a port beside those of SRV records.
func (p *parser) checkDiscovery(i int) {
	d, field := p.cfg.Services[i].Discovery, ServiceField(i, "discover")
	if !p.Written(field) || d.On() || p.anyBadBelow(field) {
		if at := field + ".dns.port"; d.DNS.Type == "SRV" && d.DNS.Port != 0 {
			p.Fail(at, "SRV records say the port of each backend; remove the line")
		}
		return
	}
	p.Fail(field, "names no place to look in; add file, dns or docker")
}

// anyBadBelow says whether a problem was reported for a mapping, or a key of one of its mappings.
func (p *parser) anyBadBelow(field string) bool {
	for _, origin := range []string{"", ".file", ".file.path", ".dns", ".dns.name", ".docker", ".docker.socket"} {
		if p.Bad(field + origin) {
			return true
		}
	}
	return false
}

// backendList is a file of backends that another program writes.
type backendList struct{ backends []lb.Backend }

var backendListKind = yamlfile.Kind{Noun: "a list of backends", Needs: "backends", MaxBytes: 8 << 20}

// ReadBackends reads a list of backends, with the keys that backends have in a configuration; name
// stands for the file in messages. Backends without a port have 0. The error is a yamlfile.Problems
// with everything that is wrong.
func ReadBackends(name string, data []byte, most int) ([]lb.Backend, error) {
	keys := keytable.Table[backendList]{{Name: "backends", Required: true,
		Value: keytable.Mappings(func(l *backendList) *[]lb.Backend { return &l.backends }, backendKeys,
			keytable.Length{Max: most,
				TooMany: "of the key `most` of this service's discovery; raise it, or write fewer"})}}
	file, list := yamlfile.NewFile(name), backendList{}
	root := file.Document(data, backendListKind)
	if root == nil {
		return nil, file.Problems.Err()
	}
	if noBackends(root) {
		return nil, nil
	}
	keys.Read(file, root, "", &list)
	checkList(file, list.backends)
	return list.backends, file.Problems.Err()
}

// checkList looks at what only several values of a list can tell.
func checkList(f *yamlfile.File, list []lb.Backend) {
	names, places := map[string]int{}, map[netip.AddrPort]int{}
	for j, b := range list {
		at := yamlfile.Element("backends", j)
		if first, again := claim(names, b.Name, j); again && b.Name != "" {
			f.Fail(at+".name", "%s is already the name of %s; give each backend its own", b.Name,
				f.Place(yamlfile.Element("backends", first)))
		}
		place := netip.AddrPortFrom(b.Address, b.Port)
		if first, again := claim(places, place, j); again && b.Address.IsValid() {
			f.Fail(at+".address", "%s is already %s; write each backend once", b.Address,
				f.Place(yamlfile.Element("backends", first)))
		}
		if b.Lower > b.Upper && !f.Bad(at+".upper") {
			f.Fail(at+".lower", "%d is above upper, %d; write a number up to that", b.Lower, b.Upper)
		}
	}
}

// noBackends says whether a document is just the list of none: a program says so, and no file that is
// half written does.
func noBackends(root *yaml.Node) bool {
	return root.Kind == yaml.MappingNode && len(root.Content) == 2 && root.Content[0].Value == "backends" &&
		root.Content[1].Kind == yaml.SequenceNode && len(root.Content[1].Content) == 0
}
