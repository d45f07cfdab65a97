// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"encoding/json"
	"net/netip"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	moby "github.com/moby/ipvs"
	"github.com/vishvananda/netlink"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/host/sysctl"
	"github.com/jeoul/jeoul/internal/test/testenv"
	"github.com/jeoul/jeoul/internal/weigh/bench/probe"
	"github.com/jeoul/jeoul/internal/weigh/bench/subject"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

func TestIPVSThresholds(t *testing.T) {
	for _, tc := range []struct {
		params subject.Params
		want   string
	}{
		{subject.Params{}, ""},
		{subject.Params{paramUpper: 5}, ""},
		{subject.Params{paramUpper: 5, paramLower: 5}, ""},
		{subject.Params{paramUpper: 5, paramLower: 6}, "lower 6: it cannot be more than upper, which is 5"},
		{subject.Params{paramLower: 6}, "lower 6: it cannot be more than upper, which is 0"},
	} {
		if got := (ipvs{ipvsDirect}).SkipReason(tc.params, 1, probe.Limits{}); got != tc.want {
			t.Errorf("%v: %q, want %q", tc.params, got, tc.want)
		}
	}
}

// theTable returns a table with one service of two servers.
func theTable() ipvsTable {
	return ipvsTable{
		Flags: ipvsMethods[ipvsDirect].flags, Upper: 3, Lower: 2, Guarded: true,
		Services: []ipvsService{{
			At: netip.MustParseAddrPort("198.18.0.100:80"), Protocol: lb.TCP,
			Servers: []ipvsServer{
				{"web01", netip.MustParseAddrPort("198.18.2.1:80"), 1},
				{"web02", netip.MustParseAddrPort("198.18.2.2:80"), 1},
			},
		}},
	}
}

// TestIPVSTravels encodes and decodes a table as for a worker on a machine.
func TestIPVSTravels(t *testing.T) {
	want := ipvsChange{theTable(), true}
	text, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var got ipvsChange
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })); diff != "" {
		t.Errorf("(-sent +arrived):\n%s", diff)
	}
}

// onMachine is the environment variable that marks the process as a test's machine, which is alone in its namespaces.
const onMachine = "JEOUL_TEST_IPVS_MACHINE"

