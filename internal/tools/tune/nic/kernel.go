// SPDX-License-Identifier: Apache-2.0

package nic

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"github.com/safchain/ethtool"
	"golang.org/x/sys/unix"
)

// Kernel gives access to the interfaces of the network namespace of the thread that opened it.
type Kernel struct{ tool *ethtool.Ethtool }

// Open opens a socket in the calling thread's network namespace.
func Open() (*Kernel, error) {
	tool, err := ethtool.NewEthtool()
	if err != nil {
		return nil, fmt.Errorf("ask the kernel for interfaces' settings: %w", err)
	}
	return &Kernel{tool}, nil
}

// Close closes the socket.
func (k *Kernel) Close() error {
	k.tool.Close()
	return nil
}

// Get returns a setting.
func (k *Kernel) Get(card, setting string) (string, error) {
	value, err := k.get(card, setting)
	if err != nil {
		return "", fmt.Errorf("read %s of %s: %w", setting, card, explain(err))
	}
	return value, nil
}

func (k *Kernel) get(card, setting string) (string, error) {
	group, name, _ := strings.Cut(setting, ".")
	switch group {
	case "driver":
		return k.tool.DriverName(card)
	case "ring":
		r, err := k.tool.GetRing(card)
		return number(*ringField(&r, setting), err)
	case "channels":
		c, err := k.tool.GetChannels(card)
		if err == nil && c.MaxCombined == 0 {
			err = ErrUnsupported
		}
		if setting == CombinedMax {
			return number(c.MaxCombined, err)
		}
		return number(c.CombinedCount, err)
	case "coalesce":
		c, err := k.tool.GetCoalesce(card)
		if setting == AdaptiveRX {
			return onOff(c.UseAdaptiveRxCoalesce != 0), err
		}
		return number(*coalesceField(&c, setting), err)
	case "rss":
		return k.getRSS(card, setting)
	case "feature":
		return k.getFeature(card, name)
	}
	return "", ErrUnsupported
}

func (k *Kernel) getFeature(card, name string) (string, error) {
	all, err := k.tool.Features(card)
	if err != nil {
		return "", err
	}
	on, ok := all[name]
	if !ok {
		return "", ErrUnsupported
	}
	return onOff(on), nil
}

// Set changes a setting.
func (k *Kernel) Set(card, setting, value string) error {
	if err := k.set(card, setting, value); err != nil {
		return fmt.Errorf("set %s of %s to %s: %w", setting, card, value, explain(err))
	}
	return nil
}

func (k *Kernel) set(card, setting, value string) error {
	group, name, _ := strings.Cut(setting, ".")
	switch group {
	case "feature":
		on, err := parseOnOff(setting, value)
		if err != nil {
			return err
		}
		return k.tool.Change(card, map[string]bool{name: on})
	case "rss":
		return k.setRSS(card, setting, value)
	}
	if setting == AdaptiveRX {
		on, err := parseOnOff(setting, value)
		if err != nil {
			return err
		}
		value = "0"
		if on {
			value = "1"
		}
	}
	count, err := strconv.ParseUint(value, 10, 32)
	if err != nil {
		return fmt.Errorf("%q: %w: a whole number", value, ErrValue)
	}
	return k.setNumber(card, setting, uint32(count))
}

// setNumber reads the group that a number belongs to, and writes it back with the number changed, because the kernel
// sets only whole groups.
func (k *Kernel) setNumber(card, setting string, count uint32) error {
	switch setting {
	case RingRX, RingTX:
		r, err := k.tool.GetRing(card)
		if err != nil {
			return err
		}
		*ringField(&r, setting) = count
		_, err = k.tool.SetRing(card, r)
		return err
	case Combined:
		c, err := k.tool.GetChannels(card)
		if err != nil {
			return err
		}
		c.CombinedCount = count
		_, err = k.tool.SetChannels(card, c)
		return err
	case AdaptiveRX, CoalesceRXUsecs, CoalesceRXFrames:
		c, err := k.tool.GetCoalesce(card)
		if err != nil {
			return err
		}
		*coalesceField(&c, setting) = count
		_, err = k.tool.SetCoalesce(card, c)
		return err
	}
	return ErrUnsupported
}

func ringField(r *ethtool.Ring, setting string) *uint32 {
	switch setting {
	case RingRX:
		return &r.RxPending
	case RingTX:
		return &r.TxPending
	case RingRXMax:
		return &r.RxMaxPending
	}
	return &r.TxMaxPending
}

func coalesceField(c *ethtool.Coalesce, setting string) *uint32 {
	switch setting {
	case AdaptiveRX:
		return &c.UseAdaptiveRxCoalesce
	case CoalesceRXUsecs:
		return &c.RxCoalesceUsecs
	}
	return &c.RxMaxCoalescedFrames
}

func number(n uint32, err error) (string, error) {
	if err != nil {
		return "", err
	}
	return strconv.FormatUint(uint64(n), 10), nil
}

// explain converts an errno to an error that callers test for.
func explain(err error) error {
	switch {
	case errors.Is(err, unix.EOPNOTSUPP):
		return fmt.Errorf("%w (%w)", ErrUnsupported, err)
	case errors.Is(err, unix.ENODEV):
		return fmt.Errorf("%w (%w)", ErrNoCard, err)
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("%w: run as root, or with CAP_NET_ADMIN", fs.ErrPermission)
	}
	return err
}
