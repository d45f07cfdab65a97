// SPDX-License-Identifier: Apache-2.0

package nic

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/jeoul/jeoul/internal/test/testenv"
)

func TestFields(t *testing.T) {
	for text, bits := range map[string]uint64{"sdfn": 0xf0, "sd": 0x30, "-": 0} {
		got, err := fieldBits(text)
		if err != nil || got != bits || letters(bits) != text {
			t.Errorf("%s: %#x, %v; %s", text, got, err, letters(bits))
		}
	}
	if _, err := fieldBits("sx"); !errors.Is(err, ErrValue) {
		t.Error(err)
	}
}

func TestCommand(t *testing.T) {
	for setting, want := range map[string]string{
		RingRX:             "ethtool -G eth0 rx 1",
		Combined:           "ethtool -L eth0 combined 1",
		AdaptiveRX:         "ethtool -C eth0 adaptive-rx 1",
		HashUDP6:           "ethtool -N eth0 rx-flow-hash udp6 1",
		Feature + "rx-gro": "ethtool -K eth0 rx-gro 1",
	} {
		if got := Command("eth0", setting, "1"); got != want {
			t.Errorf("%s, not %s", got, want)
		}
	}
	if readable, settable := Known(RSSKey); !readable || settable {
		t.Error("the key of RSS")
	}
	if readable, _ := Known("ring.rx.maximum"); readable {
		t.Error("a setting that is none")
	}
}

func TestFiles(t *testing.T) {
	cards := Files{Dir: t.TempDir()}
	settings := map[string]string{RingRX: "512", RingRXMax: "4096", Feature + "rx-lro": "on"}
	if err := Save(cards.Dir, "eth0", settings); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(cards.Set("eth0", RingRX, "4096"), cards.Set("eth0", Feature+"rx-lro", "off")); err != nil {
		t.Fatal(err)
	}
	if value, err := cards.Get("eth0", RingRX); err != nil || value != "4096" {
		t.Error(value, err)
	}
	if err := cards.Set("eth0", RingRX, "4097"); !errors.Is(err, ErrValue) {
		t.Error(err)
	}
	if err := cards.Set("eth0", Feature+"rx-lro", "perhaps"); !errors.Is(err, ErrValue) {
		t.Error(err)
	}
	if _, err := cards.Get("eth0", RingTX); !errors.Is(err, ErrUnsupported) {
		t.Error(err)
	}
	if _, err := cards.Get("../eth0", RingRX); !errors.Is(err, ErrNoCard) {
		t.Error(err)
	}
	if _, err := cards.Get("eth1", RingRX); !errors.Is(err, ErrUnsupported) ||
		!strings.Contains(err.Error(), "eth1.json") {
		t.Error(err)
	}
	if left, err := os.ReadDir(cards.Dir); err != nil || len(left) != 1 {
		t.Error(left, err)
	}
}

// TestKernel uses a veth, which has features and no other settings.
func TestKernel(t *testing.T) {
	ns := testenv.Namespace(t)
	testenv.Veth(t, testenv.End{Namespace: ns, Name: "a"}, testenv.End{Namespace: ns, Name: "b"})
	testenv.In(t, ns, func() error {
		k, err := Open()
		if err != nil {
			return err
		}
		defer k.Close()
		if driver, err := k.Get("a", Driver); err != nil || driver != "veth" {
			t.Error(driver, err)
		}
		for _, setting := range []string{RingRX, RingRXMax, Combined, AdaptiveRX, HashTCP4, RSSKey, RSSEntries,
			Feature + "nosuch"} {
			if value, err := k.Get("a", setting); !errors.Is(err, ErrUnsupported) {
				t.Errorf("%s: %q, %v", setting, value, err)
			}
		}
		if err := k.Set("a", RingRX, "1024"); !errors.Is(err, ErrUnsupported) {
			t.Errorf("a ring was set: %v", err)
		}
		if err := k.Set("a", HashTCP4, "sdfn"); !errors.Is(err, ErrUnsupported) {
			t.Errorf("a hash was set: %v", err)
		}
		for _, value := range []string{"on", "off"} {
			if err := k.Set("a", Feature+"rx-gro", value); err != nil {
				return err
			}
			if now, err := k.Get("a", Feature+"rx-gro"); err != nil || now != value {
				t.Error(now, err)
			}
		}
		if _, err := k.Get("nosuch0", Driver); !errors.Is(err, ErrNoCard) {
			t.Error(err)
		}
		return nil
	})
}
