// SPDX-License-Identifier: Apache-2.0

package hosttable

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/host/durable"
	"github.com/jeoul/jeoul/internal/host/netdump"
	"github.com/jeoul/jeoul/internal/test/testdisk"
	"github.com/jeoul/jeoul/internal/test/testenv"
)

var (
	vip4, vip6 = netip.MustParseAddr("198.19.0.10"), netip.MustParseAddr("2001:2::10")
	both       = []netip.Addr{vip4, vip6}
)

// inTable are the routes of a table, each as its address and metric, those of other protocols with that.
func inTable(t *testing.T, table int) (all []string) {
	t.Helper()
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		routes, err := netdump.Consistent(func() ([]netlink.Route, error) {
			return netlink.RouteListFiltered(family, &netlink.Route{Table: table}, netlink.RT_FILTER_TABLE)
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range routes {
			text := fmt.Sprintf("%s %d", r.Dst.IP, r.Priority)
			if r.Protocol != lb.RouteProtocol || r.Type != unix.RTN_BLACKHOLE {
				text += " foreign"
			}
			all = append(all, text)
		}
	}
	return all
}

func expect(t *testing.T, when string, table int, want ...string) {
	t.Helper()
	if got := inTable(t, table); !slices.Equal(got, want) {
		t.Errorf("%s, the table %d has %q, want %q", when, table, got, want)
	}
}

// at are addresses with one metric.
func at(metric int, addresses ...netip.Addr) map[netip.Addr]int {
	of := map[netip.Addr]int{}
	for _, address := range addresses {
		of[address] = metric
	}
	return of
}

// inNamespace runs a test in a namespace of its own, with a file for the journal.
func inNamespace(t *testing.T, f func(journal string) error) {
	t.Helper()
	testenv.Root(t)
	ns := testenv.Namespace(t)
	testenv.In(t, ns, func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		return errors.Join(netlink.LinkSetUp(lo), f(filepath.Join(t.TempDir(), "routes")))
	})
}

// TestPut: VIPs are in the table with the metric of the balancer's state, over the end of a process; nothing else in it
// is touched.
func TestPut(t *testing.T) {
	inNamespace(t, func(journal string) error {
		foreign := route{179, netip.MustParseAddr("198.19.0.66"), 100}.netlinkRoute()
		foreign.Protocol = 75
		if err := netlink.RouteAdd(foreign); err != nil {
			return err
		}
		table, err := Open(journal, nil)
		if err != nil {
			return err
		}
		if err := table.SetAddresses(179, at(lb.RouteMetric, both...)); err != nil {
			return err
		}
		expect(t, "at first", 179, "198.19.0.10 100", "198.19.0.66 100 foreign", "2001:2::10 100")
		if err := table.SetAddresses(179, at(lb.DrainedRouteMetric, both...)); err != nil {
			return err
		}
		expect(t, "drained", 179, "198.19.0.10 200", "198.19.0.66 100 foreign", "2001:2::10 200")

		// The process ends without a word, and another one goes on.
		if table, err = Open(journal, nil); err != nil {
			return err
		}
		if there := table.Addresses(); !slices.Equal(there, both) {
			t.Errorf("a process before has left %v, want %v", there, both)
		}
		if err := table.SetAddresses(254, at(lb.RouteMetric, both[0])); err != nil {
			return err
		}
		expect(t, "in another table", 179, "198.19.0.66 100 foreign")
		expect(t, "in another table", 254, "198.19.0.10 100")
		if err := Clean(journal); err != nil {
			return err
		}
		expect(t, "cleaned", 254)
		expect(t, "cleaned", 179, "198.19.0.66 100 foreign")
		if _, err := os.Stat(journal); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the journal without routes is there: %v", err)
		}
		return nil
	})
}

// TestTaken: where a VIP's route of another program is, that stays, is named, and goes into no journal.
func TestTaken(t *testing.T) {
	inNamespace(t, func(journal string) error {
		foreign := route{179, vip4, lb.RouteMetric}.netlinkRoute()
		foreign.Protocol = 75
		if err := netlink.RouteAdd(foreign); err != nil {
			return err
		}
		table, err := Open(journal, nil)
		if err != nil {
			return err
		}
		if err := table.SetAddresses(179, at(lb.RouteMetric, both...)); !errors.Is(err, ErrRouteExists) ||
			!strings.Contains(err.Error(), "198.19.0.10/32 in the table 179 with the metric 100") {
			t.Errorf("the error is %v", err)
		}
		expect(t, "beside it", 179, "198.19.0.10 100 foreign", "2001:2::10 100")
		if err := Clean(journal); err != nil {
			return err
		}
		expect(t, "cleaned", 179, "198.19.0.10 100 foreign")
		return nil
	})
}

// TestRestore: a route that another program removes is put back, and so is one of a process that was killed after it
// had journalled the route and before it made it.
func TestRestore(t *testing.T) {
	inNamespace(t, func(journal string) error {
		table, err := Open(journal, nil)
		if err != nil {
			return err
		}
		if err := table.SetAddresses(179, at(lb.RouteMetric, both...)); err != nil {
			return err
		}
		if again, err := table.Restore(); len(again) > 0 || err != nil {
			t.Errorf("of what is there, %v is put back: %v", again, err)
		}
		if err := netlink.RouteDel(route{179, vip4, lb.RouteMetric}.netlinkRoute()); err != nil {
			return err
		}
		if again, err := table.Restore(); len(again) != 1 || again[0] != vip4 || err != nil {
			t.Errorf("%v is put back: %v", again, err)
		}
		expect(t, "put back", 179, "198.19.0.10 100", "2001:2::10 100")
		return nil
	})
}

