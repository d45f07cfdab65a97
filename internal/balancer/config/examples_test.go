// SPDX-License-Identifier: Apache-2.0

package config

import (
	"path/filepath"
	"testing"
)

// TestExamples: the examples that people start from are correct, and without a warning.
func TestExamples(t *testing.T) {
	files, err := filepath.Glob("../../../examples/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no examples: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			cfg, err := Load(file)
			if err != nil {
				t.Fatal(err)
			}
			if len(cfg.Warnings) > 0 {
				t.Errorf("warnings:\n%v", cfg.Warnings)
			}
		})
	}
}
