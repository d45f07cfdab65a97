// SPDX-License-Identifier: Apache-2.0

package tune

import (
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/tools/tune/faketree"
	"github.com/jeoul/jeoul/internal/tools/tune/nic"
)

var update = flag.Bool("update", false, "write the golden files anew")

// large is the machine of the documented plan: 64 cores, two nodes, a card with 32 queues.
var large = faketree.Spec{CPUs: 64, Nodes: 2, MemoryBytes: 256 << 30, Card: "eth0", Queues: 32, RSSEntries: 512}

// small is a machine that is quick to make.
var small = faketree.Spec{CPUs: 8, Nodes: 1, MemoryBytes: 16 << 30, Card: "eth0", Queues: 4, RSSEntries: 128}

// testServices are the services of the hosts.
var testServices = []lb.ServiceKey{
	{VIP: netip.MustParseAddr("192.0.2.1"), Port: 80, Protocol: lb.TCP},
	{VIP: netip.MustParseAddr("2001:db8::1"), Port: 53, Protocol: lb.UDP},
}

func fake(t *testing.T, spec faketree.Spec) string {
	t.Helper()
	root := t.TempDir()
	if err := faketree.Build(root, spec); err != nil {
		t.Fatal(err)
	}
	return root
}

func open(t *testing.T, opt Options) *Tuner {
	t.Helper()
	tuner, err := New(opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tuner.Close(); err != nil {
			t.Error(err)
		}
	})
	return tuner
}

func snapshot(t *testing.T, root string) map[string]string {
	t.Helper()
	files, err := faketree.Snapshot(root)
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got; -update writes it):\n%s", name, diff)
	}
}

// describe returns the findings as text, with each setting on a line.
func describe(r *Report) string {
	var b strings.Builder
	for _, f := range r.Findings {
		fmt.Fprintf(&b, "%s: %s", f.Item, f.State)
		if f.Note != "" {
			fmt.Fprintf(&b, " (%s)", f.Note)
		}
		b.WriteString("\n")
		for _, s := range f.Settings {
			if s.State != Good && s.State != Absent {
				fmt.Fprintf(&b, "  %s: %s -> %s, %s\n", s.Key, s.Now, s.Wanted, s.State)
			}
		}
	}
	return b.String()
}

// TestLargeMachine applies each role to a machine with 64 cores, and checks the plan, the rings, the queues and every
// affinity. Then it undoes everything.
func TestLargeMachine(t *testing.T) {
	for _, tc := range []struct {
		role Role
		mode string
	}{{RoleBalancer, "l2dsr"}, {RoleBalancer, ModeProxy}, {RoleWeb, "l2dsr"}, {RoleClient, ""}} {
		name := strings.TrimSuffix(string(tc.role)+"-"+tc.mode, "-")
		t.Run(name, func(t *testing.T) {
			root := fake(t, large)
			before := snapshot(t, root)
			tuner := open(t, Options{Role: tc.role, Mode: tc.mode, Interfaces: []string{"eth0"}, Services: testServices,
				Root: root})
			r, err := tuner.Apply(ApplyOptions{Persist: true, EditGrub: true, Executable: "/usr/local/bin/jeoul"})
			if err != nil {
				t.Fatal(err)
			}
			golden(t, name+".golden", strings.Join(r.Plans, "\n")+"\n"+describe(r)+ours(t, root))
			again := open(t, Options{Role: tc.role, Mode: tc.mode, Interfaces: []string{"eth0"}, Services: testServices,
				Root: root}).Check()
			if left := again.With(Differs); len(left) > 0 {
				t.Errorf("differs after apply:\n%s", describe(&Report{Findings: left}))
			}
			if events, err := Revert(RevertOptions{Root: root}); err != nil || len(events) == 0 {
				t.Fatal(events, err)
			}
			if diff := cmp.Diff(before, snapshot(t, root)); diff != "" {
				t.Errorf("not as before (-before +after):\n%s", diff)
			}
			if _, err := Revert(RevertOptions{Root: root}); !errors.Is(err, ErrNothing) {
				t.Errorf("a second time: %v", err)
			}
		})
	}
}

