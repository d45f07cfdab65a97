// SPDX-License-Identifier: Apache-2.0

// Package nic reads and writes the settings of a network interface that ethtool(8) supports. Each has a name, and all
// values are text.
package nic

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Cards are network interfaces whose settings can be read and written.
type Cards interface {
	// Get returns a setting of an interface. Errors: ErrUnsupported, ErrNoCard,
	// fs.ErrPermission.
	Get(card, setting string) (string, error)
	// Set changes a setting. A driver may convert the value to another one, so read it back.
	Set(card, setting, value string) error
	// Close closes the sockets to the kernel.
	Close() error
}

// Errors that callers may test for.
var (
	// ErrUnsupported means that the interface's driver has no such setting.
	ErrUnsupported = errors.New("the driver does not have it")
	// ErrNoCard means that there is no such interface.
	ErrNoCard = errors.New("there is no such interface")
	// ErrValue means that a text is no value of the setting.
	ErrValue = errors.New("not a possible value")
)

// The settings that can be read and written. A name that begins with Feature is a
// feature, by the kernel's long name: feature.rx-gro.
const (
	RingRX           = "ring.rx"              // descriptors
	RingTX           = "ring.tx"              // descriptors
	Combined         = "channels.combined"    // queues
	AdaptiveRX       = "coalesce.adaptive-rx" // on, off
	CoalesceRXUsecs  = "coalesce.rx-usecs"    // microseconds
	CoalesceRXFrames = "coalesce.rx-frames"   // frames
	HashTCP4         = "rss.tcp4"             // letters as in ethtool -N IF rx-flow-hash tcp4: s d f n
	HashUDP4         = "rss.udp4"
	HashTCP6         = "rss.tcp6"
	HashUDP6         = "rss.udp6"
	Feature          = "feature."
)

// The read-only settings.
const (
	Driver      = "driver"
	RingRXMax   = "ring.rx.max"
	RingTXMax   = "ring.tx.max"
	CombinedMax = "channels.combined.max"
	// RSSEntries is the length of the indirection table.
	RSSEntries = "rss.entries"
	// RSSKey is the key of the Toeplitz hash, in hexadecimal bytes separated by colons.
	RSSKey = "rss.key"
)

// writable are the settings that Command supports, besides features.
var writable = []string{RingRX, RingTX, Combined, AdaptiveRX, CoalesceRXUsecs, CoalesceRXFrames, HashTCP4, HashUDP4,
	HashTCP6, HashUDP6}

// Known reports whether the setting of a name can be read, and whether it can be written.
func Known(setting string) (readable, settable bool) {
	if name, ok := strings.CutPrefix(setting, Feature); ok {
		return name != "", name != ""
	}
	settable = slices.Contains(writable, setting)
	return settable || slices.Contains([]string{Driver, RingRXMax, RingTXMax, CombinedMax, RSSEntries, RSSKey},
		setting), settable
}

// Command returns the ethtool command that makes a setting.
func Command(card, setting, value string) string {
	group, name, _ := strings.Cut(setting, ".")
	switch group {
	case "ring":
		return fmt.Sprintf("ethtool -G %s %s %s", card, name, value)
	case "channels":
		return fmt.Sprintf("ethtool -L %s %s %s", card, name, value)
	case "coalesce":
		return fmt.Sprintf("ethtool -C %s %s %s", card, name, value)
	case "rss":
		return fmt.Sprintf("ethtool -N %s rx-flow-hash %s %s", card, name, value)
	}
	return fmt.Sprintf("ethtool -K %s %s %s", card, name, value)
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

func parseOnOff(setting, value string) (bool, error) {
	switch value {
	case "on":
		return true, nil
	case "off":
		return false, nil
	}
	return false, fmt.Errorf("%s: %q: %w: on or off", setting, value, ErrValue)
}