// TestConsulted: nothing is put where packets would be lost; what is there can be drained and withdrawn.
func TestConsulted(t *testing.T) {
	inNamespace(t, func(journal string) error {
		rule := netlink.NewRule()
		rule.Table, rule.Priority, rule.Family = 179, 1000, netlink.FAMILY_V4
		if err := netlink.RuleAdd(rule); err != nil {
			return err
		}
		table, err := Open(journal, nil)
		if err != nil {
			return err
		}
		if err := table.SetAddresses(179, at(lb.RouteMetric, both...)); !errors.Is(err, ErrTableInUse) ||
			!strings.Contains(err.Error(), "1000") {
			t.Errorf("the error is %v", err)
		}
		expect(t, "refused", 179)
		if err := netlink.RuleDel(rule); err != nil {
			return err
		}
		if err := table.SetAddresses(179, at(lb.RouteMetric, both...)); err != nil {
			return err
		}
		if err := netlink.RuleAdd(rule); err != nil {
			return err
		}
		if err := table.SetAddresses(179, at(lb.DrainedRouteMetric, vip6)); !errors.Is(err, ErrTableInUse) {
			t.Errorf("with a later rule, the error is %v", err)
		}
		expect(t, "one withdrawn, one drained", 179, "2001:2::10 200")
		return nil
	})
}

// TestTableInUse: of the addresses that a table in use is to have, those with a route keep one, in the table that it is
// in.
func TestTableInUse(t *testing.T) {
	gone := netip.MustParseAddr("198.19.0.11")
	table := &Table{installed: map[route]bool{{179, vip4, lb.RouteMetric}: true, {179, gone, lb.RouteMetric}: true}}
	got := table.withoutAdditions(at(lb.DrainedRouteMetric, both...))
	if want := map[route]bool{{179, vip4, lb.DrainedRouteMetric}: true}; !maps.Equal(got, want) {
		t.Errorf("the routes are %v, want %v", got, want)
	}
}

// TestUnwritableJournal: VIPs are announced and withdrawn though the journal cannot be written, by each fault of a
// file system, and the next process takes over the routes that are there.
func TestUnwritableJournal(t *testing.T) {
	for _, fault := range testdisk.Faults {
		inNamespace(t, func(journal string) error {
			disk := &testdisk.FileSystem{}
			files := durable.New(durable.Options{FileSystem: disk})
			table, err := Open(journal, files)
			if err != nil {
				return err
			}
			if err := table.SetAddresses(179, at(lb.RouteMetric, vip4)); err != nil {
				return err
			}
			disk.Fail(&fault, 0)
			if err := table.SetAddresses(179, at(lb.DrainedRouteMetric, both...)); err != nil {
				return fmt.Errorf("%s: %w", fault.Name, err)
			}
			expect(t, fault.Name, 179, "198.19.0.10 200", "2001:2::10 200")
			if len(files.Faults()) != 1 {
				t.Errorf("%s: faults are %v", fault.Name, files.Faults())
			}
			// The process is killed, and another one goes on.
			if table, err = Open(journal, files); err != nil {
				return err
			}
			if err := table.SetAddresses(179, at(lb.DrainedRouteMetric, both...)); err != nil {
				return fmt.Errorf("%s, another process: %w", fault.Name, err)
			}
			disk.Fail(nil, 0)
			if _, err := table.Restore(); err != nil || len(files.Faults()) != 0 {
				t.Errorf("%s is over: %v, faults %v", fault.Name, err, files.Faults())
			}
			err = table.RemoveAll()
			// Routes that a process had journalled last, and then withdrew, leave no trace.
			expect(t, fault.Name+", cleared", 179)
			if _, there := os.Stat(journal); !errors.Is(there, fs.ErrNotExist) {
				t.Errorf("%s, cleared: %v", fault.Name, there)
			}
			return err
		})
	}
}

func TestJournal(t *testing.T) {
	path := filepath.Join(t.TempDir(), "routes")
	for text, says := range map[string]string{
		"{":                                   "unexpected EOF",
		`{"format": "jeoul-network-changes"}`: "it is \"jeoul-network-changes\"",
		`{"format": "jeoul-vip-routes", "version": 1, "routes": [{"table": 255, "vip": "192.0.2.1", "metric": 1}]}`: "routes[0] is none of a VIP",
		`{"format": "jeoul-vip-routes", "version": 1, "surprise": 1}`:                                               "surprise",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(path, nil); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: the error is %v, and should say %q", text, err, says)
		}
	}
	// Routes of another boot are gone with it.
	if err := os.WriteFile(path,
		[]byte(`{"format": "jeoul-vip-routes", "version": 1, "boot": "x", "routes": [{"table": 9, "vip": "192.0.2.1", "metric": 1}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if table, err := Open(path, nil); err != nil || len(table.Addresses()) != 0 {
		t.Errorf("of another boot, %+v, %v", table, err)
	}
}

func FuzzJournal(f *testing.F) {
	f.Add([]byte(
		`{"format": "jeoul-vip-routes", "version": 1, "boot": "b", "namespace": 1, "cookie": 2, "routes": [{"table": 179, "vip": "2001:2::10", "metric": 100}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := decode(data)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) {
				t.Errorf("%q: %v", data, err)
			}
			return
		}
		for _, r := range c.Routes {
			if k := r.netlinkRoute(); len(k.Dst.IP) != r.VIP.BitLen()/8 {
				t.Errorf("%+v becomes %s", r, k)
			}
		}
	})
}
