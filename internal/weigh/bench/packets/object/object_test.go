// SPDX-License-Identifier: Apache-2.0

package object

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/test/testbpf"
	"github.com/jeoul/jeoul/internal/test/testenv"
	"github.com/jeoul/jeoul/internal/weigh/bench/harness"
)

// rewriterSetup returns the setup of testdata/rewriter.bpf.c, with replacements.
func rewriterSetup(t *testing.T, oldnew ...string) string {
	t.Helper()
	data, err := os.ReadFile("testdata/rewriter.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(oldnew); i += 2 {
		if !strings.Contains(string(data), oldnew[i]) {
			t.Fatalf("the setup has no %q", oldnew[i])
		}
	}
	return strings.NewReplacer(oldnew...).Replace(string(data))
}

func TestObject(t *testing.T) {
	testenv.Root(t)
	file := testbpf.Compile(t, "testdata/rewriter.bpf.c")
	setup, err := Parse("rewriter.yaml", []byte(rewriterSetup(t)))
	if err != nil {
		t.Fatal(err)
	}
	o, err := setup.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	h, err := harness.New(lb.HookXDP, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	frame := setup.Cases[0].Frame()
	to, err := harness.One(o.Program(), frame)
	if err != nil || to != 7 {
		t.Errorf("a packet goes to %d (%v), want the MAC address of the setup", to, err)
	}
	stream := harness.Stream{Frame: frame, Count: 256}
	if returned, err := h.Returned(o.Program(), stream); err != nil || returned != setup.Cases[0].Returns {
		t.Errorf("it returned %d (%v), want %d", returned, err, setup.Cases[0].Returns)
	}
	before, err := o.Counts()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := harness.Uninterrupted(func() (float64, error) {
		before, err = o.Counts()
		if err != nil {
			return 0, err
		}
		return h.Send(o.Program(), stream, 100)
	}); err != nil {
		t.Fatal(err)
	}
	after, err := o.Counts()
	if err != nil {
		t.Fatal(err)
	}
	if err := o.Check(before, after, 100); err != nil {
		t.Error(err)
	}
	if err := o.Check(before, after, 99); !errors.Is(err, ErrOutcome) {
		t.Errorf("a counter that has counted another number of packets: %v", err)
	}
}

// TestUnlike: if the object lacks something that the setup names, the error names it.
func TestUnlike(t *testing.T) {
	testenv.Root(t)
	file := testbpf.Compile(t, "testdata/rewriter.bpf.c")
	for name, test := range map[string]struct {
		change []string
		says   string
	}{
		"a map":         {[]string{"name: vips", "name: vip_map"}, `no map "vip_map"; it has `},
		"a key":         {[]string{", {zero: 1}]", "]"}, "entry 0 of map \"vips\" has a key of 7 bytes"},
		"a variable":    {[]string{"enabled:", "disabled:"}, `no variable "disabled"; it has enabled`},
		"its length":    {[]string{"[{u32: 1}]", "[{u64: 1}]"}, `variable "enabled" has 4 bytes, and the setup gives 8`},
		"a program":     {[]string{"hook: xdp", "hook: xdp\nprogram: other"}, `no program "other" for xdp; it has rewriter`},
		"a hook":        {[]string{"hook: xdp", "hook: tc"}, "of its programs for tc (none), say which"},
		"a counter":     {[]string{"map: stats", "map: counts"}, `counters[0]: `},
		"beyond values": {[]string{"at: 8", "at: 12"}, "values of 16; the counter's key has 4, and it ends at byte 20"},
	} {
		t.Run(name, func(t *testing.T) {
			setup, err := Parse("s.yaml", []byte(rewriterSetup(t, test.change...)))
			if err != nil {
				t.Fatal(err)
			}
			if o, err := setup.Load(file); err == nil {
				o.Close()
				t.Error("it was taken")
			} else if !errors.Is(err, ErrMismatch) || !strings.Contains(err.Error(), test.says) {
				t.Errorf("the error is %q, want %q", err, test.says)
			}
		})
	}
	setup, err := Parse("s.yaml", []byte(rewriterSetup(t)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := setup.Load("testdata/rewriter.yaml"); err == nil {
		t.Error("a file that is no object was taken")
	}
}

// TestBadSetups: each mistake is reported with line and field.
func TestBadSetups(t *testing.T) {
	for want, change := range map[string][]string{
		"s.yaml:1: subject: ":                      {"subject: rewriter", "subject: Re writer"},
		"s.yaml:2: hook: ":                         {"hook: xdp", "hook: auto"},
		`s.yaml: unknown hook "cgroup"`:            {"hook: xdp", "hook: cgroup"},
		"s.yaml:4: variables.enabled[0]: ":         {"{u32: 1}", "{u32: -1}"},
		"s.yaml:10: maps[0].entries[0].key[0]: ":   {"ip: 198.19.0.1}", "ip: 198.19.0}"},
		"s.yaml:10: maps[0].entries[0].key[2]: ":   {"{u8: 6}", "{u8: 600}"},
		"s.yaml:11: maps[0].entries[0].value[1]: ": {"{zero: 2}", "{hole: 2}"},
		"s.yaml:14: cases[0].to: ":                 {"to: 198.19.0.1:80", "to: 198.19.0.1"},
		"s.yaml:15: cases[0].flags: ":              {"[ack]", "[ack, ece]"},
		"s.yaml:16: cases[0].flows[1]: ":           {"[1, 256]", "[1, 255]"},
		"counters[0].bytes: ":                      {"bytes: 8", "bytes: 3"},
	} {
		_, err := Parse("s.yaml", []byte(rewriterSetup(t, change...)))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: the error is %v, want %q", change, err, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	data, err := os.ReadFile("testdata/rewriter.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Fuzz(func(t *testing.T, data []byte) {
		setup, err := Parse("f", data)
		if err != nil {
			return
		}
		for _, c := range setup.Cases {
			if len(c.Frame().Bytes) == 0 || slices.ContainsFunc(c.PrimeFrames(), func(f harness.Frame) bool {
				return len(f.Bytes) == 0
			}) {
				t.Errorf("%s has no frame", c.Name)
			}
		}
		for _, m := range setup.Maps {
			for _, e := range m.Entries {
				e.Key.bytes()
				e.Value.bytes()
			}
		}
	})
}