// TestIPVSOnAMachine sets services on a machine by its task, as a worker does, and checks that nothing is left when the
// worker ends. The machine is another process of this test, in namespaces of its own.
func TestIPVSOnAMachine(t *testing.T) {
	testenv.Root(t)
	if _, err := (ipvs{ipvsDirect}).Versions(t.Context()); err != nil {
		t.Skip(err)
	}
	if os.Getenv(onMachine) == "" {
		command := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestIPVSOnAMachine$", "-test.v")
		command.Env = append(os.Environ(), onMachine+"=1")
		command.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS}
		if text, err := command.CombinedOutput(); err != nil {
			t.Errorf("on the machine: %v\n%s", err, text)
		}
		return
	}
	link := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "eth0"}, PeerName: "peer"}
	address, err := netlink.ParseAddr("198.18.0.1/16")
	for _, step := range []func() error{
		func() error { return err },
		func() error { return netlink.LinkAdd(link) },
		func() error { return netlink.AddrAdd(link, address) },
		func() error { return netlink.LinkSetUp(link) },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	nothing := ipvsState(t)

	t.Run("taken away", func(t *testing.T) {
		here := hold(t)
		table := theTable()
		setTable(t, here, &table, true, "")
		if state := ipvsState(t); !strings.Contains(state, "C6120064:0050") || strings.Count(state, "Route") != 2 ||
			!strings.HasPrefix(state, "1\n") {
			t.Errorf("the kernel has\n%s", state)
		}
		setTable(t, here, &table, false, "")
		if diff := cmp.Diff(nothing, ipvsState(t)); diff != "" {
			t.Errorf("(-before +after):\n%s", diff)
		}
	})
	t.Run("changed", func(t *testing.T) {
		here := hold(t)
		table := theTable()
		setTable(t, here, &table, true, "")
		wanted := theTable().Services
		wanted[0].Servers = []ipvsServer{{"web02", netip.MustParseAddrPort("198.18.2.2:80"), 0},
			{"web03", netip.MustParseAddrPort("198.18.2.3:80"), 3}}
		if err := table.changeOn(here.Host, wanted); err != nil {
			t.Error(err)
		}
		state := ipvsState(t)
		if strings.Contains(state, "C6120201") || !regexp.MustCompile(`C6120202:0050 +Route +0 `).MatchString(state) ||
			!regexp.MustCompile(`C6120203:0050 +Route +3 `).MatchString(state) {
			t.Errorf("the kernel has\n%s", state)
		}
		if diff := cmp.Diff(wanted[0].Servers, table.Services[0].Servers, cmp.Comparer(func(a, b netip.AddrPort) bool {
			return a == b
		})); diff != "" {
			t.Errorf("(-want +the table):\n%s", diff)
		}
		setTable(t, here, &table, false, "")
		if diff := cmp.Diff(nothing, ipvsState(t)); diff != "" {
			t.Errorf("(-before +after):\n%s", diff)
		}
	})
	t.Run("the run dies", func(t *testing.T) {
		here := hold(t)
		table := theTable()
		setTable(t, here, &table, true, "")
		if err := here.Close(); err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff(nothing, ipvsState(t)); diff != "" {
			t.Errorf("(-before +after):\n%s", diff)
		}
	})
	t.Run("it is somebody else's", func(t *testing.T) {
		here := hold(t)
		table := theTable()
		other := table.Services[0].kernel()
		kernel, err := moby.New("")
		if err != nil {
			t.Fatal(err)
		}
		defer kernel.Close()
		if err := kernel.NewService(other); err != nil {
			t.Fatal(err)
		}
		before := ipvsState(t)
		// The first of two services must be created, and removed again.
		mine := table.Services[0]
		mine.At = netip.MustParseAddrPort("198.18.0.100:81")
		table.Services = []ipvsService{mine, table.Services[0]}
		setTable(t, here, &table, true, "already")
		if err := here.Close(); err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff(before, ipvsState(t)); diff != "" {
			t.Errorf("(-before +after):\n%s", diff)
		}
	})
}

// hold manages the machine until the test ends.
func hold(t *testing.T) *lab.LocalMachine {
	t.Helper()
	here, err := lab.NewLocalMachine("balancer", t.TempDir(), lab.Location{Interface: "eth0"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := here.Close(); err != nil {
			t.Error(err)
		}
	})
	return here
}

// setTable lets the machine's worker run the task. Its error must contain refusal.
func setTable(t *testing.T, here *lab.LocalMachine, table *ipvsTable, on bool, refusal string) {
	t.Helper()
	text, err := json.Marshal(ipvsChange{*table, on})
	if err != nil {
		t.Fatal(err)
	}
	answer, err := lab.Perform(t.Context(), here.Host, "ipvs-services", text)
	if (err == nil) != (refusal == "") || err != nil && !strings.Contains(err.Error(), refusal) {
		t.Fatalf("on %v: %v; want %q", on, err, refusal)
	}
	if err == nil && on {
		if err := json.Unmarshal(answer, &table.PreviousExpire); err != nil {
			t.Fatal(err)
		}
	}
}

// ipvsState returns the kernel's setting, and its table of services.
func ipvsState(t *testing.T) string {
	t.Helper()
	setting, err := sysctl.Read(forgetConnections)
	if err != nil {
		t.Fatal(err)
	}
	services, err := readIPVS()
	if err != nil {
		t.Fatal(err)
	}
	// Linux 7 creates the table of connections, whose size is listed, with the first service.
	return setting + "\n" + regexp.MustCompile(`\(size=\d+\)`).ReplaceAllString(string(services), "")
}
