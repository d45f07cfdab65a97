// SPDX-License-Identifier: Apache-2.0

package hostnet_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/safchain/ethtool"
	"github.com/vishvananda/netlink"

	"github.com/jeoul/jeoul/internal/host/hostnet"
	"github.com/jeoul/jeoul/internal/test/testenv"
)

// Features that are on for a veth and can be switched off.
const parse, stagParse = "rx-vlan-hw-parse", "rx-vlan-stag-hw-parse"

// featuresOf returns which of the two features are on.
func featuresOf(t *testing.T, name string) (on []string) {
	t.Helper()
	tool, err := ethtool.NewEthtool()
	if err != nil {
		t.Fatal(err)
	}
	defer tool.Close()
	all, err := tool.Features(name)
	if err != nil {
		t.Fatal(err)
	}
	for _, feature := range []string{parse, stagParse} {
		if all[feature] {
			on = append(on, feature)
		}
	}
	return on
}

func setFeature(t *testing.T, name, feature string, on bool) {
	t.Helper()
	tool, err := ethtool.NewEthtool()
	if err != nil {
		t.Fatal(err)
	}
	defer tool.Close()
	if err := tool.Change(name, map[string]bool{feature: on}); err != nil {
		t.Fatal(err)
	}
}

// inVeth runs a test in a namespace with a veth.
func inVeth(t *testing.T, f func(dir string) error) {
	testenv.Root(t)
	ns, peer := testenv.Namespace(t), testenv.Namespace(t)
	testenv.Veth(t, testenv.End{Namespace: ns, Name: "veth0"}, testenv.End{Namespace: peer, Name: "veth1"})
	testenv.In(t, ns, func() error { return f(t.TempDir()) })
}

func TestSwitchOff(t *testing.T) {
	inVeth(t, func(dir string) error {
		c, err := hostnet.Open(dir, "test")
		if err != nil {
			return err
		}
		defer c.Close()
		if err := c.DisableFeature("veth9", parse, ""); !errors.Is(err, hostnet.ErrNoLink) {
			t.Errorf("a link that is not there: %v", err)
		}
		if err := c.DisableFeature("veth0", "no-such-feature", ""); err == nil {
			t.Error("a feature that does not exist was switched off")
		}
		setFeature(t, "veth0", stagParse, false)
		if err := errors.Join(c.DisableFeature("veth0", parse, "for a test"),
			c.DisableFeature("veth0", stagParse, "for a test")); err != nil {
			return err
		}
		if on := featuresOf(t, "veth0"); len(on) > 0 {
			t.Errorf("%v are on", on)
		}
		var notes []string
		for _, event := range c.Events() {
			notes = append(notes, event.String())
		}
		if want := []string{"feature " + parse + " of veth0: on → off (for a test)", "feature " + stagParse +
			" of veth0: off, unchanged (is off already)"}; !slices.Equal(notes, want) {
			t.Errorf("it says %q, want %q", notes, want)
		}
		link, err := netlink.LinkByName("veth0")
		if err != nil {
			return err
		}
		if err := errors.Join(netlink.LinkSetName(link, "renamed"), c.Close()); err != nil {
			return err
		}
		if on := featuresOf(t, "renamed"); !slices.Equal(on, []string{parse}) {
			t.Errorf("afterwards %v are on, want what was on before", on)
		}
		return nil
	})
}

// TestSwitchBack: RestoreFeature switches a feature on again at once, and changes nothing else.
func TestSwitchBack(t *testing.T) {
	inVeth(t, func(dir string) error {
		c, err := hostnet.Open(dir, "test")
		if err != nil {
			return err
		}
		defer c.Close()
		setFeature(t, "veth0", stagParse, false)
		if err := errors.Join(c.DisableFeature("veth0", parse, ""), c.DisableFeature("veth0", stagParse, "")); err != nil {
			return err
		}
		c.Events()
		if err := errors.Join(c.RestoreFeature("veth0", stagParse, "why"), c.RestoreFeature("veth9", parse, "why"),
			c.RestoreFeature("veth0", parse, "why")); err != nil {
			return err
		}
		if on := featuresOf(t, "veth0"); !slices.Equal(on, []string{parse}) {
			t.Errorf("%v are on, want what was on before", on)
		}
		if events := c.Events(); len(events) != 1 || events[0].String() != "feature "+parse+
			" of veth0: off → on (why)" {
			t.Errorf("it says %v", events)
		}
		// The journal no longer has the feature.
		setFeature(t, "veth0", parse, false)
		if err := errors.Join(c.RestoreFeature("veth0", parse, "why"), c.Close()); err != nil {
			return err
		}
		if on := featuresOf(t, "veth0"); len(on) > 0 {
			t.Errorf("%v are on, though another switched them off", on)
		}
		return nil
	})
}

// TestSwitchedOffByOneThatDied: the next start switches the feature on again, unless its link was deleted.
func TestSwitchedOffByOneThatDied(t *testing.T) {
	inVeth(t, func(dir string) error {
		c, err := hostnet.Open(dir, "test")
		if err != nil {
			return err
		}
		defer c.Close()
		if err := c.DisableFeature("veth0", parse, ""); err != nil {
			return err
		}
		journals, err := filepath.Glob(filepath.Join(dir, "*.journal"))
		if err != nil || len(journals) != 1 {
			t.Fatalf("journals %v (%v)", journals, err)
		}
		journal, err := os.ReadFile(journals[0])
		if err != nil {
			return err
		}
		if err := c.Close(); err != nil {
			return err
		}
		recover := func() error {
			if err := os.WriteFile(journals[0], journal, 0o600); err != nil {
				return err
			}
			next, err := hostnet.Open(dir, "test")
			if err != nil {
				return err
			}
			return next.Close()
		}
		setFeature(t, "veth0", parse, false)
		if err := recover(); err != nil {
			return err
		}
		if on := featuresOf(t, "veth0"); !slices.Contains(on, parse) {
			t.Errorf("after the next start %v are on", on)
		}
		link, err := netlink.LinkByName("veth0")
		if err != nil {
			return err
		}
		return errors.Join(netlink.LinkDel(link), recover())
	})
}
