// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"slices"

	"github.com/safchain/ethtool"
	"github.com/vishvananda/netlink"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// tagOffloads are the kernel's names for the features by which a device takes the outer VLAN
// tag (IEEE 802.1Q, 802.1ad) out of a frame and keeps it in the frame's metadata. XDP does not
// see it there, and a frame that it sends on leaves without.
var tagOffloads = []string{"rx-vlan-hw-parse", "rx-vlan-stag-hw-parse"}

// whyShown is why they are switched off, for a person.
const whyShown = "XDP sees VLAN tags only in the frame, and would send tagged frames on without"

// showTags has the devices leave VLAN tags in the frame, where programs are attached in XDP.
// It comes after that has succeeded, since to change a feature resets some devices.
func (d *Datapath) showTags(ports []port, w way) error {
	if w.hook != lb.HookXDP || d.options.SwitchOff == nil {
		return nil
	}
	for _, p := range ports {
		names, err := devicesOf(p)
		if err != nil {
			return err
		}
		for _, name := range names {
			if err := d.showTagsOn(name); err != nil {
				return err
			}
		}
	}
	return nil
}

// showTagsOn does that for one device. A feature that the device lacks, or that is off, needs no change.
func (d *Datapath) showTagsOn(name string) error {
	tool, err := ethtool.NewEthtool()
	if err != nil {
		return fmt.Errorf("asking %s for its features: %v", name, err)
	}
	defer tool.Close()
	features, err := tool.FeaturesWithState(name)
	if err != nil {
		return fmt.Errorf("asking %s for its features: %v", name, err)
	}
	for _, feature := range tagOffloads {
		if !features[feature].Active {
			continue
		}
		if err := d.hideNothing(name, feature, features[feature]); err != nil {
			return err
		}
	}
	return nil
}

// hideNothing switches a feature off, or says that it cannot be.
func (d *Datapath) hideNothing(name, feature string, state ethtool.FeatureState) error {
	const cure = "use hook: tc, which sees them there"
	if state.NeverChanged || !state.Available {
		return fmt.Errorf("%w: %s takes VLAN tags out of frames before XDP (%s), and that cannot be switched off: %s", ErrUnsupported, name, feature, cure)
	}
	if err := d.options.SwitchOff(name, feature, whyShown); err != nil {
		return fmt.Errorf("%w: %s takes VLAN tags out of frames before XDP: %w: %s", ErrUnsupported, name, err, cure)
	}
	d.noteShown(name, feature)
	return nil
}

// feature is one of an interface.
type feature struct{ link, name string }

func (d *Datapath) noteShown(link, name string) {
	if f := (feature{link, name}); !slices.Contains(d.shown, f) {
		d.shown = append(d.shown, f)
	}
}

// whyHidden is why they are switched on again, for a person.
const whyHidden = "packets are taken in TC, which sees VLAN tags wherever they are"

// hideTags switches on what showTags has switched off, but on these interfaces. What stays off
// is tried again by the next call.
func (d *Datapath) hideTags(but []port) error {
	var failed []error
	var stay []string
	for _, p := range but {
		names, err := devicesOf(p)
		failed = append(failed, err)
		stay = append(stay, names...)
	}
	d.shown = slices.DeleteFunc(d.shown, func(f feature) bool {
		if d.options.SwitchBack == nil || slices.Contains(stay, f.link) {
			return false
		}
		err := d.options.SwitchBack(f.link, f.name, whyHidden)
		failed = append(failed, err)
		return err == nil
	})
	return errors.Join(failed...)
}

// devicesOf returns the names of the devices that frames for an interface come in by: itself,
// and those that it is a bond of, in which the bond's XDP runs.
func devicesOf(p port) ([]string, error) {
	names := []string{p.name}
	link, err := netlink.LinkByName(p.name)
	if err != nil || link.Type() != "bond" {
		return names, err
	}
	links, err := netlink.LinkList()
	if err != nil {
		return nil, fmt.Errorf("looking for the links of the bond %s: %v", p.name, err)
	}
	for _, l := range links {
		if l.Attrs().MasterIndex == link.Attrs().Index {
			names = append(names, l.Attrs().Name)
		}
	}
	return names, nil
}

// hiddenByPeers says of which interfaces nothing that we can do shows all tags: a veth has them
// beside the frame where its peer has left them to the offload, whatever its own features are.
func hiddenByPeers(ports []port) string {
	text := ""
	for _, p := range ports {
		if driverOf(p.name) == "veth" {
			text += fmt.Sprintf("; %s is a veth: VLAN tags of devices on its peer are lost unless `ethtool -K PEER txvlan off tx-vlan-stag-hw-insert off` is set there", p.name)
		}
	}
	return text
}
