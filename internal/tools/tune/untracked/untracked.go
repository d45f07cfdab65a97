// SPDX-License-Identifier: Apache-2.0

// Package untracked excludes a service's packets in both directions from the kernel's connection tracking. It uses
// rules in its own nftables table, in the calling thread's network namespace.
package untracked

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// Table is the name of the table with the rules, of the family inet.
const Table = "jeoul_untracked"

// The chains: for packets that arrive for a service, and for its answers from this host.
const (
	chainIn  = "in"
	chainOut = "out"
)

// ErrUnsupported means that this kernel has no nftables.
var ErrUnsupported = errors.New("this kernel has no nftables")

// ParseService reads "tcp/192.0.2.1:80" or "udp/[2001:db8::1]:53".
func ParseService(text string) (lb.ServiceKey, error) {
	protocol, address, ok := strings.Cut(text, "/")
	key := lb.ServiceKey{Protocol: lb.TCP}
	at, err := netip.ParseAddrPort(address)
	switch {
	case protocol == lb.UDP.String():
		key.Protocol = lb.UDP
	case protocol != lb.TCP.String():
		ok = false
	}
	if !ok || err != nil || at.Port() == 0 || at.Addr().Zone() != "" || at.Addr().Is4In6() {
		return key, fmt.Errorf(
			"%q is no service: write tcp or udp, a slash, address and port, such as tcp/192.0.2.1:80 or udp/[2001:db8::1]:53", text)
	}
	key.VIP, key.Port = at.Addr(), at.Port()
	return key, nil
}

// Name returns the service in the format that ParseService reads.
func Name(s lb.ServiceKey) string {
	return s.Protocol.String() + "/" + netip.AddrPortFrom(s.VIP, s.Port).String()
}

// Bypassed reports whether the rules for a service exist. Errors: ErrUnsupported; fs.ErrPermission without the right to
// read them.
func Bypassed(s lb.ServiceKey) (bool, error) {
	c, err := nftables.New()
	if err != nil {
		return false, explain(err)
	}
	all, err := ours(c)
	return len(rulesOf(all, s)) == len(chains()), err
}

// Set adds or removes the rules for a service. With the last rules it removes the table. It is one transaction of the
// kernel.
func Set(s lb.ServiceKey, bypass bool) error {
	c, err := nftables.New()
	if err != nil {
		return explain(err)
	}
	all, err := ours(c)
	if err != nil {
		return err
	}
	old := rulesOf(all, s)
	for _, rule := range old {
		if err := c.DelRule(rule); err != nil {
			return explain(err)
		}
	}
	switch {
	case bypass:
		add(c, s)
	case len(old) > 0 && len(old) == len(all):
		c.DelTable(table())
	}
	return explain(c.Flush())
}

func table() *nftables.Table {
	return &nftables.Table{Name: Table, Family: nftables.TableFamilyINet}
}

// chains returns the chains, whose hooks come before connection tracking.
func chains() []*nftables.Chain {
	of := func(name string, hook *nftables.ChainHook) *nftables.Chain {
		return &nftables.Chain{Name: name, Table: table(), Type: nftables.ChainTypeFilter, Hooknum: hook,
			Priority: nftables.ChainPriorityRaw}
	}
	return []*nftables.Chain{of(chainIn, nftables.ChainHookPrerouting), of(chainOut, nftables.ChainHookOutput)}
}

// add adds a service's rules.
func add(c *nftables.Conn, s lb.ServiceKey) {
	c.AddTable(table())
	for _, chain := range chains() {
		c.AddChain(chain)
		c.AddRule(&nftables.Rule{
			Table: table(), Chain: chain, Exprs: match(s, chain.Name == chainIn),
			UserData: userdata.AppendString(nil, userdata.TypeComment, Name(s)),
		})
	}
}

// match returns expressions that match packets to a service, or from it, and leave them untracked. The offsets are
// those of addresses in the headers of IPv4 and IPv6, and of ports in the headers of TCP and UDP.
func match(s lb.ServiceKey, to bool) []expr.Any {
	family, length, address, port := byte(unix.NFPROTO_IPV4), uint32(4), uint32(12), uint32(0)
	if s.VIP.Is6() {
		family, length, address = unix.NFPROTO_IPV6, 16, 8
	}
	if to {
		address, port = address+length, 2
	}
	is := func(data []byte) *expr.Cmp { return &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: data} }
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1}, is([]byte{family}),
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: address, Len: length},
		is(s.VIP.AsSlice()),
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1}, is([]byte{byte(s.Protocol)}),
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: port, Len: 2},
		is(binaryutil.BigEndian.PutUint16(s.Port)),
		&expr.Notrack{},
	}
}

// ours lists the rules in the table. There are none without the table.
func ours(c *nftables.Conn) ([]*nftables.Rule, error) {
	tables, err := c.ListTablesOfFamily(nftables.TableFamilyINet)
	if err != nil {
		return nil, explain(err)
	}
	var all []*nftables.Rule
	for _, t := range tables {
		if t.Name != Table {
			continue
		}
		for _, chain := range chains() {
			rules, err := c.GetRules(t, chain)
			if err != nil && !errors.Is(err, unix.ENOENT) {
				return nil, explain(err)
			}
			all = append(all, rules...)
		}
	}
	return all, nil
}

// rulesOf returns the rules of a service.
func rulesOf(all []*nftables.Rule, s lb.ServiceKey) []*nftables.Rule {
	return slices.DeleteFunc(slices.Clone(all), func(rule *nftables.Rule) bool {
		comment, ok := userdata.GetString(rule.UserData, userdata.TypeComment)
		return !ok || comment != Name(s)
	})
}

// explain converts the kernel's error to one that names the cause.
func explain(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EPROTONOSUPPORT), errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EAFNOSUPPORT):
		return fmt.Errorf("%w (%v)", ErrUnsupported, err)
	}
	return fmt.Errorf("nftables, table inet %s: %w", Table, err)
}
