// SPDX-License-Identifier: Apache-2.0

// Package pools allocates the addresses of Services: a function of the pools, of the Services' requests, and of the
// addresses in their status, where the cluster itself stores them. It does no I/O.
package pools

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/jeoul/jeoul/internal/text/keytable"
	"github.com/jeoul/jeoul/internal/text/yamlfile"
)

// Range is the addresses from First to Last, both included, of one family.
type Range struct {
	First, Last netip.Addr
	// Network is the prefix that the range was written as; invalid if it was written as FIRST-LAST.
	Network netip.Prefix
}

// Contains reports whether an address is in the range.
func (r Range) Contains(addr netip.Addr) bool {
	return addr.BitLen() == r.First.BitLen() && r.First.Compare(addr) <= 0 && addr.Compare(r.Last) <= 0
}

// String returns the range as it was written.
func (r Range) String() string {
	switch {
	case r.Network.IsValid():
		return r.Network.String()
	case r.First == r.Last:
		return r.First.String()
	}
	return r.First.String() + "-" + r.Last.String()
}

// isAutomatic reports whether an address may be allocated without a request for it: the first and the last one of an
// IPv4 network, and the anycast address of an IPv6 network's routers (RFC 4291 section 2.6.1), are left out, since the
// range may be a whole subnet.
func (r Range) isAutomatic(addr netip.Addr) bool {
	reserved := r.Network.IsValid() && addr.BitLen()-r.Network.Bits() > 1
	return !reserved || addr != r.First && (!addr.Is4() || addr != r.Last)
}

// Pool is addresses that Services may have.
type Pool struct {
	Name   string
	Ranges []Range
	// ExplicitOnly: only Services that name the pool, or an address of it, get one.
	ExplicitOnly bool
	// Namespaces are the namespaces whose Services may have an address of the pool; empty: all.
	Namespaces []string
}

// Contains reports whether an address is in the pool.
func (p Pool) Contains(addr netip.Addr) bool {
	return slices.ContainsFunc(p.Ranges, func(r Range) bool { return r.Contains(addr) })
}

// allowsNamespace reports whether Services of a namespace may have addresses of the pool.
func (p Pool) allowsNamespace(namespace string) bool {
	return len(p.Namespaces) == 0 || slices.Contains(p.Namespaces, namespace)
}

// Bounds of a file of pools.
const (
	maxFile       = 1 << 20
	maxPools      = 1024
	maxRanges     = 1024
	maxNamespaces = 4096
)

// file is a file of pools as a whole.
type file struct{ pools []Pool }

var fileKind = yamlfile.Kind{Noun: "a file of address pools", Needs: "pools", MaxBytes: maxFile}

var fileKeys = keytable.Table[file]{
	{Name: "pools", Required: true,
		Value: keytable.Mappings(func(f *file) *[]Pool { return &f.pools }, poolKeys,
			keytable.Length{Max: maxPools, Empty: "add at least one pool", TooMany: "that there can be; join some"})},
}

var poolKeys = keytable.Table[Pool]{
	{Name: "name", Required: true, Value: keytable.Optional(func(p *Pool) *string { return &p.Name }, dnsLabel, "")},
	{Name: "addresses", Required: true,
		Value: keytable.Items(func(p *Pool) *[]Range { return &p.Ranges }, addressRange, "range",
			keytable.Length{Max: maxRanges, Empty: "name a network or a range",
				TooMany: "that a pool can have; join neighbouring ones"})},
	{Name: "asked_only", Value: keytable.Field(func(p *Pool) *bool { return &p.ExplicitOnly }, keytable.Bool, false)},
	{Name: "namespaces",
		Value: keytable.Items(func(p *Pool) *[]string { return &p.Namespaces }, dnsLabel, "namespace",
			keytable.Length{Max: maxNamespaces, Empty: "name a namespace, or remove the line",
				TooMany: "that a pool can have",
				Absent:  "all namespaces"})},
}

