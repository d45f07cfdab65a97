// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/safchain/ethtool"
)

// TestFixedTagOffload: a feature that cannot be switched off is not tried.
func TestFixedTagOffload(t *testing.T) {
	shown := &Tags{DisableFeature: func(string, string, string) error { return nil }}
	for state, refused := range map[ethtool.FeatureState]bool{
		{Active: true, Available: true}:                     false,
		{Active: true, Available: true, NeverChanged: true}: true,
		{Active: true}: true,
	} {
		if err := shown.disableFeature("eth9", TagOffloads[0], state); (err != nil) != refused || refused &&
			!errors.Is(err, ErrUnsupported) {
			t.Errorf("%+v: %v", state, err)
		}
	}
}

// TestJoinedPort: VLAN tags are left in frames on a port that joins a bond later, too, and a port that cannot do that
// is tried once.
func TestJoinedPort(t *testing.T) {
	ports := []string{"bond0", "eth1"}
	on := map[string]bool{"eth1": true, "eth2": true, "eth3": true}
	var did []string
	tags := NewTags(func(name, feature, _ string) error {
		did = append(did, "off "+name)
		if name == "eth3" {
			return errors.New("its driver leaves it as it is")
		}
		on[name] = false
		return nil
	}, func(name, _, _ string) error {
		did = append(did, "on "+name)
		return nil
	})
	tags.devices = func(Port) ([]string, error) { return ports, nil }
	tags.features = func(name string) (map[string]ethtool.FeatureState, error) {
		return map[string]ethtool.FeatureState{TagOffloads[0]: {Active: on[name], Available: true}}, nil
	}
	expect := func(when string, want ...string) {
		t.Helper()
		if !slices.Equal(did, want) {
			t.Errorf("%s: did %q, want %q", when, did, want)
		}
		did = nil
	}
	again := func(when, wantChanged, wantErr string, want ...string) {
		t.Helper()
		changed, err := tags.RepeatDisabling([]Port{{Name: "bond0"}}, NativeXDP)
		if got := strings.Join(changed, " "); got != wantChanged || (err == nil) != (wantErr == "") ||
			err != nil && !strings.Contains(err.Error(), wantErr) {
			t.Errorf("%s: changed %q (%v), want %q, %q", when, got, err, wantChanged, wantErr)
		}
		expect(when, want...)
	}
	if err := tags.DisableStripping([]Port{{Name: "bond0"}}, NativeXDP); err != nil {
		t.Fatal(err)
	}
	expect("attached", "off eth1")
	again("nothing new", "", "")
	ports = []string{"bond0", "eth1", "eth3", "eth2"}
	again("two have joined", "eth2", "eth3 takes VLAN tags out of frames", "off eth3", "off eth2")
	again("nothing new again", "", "")
	ports = []string{"bond0", "eth1", "eth2"}
	again("one has left", "", "")
	ports = []string{"bond0", "eth1", "eth2", "eth3"}
	again("it has joined again", "", "eth3 takes VLAN tags out of frames", "off eth3")
	if changed, err := tags.RepeatDisabling([]Port{{Name: "eth3"}}, TCX); changed != nil || err != nil {
		t.Errorf("in TC: %v, %v", changed, err)
	}
	if err := tags.RestoreStripping(nil); err != nil {
		t.Error(err)
	}
	expect("restored", "on eth1", "on eth2")
}
