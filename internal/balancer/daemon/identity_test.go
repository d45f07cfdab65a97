// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jeoul/jeoul/internal/host/hostnet"
	"github.com/jeoul/jeoul/internal/test/testenv"
)

// TestIdentity takes another first interface, which leads to the files of the old one then,
// and gives it back; one of another balancer it does not take.
func TestIdentity(t *testing.T) {
	testenv.Root(t)
	dir := t.TempDir()
	testenv.In(t, testenv.Namespace(t), func() error {
		own, err := instanceOn("eth0", dir)
		if err != nil {
			return err
		}
		is := func(link, journal string) {
			t.Helper()
			if i, err := instanceOn(link, dir); err != nil || i.journal != journal ||
				!strings.HasPrefix(i.name, journal+"-") {
				t.Errorf("the balancer on %s is %+v (%v), want %s", link, i, err, journal)
			}
		}
		n := identity{own}
		if err := errors.Join(n.Register("eth0"), n.Register("eth1"), n.Register("eth2"), n.Unregister("eth0")); err != nil {
			return err
		}
		is("eth0", "run-eth0")
		is("eth1", "run-eth0")
		is("eth2", "run-eth0")
		if err := (identity{own.named("run-eth5")}).Register("eth1"); err == nil ||
			!strings.Contains(err.Error(), "was started on eth0") {
			t.Errorf("another balancer's interface: %v", err)
		}
		if err := own.named("run-eth1").recheck("eth1"); !errors.Is(err, hostnet.ErrBusy) {
			t.Errorf("an interface that was taken meanwhile: %v", err)
		}
		other, err := hostnet.Open(dir, "run-eth3")
		if err != nil {
			return err
		}
		if err := n.Register("eth3"); !errors.Is(err, hostnet.ErrBusy) {
			t.Errorf("an interface that a balancer runs on: %v", err)
		}
		is("eth3", "run-eth3")
		gone := own
		gone.cookie++
		if err := errors.Join(other.Close(), gone.alias("eth4").write("run-eth0"), n.Unregister("eth1"),
			own.removeAliases("eth2")); err != nil {
			return err
		}
		is("eth1", "run-eth1")
		is("eth2", "run-eth0")
		is("eth4", "run-eth4") // it was of a namespace that is gone
		if err := errors.Join(own.removeAliases(""), os.Remove(own.alias("eth4").path)); err != nil {
			return err
		}
		left, err := os.ReadDir(dir)
		if len(left) > 0 {
			t.Errorf("there is left: %v", left)
		}
		return err
	})
}

// TestAliasIsRefused: an alias that cannot be written is an error, and nothing of it is left.
func TestAliasIsRefused(t *testing.T) {
	dir := t.TempDir()
	at := alias{filepath.Join(dir, "run-eth1-1"+aliasSuffix), 1}
	// Another program's directory is in its place.
	if err := os.MkdirAll(filepath.Join(at.path, "below"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := at.write("run-eth0"); err == nil ||
		!strings.Contains(err.Error(), "noting which balancer has the interface") {
		t.Errorf("it says %v", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("there is left %v: %v", left, err)
	}
}
