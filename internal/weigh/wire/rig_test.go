// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"net/netip"
	"testing"

	"github.com/safchain/ethtool"

	"github.com/jeoul/jeoul/internal/host/namespace"
	"github.com/jeoul/jeoul/internal/test/testenv"
)

var vip = netip.MustParseAddrPort("198.18.0.100:80")

// rig holds the parts of a test's tester.
type rig struct{ spec Spec }

// newRig joins a number of client ports with as many server ports, like NewPlain.
func newRig(t testing.TB, ports int) *rig {
	t.Helper()
	testenv.Root(t)
	p, err := NewPlain(ports)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	p.Spec.Seed = 7
	return &rig{spec: p.Spec}
}

func sources(i int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{198, 19, byte(i + 1), 0}), 24)
}

// withoutOffload makes a kernel complete the checksums of packets that it sends by an interface.
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

// run runs a load that must end without an error.
func run(t testing.TB, tester *Tester, load Load) []Step {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testenv.WaitLimit)
	defer cancel()
	steps, err := tester.Run(ctx, load, func(s Step) { t.Logf("%+v", s) })
	if err != nil {
		t.Fatal(err)
	}
	return steps
}

// runAtRate runs a load at a rate. If this process was stopped, all packets that were due meanwhile are sent at once,
// which is more than queues have room for: then the load is run again.
func runAtRate(t testing.TB, tester *Tester, load Load) Step {
	t.Helper()
	for tries := 1; ; tries++ {
		s := run(t, tester, load)[0]
		lost := s.Failed != (Failed{}) || s.LostToServers+s.LostToClients > 0 || s.FloodSent != s.FloodArrived
		if s.KeptUp || !lost || tries == 5 {
			return s
		}
		t.Logf("the tester has not kept up, and packets were lost: once more")
	}
}
