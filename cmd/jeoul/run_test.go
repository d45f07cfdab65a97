// SPDX-License-Identifier: Apache-2.0

package main

import (
	"path/filepath"
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
