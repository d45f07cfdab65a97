// SPDX-License-Identifier: Apache-2.0

package router

import (
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jeoul/jeoul/internal/test/testenv"
)

// plan returns a router's plan with two balancers.
func plan(dir string, bfd time.Duration) Plan {
	return Plan{Dir: dir, ID: netip.MustParseAddr("198.18.5.1"), AS: 64513, BalancersAS: 64512,
		HoldTime: 3 * time.Second, BFD: bfd, Balancers: []Session{
			{Local: netip.MustParseAddr("198.19.1.1"), Balancer: netip.MustParseAddr("198.19.1.2")},
			{Local: netip.MustParseAddr("198.19.2.1"), Balancer: netip.MustParseAddr("198.19.2.2")}}}
}

// TestDaemons: BIRD is one process, and FRR two, or three with BFD. Each session and each setting is in the correct
// files.
func TestDaemons(t *testing.T) {
	for _, tc := range []struct {
		kind  Kind
		bfd   time.Duration
		names []string
		says  map[string][]string
	}{
		{BIRD, 0, []string{"bird"}, map[string][]string{"bird": {"neighbor 198.19.2.2 as 64512", "hold time 3;"}}},
		{BIRD, 50 * time.Millisecond, []string{"bird"},
			map[string][]string{"bird": {"interval 50 ms; multiplier 3", "bfd on;"}}},
		{FRR, 0, []string{"zebra", "bgpd"},
			map[string][]string{"bgpd": {"neighbor 198.19.2.2 peer-group balancers", "timers 1 3",
				"update-source 198.19.1.1"}}},
		{FRR, 50 * time.Millisecond, []string{"zebra", "bfdd", "bgpd"},
			map[string][]string{"bfdd": {"receive-interval 50", "transmit-interval 50"},
				"bgpd": {"bfd profile balancers"}}},
	} {
		daemons, err := tc.kind.Daemons(plan("/run/router", tc.bfd))
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, d := range daemons {
			name := filepath.Base(d.Path)
			names = append(names, name)
			if !slices.Contains(d.Args, d.File) {
				t.Errorf("%s is not told its file %s: %q", name, d.File, d.Args)
			}
			for _, words := range tc.says[name] {
				if !strings.Contains(d.Text, words) {
					t.Errorf("%s with BFD each %v: its file does not say %q:\n%s", name, tc.bfd, words, d.Text)
				}
			}
			if hasBFD := strings.Contains(d.Text, "bfd"); hasBFD && tc.bfd == 0 {
				t.Errorf("%s has BFD, and shall have none:\n%s", name, d.Text)
			}
		}
		if !slices.Equal(names, tc.names) {
			t.Errorf("%s with BFD each %v is %q, and shall be %q", tc.kind, tc.bfd, names, tc.names)
		}
	}
}

// TestFilesAreUnderstood: the programs themselves, if they are installed, accept their files.
func TestFilesAreUnderstood(t *testing.T) {
	for _, kind := range Kinds {
		for _, bfd := range []time.Duration{0, 50 * time.Millisecond} {
			t.Run(string(kind)+" "+bfd.String(), func(t *testing.T) {
				if reason := kind.SkipReason(); reason != "" {
					t.Skip(reason)
				}
				daemons, err := kind.Daemons(plan(t.TempDir(), bfd))
				if err != nil {
					t.Fatal(err)
				}
				// FRR's bfdd binds its ports even then.
				ns := testenv.Namespace(t)
				for _, d := range daemons {
					if err := os.WriteFile(d.File, []byte(d.Text), 0o600); err != nil {
						t.Fatal(err)
					}
					args := append(slices.Clone(d.Args), "--dryrun")
					if kind == BIRD {
						args = []string{"-p", "-c", d.File}
					}
					var out []byte
					err := ns.Do(func() (err error) {
						out, err = exec.CommandContext(t.Context(), d.Path, args...).CombinedOutput()
						return err
					})
					// FRR ignores such a line
					if err != nil || strings.Contains(string(out), "on config line") {
						t.Errorf("%s: %v: %s\n%s", d.Path, err, out, d.Text)
					}
				}
			})
		}
	}
}