// ours returns the text of the files that tune wrote.
func ours(t *testing.T, root string) string {
	t.Helper()
	var b strings.Builder
	for _, path := range ownFiles {
		text, exists, err := readEntry(filepath.Join(root, path))
		if err != nil {
			t.Fatal(err)
		}
		if exists {
			fmt.Fprintf(&b, "\n%s:\n%s\n", path, strings.TrimSpace(text))
		}
	}
	return b.String()
}

func TestRefusals(t *testing.T) {
	root := fake(t, small)
	for _, tc := range []struct {
		name string
		opt  Options
		is   error
		text string
	}{
		{"role", Options{Role: "router"}, ErrRole, "router"},
		{"mode", Options{Role: RoleWeb, Mode: "l4"}, ErrMode, "l2dsr"},
		{"gone", Options{Role: RoleWeb, Interfaces: []string{"eth7"}}, ErrInterface, "there are eth0"},
		{"name", Options{Role: RoleWeb, Interfaces: []string{"../eth0"}}, ErrInterface, "no interface's name"},
	} {
		tc.opt.Root = root
		if _, err := New(tc.opt); !errors.Is(err, tc.is) || !strings.Contains(err.Error(), tc.text) {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
}

func TestInterfaceThatIsDown(t *testing.T) {
	spec := small
	spec.Down = true
	root := fake(t, spec)
	before := snapshot(t, root)
	tuner := open(t, Options{Role: RoleWeb, Interfaces: []string{"eth0"}, Root: root})
	if r := tuner.Check(); !strings.Contains(strings.Join(r.Notes, "\n"), "eth0 is down") {
		t.Errorf("not reported: %q", r.Notes)
	}
	if _, err := tuner.Apply(ApplyOptions{}); !errors.Is(err, ErrInterface) {
		t.Error(err)
	}
	if diff := cmp.Diff(before, snapshot(t, root)); diff != "" {
		t.Errorf("something was changed:\n%s", diff)
	}
}

func TestVirtualInterface(t *testing.T) {
	spec := small
	spec.Queues = 0
	root := fake(t, spec)
	r := open(t, Options{Role: RoleBalancer, Interfaces: []string{"eth0"}, Root: root}).Check()
	if !strings.Contains(strings.Join(r.Notes, "\n"), "eth0 is virtual") {
		t.Errorf("not reported: %q", r.Notes)
	}
	for _, f := range r.Findings {
		if strings.HasPrefix(f.Setting, "ethtool") && f.State != Absent {
			t.Errorf("%s is %s", f.Item, f.State)
		}
	}
}

// TestRefusedByTheDriver: if the driver rejects one of an item's settings, the item is left unchanged, and the other
// items are applied.
func TestRefusedByTheDriver(t *testing.T) {
	root := fake(t, small)
	profile, err := Parse("test.yaml", []byte(`
items:
  - {id: ring, setting: ethtool ring.rx, roles: [web], value: 100000, why: w, source: s}
  - {id: swap, setting: sysctl vm.swappiness, roles: [web], value: 5, why: w, source: s}
`))
	if err != nil {
		t.Fatal(err)
	}
	before := snapshot(t, root)
	tuner := open(t, Options{Role: RoleWeb, Interfaces: []string{"eth0"}, Root: root, Profile: profile})
	r, err := tuner.Apply(ApplyOptions{})
	if !errors.Is(err, ErrLeft) {
		t.Fatal(err)
	}
	if r.Findings[0].State != Failed || !strings.Contains(r.Findings[0].Note, "at most 8160") ||
		r.Findings[1].State != Changed {
		t.Errorf("%s", describe(r))
	}
	if value, err := (nic.Files{Dir: filepath.Join(root, "ethtool")}).Get("eth0", nic.RingRX); err != nil ||
		value != "512" {
		t.Errorf("the ring is %s, %v", value, err)
	}
	if _, err := Revert(RevertOptions{Root: root}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, snapshot(t, root)); diff != "" {
		t.Errorf("not as before:\n%s", diff)
	}
}

func TestCommands(t *testing.T) {
	root := fake(t, small)
	before := snapshot(t, root)
	tuner := open(t, Options{Role: RoleWeb, Interfaces: []string{"eth0"}, Services: testServices, Root: root})
	golden(t, "commands.golden", strings.Join(tuner.Commands(ApplyOptions{Persist: true}), "\n")+"\n")
	if diff := cmp.Diff(before, snapshot(t, root)); diff != "" {
		t.Errorf("a dry run changed something:\n%s", diff)
	}
}
