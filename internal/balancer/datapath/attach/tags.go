// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"errors"
	"fmt"
	"slices"

	"github.com/safchain/ethtool"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/host/netdump"
)

// TagOffloads are the kernel's names for the features by which a device strips the outer VLAN tag (IEEE 802.1Q,
// 802.1ad) from a frame and keeps it in the frame's metadata. XDP does not see it there, and sends the frame on without
// the tag.
var TagOffloads = []string{"rx-vlan-hw-parse", "rx-vlan-stag-hw-parse"}

// disableReason is the reason, for messages, why they are switched off.
const disableReason = "XDP sees VLAN tags only in the frame, and would send tagged frames on without"

// Tags switches off the features by which devices hide VLAN tags from XDP, and notes which are off.
type Tags struct {
	// DisableFeature and RestoreFeature change a feature of an interface, by the kernel's name for it, and say why; nil
	// where nothing is to be changed on the host.
	DisableFeature, RestoreFeature func(name, feature, why string) error
	// Disabled are the features that are switched off.
	Disabled []feature

	// refused are the devices on which RepeatDisabling has failed.
	refused []string
	// devices and features ask the kernel; tests replace them.
	devices  func(Port) ([]string, error)
	features func(name string) (map[string]ethtool.FeatureState, error)
}

// NewTags returns Tags that have switched no feature off. Its arguments are the fields of the same names.
func NewTags(disableFeature, restoreFeature func(name, feature, why string) error) Tags {
	return Tags{DisableFeature: disableFeature, RestoreFeature: restoreFeature,
		devices: devicesOf, features: featuresOf}
}

// DisableStripping makes devices leave VLAN tags in the frame, where programs are attached in XDP. Call it after
// attaching has succeeded, since changing a feature resets some devices.
func (t *Tags) DisableStripping(ports []Port, m Method) error {
	if m.Hook != lb.HookXDP || t.DisableFeature == nil {
		return nil
	}
	for _, p := range ports {
		names, err := t.devices(p)
		if err != nil {
			return err
		}
		for _, name := range names {
			if _, err := t.disableOn(name); err != nil {
				return err
			}
		}
	}
	return nil
}

// RepeatDisabling does the same on devices where the features are on by now, such as a port that has joined a bond, and
// returns their names. A device where that fails is not tried again while it is there, since a change resets some
// devices, and does not prevent it on others.
func (t *Tags) RepeatDisabling(ports []Port, m Method) (changed []string, err error) {
	if m.Hook != lb.HookXDP || t.DisableFeature == nil {
		return nil, nil
	}
	var refused []string
	for _, p := range ports {
		names, failed := t.devices(p)
		if failed != nil {
			continue // the interface was deleted, or is asked for again by the next call
		}
		for _, name := range names {
			if slices.Contains(t.refused, name) {
				refused = append(refused, name)
				continue
			}
			done, failed := t.disableOn(name)
			if failed != nil {
				refused, err = append(refused, name), errors.Join(err, failed)
			} else if done {
				changed = append(changed, name)
			}
		}
	}
	t.refused = refused
	return changed, err
}

// disableOn disables the stripping of tags on one device, and reports whether it was on. It changes no feature that the
// device lacks, or that is off.
func (t *Tags) disableOn(name string) (changed bool, err error) {
	features, err := t.features(name)
	if err != nil {
		return false, fmt.Errorf("asking %s for its features: %v", name, err)
	}
	for _, feature := range TagOffloads {
		if !features[feature].Active {
			continue
		}
		if err := t.disableFeature(name, feature, features[feature]); err != nil {
			return changed, err
		}
		changed = true
	}
	return changed, nil
}

// featuresOf returns the features of a device.
func featuresOf(name string) (map[string]ethtool.FeatureState, error) {
	tool, err := ethtool.NewEthtool()
	if err != nil {
		return nil, err
	}
	defer tool.Close()
	return tool.FeaturesWithState(name)
}

// disableFeature switches a feature off, or returns an error where that is impossible.
func (t *Tags) disableFeature(name, feature string, state ethtool.FeatureState) error {
	const remedy = "use hook: tc, which sees them there"
	if state.NeverChanged || !state.Available {
		return fmt.Errorf("%w: %s takes VLAN tags out of frames before XDP (%s), and that cannot be switched off: %s",
			ErrUnsupported, name, feature, remedy)
	}
	if err := t.DisableFeature(name, feature, disableReason); err != nil {
		return fmt.Errorf("%w: %s takes VLAN tags out of frames before XDP: %w: %s", ErrUnsupported, name, err, remedy)
	}
	t.NoteDisabled(name, feature)
	return nil
}

// feature is a feature of an interface, by the kernel's name for it.
type feature struct {
	// Link is the interface's name, Name the feature's.
	Link, Name string
}

// NoteDisabled notes a feature that is switched off.
func (t *Tags) NoteDisabled(link, name string) {
	if f := (feature{link, name}); !slices.Contains(t.Disabled, f) {
		t.Disabled = append(t.Disabled, f)
	}
}

// restoreReason is the reason, for messages, why they are switched on again.
const restoreReason = "packets are taken in TC, which sees VLAN tags wherever they are"

// RestoreStripping switches the features on again that DisableStripping has switched off, except on the interfaces in
// but. The next call retries features that stay off.
func (t *Tags) RestoreStripping(but []Port) error {
	var failed []error
	var stay []string
	for _, p := range but {
		names, err := t.devices(p)
		failed = append(failed, err)
		stay = append(stay, names...)
	}
	t.Disabled = slices.DeleteFunc(t.Disabled, func(f feature) bool {
		if t.RestoreFeature == nil || slices.Contains(stay, f.Link) {
			return false
		}
		err := t.RestoreFeature(f.Link, f.Name, restoreReason)
		failed = append(failed, err)
		return err == nil
	})
	return errors.Join(failed...)
}

// devicesOf returns the names of the devices on which an interface's frames arrive: itself and, for a bond, its member
// devices, on which the bond's XDP program runs.
func devicesOf(p Port) ([]string, error) {
	link, err := linkByIndex(p.Index)
	if err != nil {
		return []string{p.Name}, err
	}
	names := []string{link.Attrs().Name}
	if link.Type() != "bond" {
		return names, nil
	}
	links, err := netdump.Links()
	if err != nil {
		return nil, fmt.Errorf("looking for the links of the bond %s: %v", names[0], err)
	}
	for _, l := range links {
		if l.Attrs().MasterIndex == link.Attrs().Index {
			names = append(names, l.Attrs().Name)
		}
	}
	return names, nil
}

// strippingPeers names the veth interfaces, on which no feature of ours can show all tags: a tag is in the metadata
// where the peer has left it to the offload, whatever the interface's own features are.
func strippingPeers(ports []Port) string {
	text := ""
	for _, p := range ports {
		if DriverOf(p.Name) == "veth" {
			text += fmt.Sprintf(
				"; %s is a veth: VLAN tags of devices on its peer are lost unless `ethtool -K PEER txvlan "+
					"off tx-vlan-stag-hw-insert off` is set there", p.Name)
		}
	}
	return text
}
