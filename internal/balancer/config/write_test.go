// SPDX-License-Identifier: Apache-2.0

package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// everyKey is a file with every key.
const everyKey = "testdata/everything.yaml"

// checkRoundTrip writes a configuration and reads it again: it must be the same, and be
// written as the same text.
func checkRoundTrip(t *testing.T, cfg *Config) {
	t.Helper()
	text, err := Write(cfg)
	if err != nil {
		t.Fatal(err)
	}
	again, err := Parse(cfg.File, text)
	if err != nil {
		t.Fatalf("what was written is refused:\n%v\nof:\n%s", err, text)
	}
	// Warnings name lines, and unused settings are not written.
	cfg.Warnings, again.Warnings = nil, nil
	if diff := cmp.Diff(cfg, again, compare); diff != "" {
		t.Errorf("written and read again (-before +after):\n%s\nof:\n%s", diff, text)
	}
	if second, err := Write(again); err != nil || string(second) != string(text) {
		t.Errorf("written again it is another file (%v):\n%s\nbefore:\n%s", err, second, text)
	}
}

func TestWrite(t *testing.T) {
	files, err := filepath.Glob("../../../examples/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no examples: %v", err)
	}
	for _, file := range append(files, everyKey) {
		t.Run(filepath.Base(file), func(t *testing.T) {
			cfg, err := Load(file)
			if err != nil {
				t.Fatal(err)
			}
			checkRoundTrip(t, cfg)
		})
	}
}

// TestWriteLeavesOut: values that hold anyway are not written, all others are.
func TestWriteLeavesOut(t *testing.T) {
	small := "interface: eth0\nservices:\n  - name: web\n    vip: 192.0.2.100\n    port: 80\n    backends:\n      - {name: web01, address: 192.0.2.1}\n"
	want, err := os.ReadFile(everyKey)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"small": small, "everything": string(want)} {
		cfg, err := Parse("f", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		got, err := Write(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(text, string(got)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestWriteSparePool: a pool of full NAT is written also where no service of the file uses it: those of other sources
// may.
func TestWriteSparePool(t *testing.T) {
	for _, pool := range []string{"fullnat:\n  addresses: [192.0.2.5]\n",
		"fullnat:\n  addresses: [192.0.2.5, '2001:db8::5']\n  ports: 20000-30000\n"} {
		cfg, err := Parse("f", []byte(pool+with(good)))
		if err != nil {
			t.Fatal(err)
		}
		text, err := Write(cfg)
		if err != nil || !strings.Contains(string(text), pool) {
			t.Errorf("%q is written as\n%s%v", pool, text, err)
		}
		checkRoundTrip(t, cfg)
	}
}

// TestSwitch: a key that switches something on is written as short as it can be, and means the same when it is read
// again.
func TestSwitch(t *testing.T) {
	for text, want := range map[string]struct {
		local   Local
		written string
	}{
		"local: true\n":             {Local{On: true}, "local: true\n"},
		"local: {}\n":               {Local{On: true}, "local: true\n"},
		"local: {cgroup: /a/./b}\n": {Local{On: true, Cgroup: "/a/b"}, "local: {cgroup: /a/b}\n"},
		"local: false\n":            {Local{}, ""},
		"":                          {Local{}, ""},
	} {
		cfg, err := Parse("f", []byte(text+with(good)))
		if err != nil {
			t.Fatal(err)
		}
		written, err := Write(cfg)
		if err != nil || cfg.Local != want.local || strings.Contains(string(written), "local:") != want.local.On ||
			!strings.Contains(string(written), want.written) {
			t.Errorf("%q: %+v, written as\n%s%v", text, cfg.Local, written, err)
		}
	}
}