// dnsLabel is a name of a namespace of Kubernetes.
var dnsLabel = keytable.Scalar[string]{Parse: func(text string) (string, string) {
	bad := func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' }
	if text == "" || len(text) > 63 || strings.ContainsFunc(text, bad) || strings.Trim(text, "-") != text {
		return "", yamlfile.Quote(text) +
			" is not 1 to 63 lower-case letters, digits and hyphens, with no hyphen at an end"
	}
	return text, ""
}}

// addressRange is a network, a range FIRST-LAST, or an address.
var addressRange = keytable.Scalar[Range]{Parse: func(text string) (Range, string) {
	r, problem := parseRange(strings.TrimSpace(text))
	if problem != "" {
		return Range{}, yamlfile.Quote(text) + " " + problem
	}
	for _, end := range []netip.Addr{r.First, r.Last} {
		if !end.IsGlobalUnicast() {
			return Range{}, fmt.Sprintf("%s has %s, which is no unicast address that a router would send on",
				yamlfile.Quote(text), end)
		}
	}
	return r, ""
}}

// parseRange reads a range and returns the fault of it; "" if there is none.
func parseRange(text string) (Range, string) {
	if prefix, err := netip.ParsePrefix(text); err == nil {
		if prefix != prefix.Masked() {
			return Range{}, "has bits beyond its length; write " + prefix.Masked().String()
		}
		return Range{prefix.Addr(), lastOf(prefix), prefix}, ""
	}
	from, to, isRange := strings.Cut(text, "-")
	if !isRange {
		to = from
	}
	first, err := netip.ParseAddr(strings.TrimSpace(from))
	last, lastErr := netip.ParseAddr(strings.TrimSpace(to))
	switch {
	case err != nil || lastErr != nil || first.Zone() != "" || last.Zone() != "" || first.Is4In6() || last.Is4In6():
		return Range{},
			"is no network, range or address; write one such as 192.0.2.0/28, 192.0.2.10-192.0.2.20 or 2001:db8::/120"
	case first.BitLen() != last.BitLen():
		return Range{}, "begins and ends in different families"
	case last.Less(first):
		return Range{}, fmt.Sprintf("ends before it begins; write %s-%s", last, first)
	}
	return Range{First: first, Last: last}, ""
}

// lastOf returns the last address of a prefix.
func lastOf(p netip.Prefix) netip.Addr {
	bytes := p.Addr().AsSlice()
	for bit := p.Bits(); bit < 8*len(bytes); bit++ {
		bytes[bit/8] |= 0x80 >> (bit % 8)
	}
	last, _ := netip.AddrFromSlice(bytes)
	return last
}

// Parse reads a file of pools, or the text in a ConfigMap; name stands for it in messages. The error is a
// yamlfile.Problems with everything that is wrong.
func Parse(name string, text []byte) ([]Pool, error) {
	f, read := yamlfile.NewFile(name), file{}
	if root := f.Document(text, fileKind); root != nil {
		keytable.Read(fileKeys, f, root, "", &read)
	}
	checkPools(f, read.pools)
	if err := f.Problems.Err(); err != nil {
		return nil, err
	}
	return read.pools, nil
}

// checkPools refuses duplicate names and addresses.
func checkPools(f *yamlfile.File, pools []Pool) {
	for i, p := range pools {
		at := yamlfile.Element("pools", i)
		for j := range i {
			if pools[j].Name == p.Name && p.Name != "" {
				f.Fail(yamlfile.Join(at, "name"), "%s is the name of %s, too; give each pool its own", p.Name,
					yamlfile.Element("pools", j))
				break
			}
		}
		for k, r := range p.Ranges {
			if other, in := findOverlap(pools, i, k); in != "" {
				f.Fail(yamlfile.Element(yamlfile.Join(at, "addresses"), k),
					"%s overlaps %s of %s; an address is in one pool", r, other, in)
			}
		}
	}
}

// findOverlap returns an earlier range that overlaps range k of pool i, and its place.
func findOverlap(pools []Pool, i, k int) (Range, string) {
	own := pools[i].Ranges[k]
	for j := range i + 1 {
		for l, r := range pools[j].Ranges {
			if j == i && l >= k {
				break
			}
			if r.Contains(own.First) || own.Contains(r.First) {
				return r, yamlfile.Element("pools", j)
			}
		}
	}
	return Range{}, ""
}
