// SPDX-License-Identifier: Apache-2.0

package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/jeoul/jeoul/internal/balancer/config"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// TestExamplesCheck: `jeoul run --check` accepts every example, and there is one
// for each mode, named after it.
func TestExamplesCheck(t *testing.T) {
	for _, mode := range lb.Modes {
		t.Run(string(mode), func(t *testing.T) {
			file := filepath.Join("..", "..", "examples", string(mode)+".yaml")
			if err := (&runCmd{Config: file, Check: true}).Run(t.Context()); err != nil {
				t.Fatal(err)
			}
			cfg, err := config.Load(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range cfg.Services {
				if s.Mode != mode {
					t.Errorf("%s is about %s, and service %s has the mode %s", file, mode, s.Name, s.Mode)
				}
			}
		})
	}
}

// TestCheckSpeaker: a check warns if a configuration has `bgp` and the host lacks the program for it, and only then.
func TestCheckSpeaker(t *testing.T) {
	file := filepath.Join("..", "..", "examples", string(lb.L2DSR)+".yaml")
	without, err := config.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	with := *without
	with.BGP = lb.BGP{ASN: 64512}
	if got := checkSpeaker(&with); len(got) != 0 {
		t.Errorf("with the program in PATH, the warnings are %q", got)
	}
	t.Setenv("PATH", t.TempDir())
	if got := checkSpeaker(&with); len(got) != 1 || !strings.Contains(got[0], "install the package jeoul-bgp") {
		t.Errorf("without the program, the warnings are %q", got)
	}
	if got := checkSpeaker(without); len(got) != 0 {
		t.Errorf("without bgp, the warnings are %q", got)
	}
}
