// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/safchain/ethtool"

	"github.com/jeoul/jeoul/internal/namespace"
	"github.com/jeoul/jeoul/internal/testenv"
)

var vip = netip.MustParseAddrPort("198.18.0.100:80")

// rig has client ports, each joined to a server port by a wire.
type rig struct {
	spec             Spec
	clients, servers []*namespace.Namespace
}

// newRig joins so many client ports with as many server ports. Client port n has the
// addresses 198.19.n.0/24, server port n the address 198.18.2.n.
func newRig(t testing.TB, ports int) *rig {
	t.Helper()
	r := &rig{spec: Spec{Target: vip, Reply: ReplyDirect, CPU: -1, Seed: 7}}
	for i := range ports {
		a, b := testenv.Namespace(t), testenv.Namespace(t)
		name := func(side string) string { return fmt.Sprintf("%s%d", side, i+1) }
		_, to := testenv.Veth(t, testenv.End{Namespace: a, Name: name("client")}, testenv.End{Namespace: b, Name: name("server")})
		withoutOffload(t, a, name("client"))
		withoutOffload(t, b, name("server"))
		r.clients, r.servers = append(r.clients, a), append(r.servers, b)
		r.spec.Clients = append(r.spec.Clients, Port{Name: name("client"), Interface: name("client"), Do: a.Do, Sources: sources(i)})
		r.spec.Servers = append(r.spec.Servers, Port{Name: name("server"), Interface: name("server"), Do: b.Do,
			Address: netip.AddrFrom4([4]byte{198, 18, 2, byte(i + 1)})})
		r.spec.Next = append(r.spec.Next, to)
	}
	return r
}

func sources(i int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{198, 19, byte(i + 1), 0}), 24)
}

// withoutOffload makes a kernel finish the checksums of what it sends by an interface.
func withoutOffload(t testing.TB, ns *namespace.Namespace, name string) {
	t.Helper()
	testenv.In(t, ns, func() error {
		e, err := ethtool.NewEthtool()
		if err != nil {
			return err
		}
		defer e.Close()
		return e.Change(name, map[string]bool{"tx-checksum-ip-generic": false})
	})
}

// open makes a tester that the test closes.
func (r *rig) open(t testing.TB) *Tester {
	t.Helper()
	tester, err := New(t.Context(), r.spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tester.Close(); err != nil {
			t.Error(err)
		}
	})
	return tester
}

// run runs a load that must end within a minute without an error.
func run(t testing.TB, tester *Tester, load Load) []Step {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	steps, err := tester.Run(ctx, load, func(s Step) { t.Logf("%+v", s) })
	if err != nil {
		t.Fatal(err)
	}
	return steps
}
