// SPDX-License-Identifier: Apache-2.0

package web

import (
	"github.com/jeoul/jeoul/internal/weigh/bench"
	"github.com/jeoul/jeoul/internal/weigh/bench/load"
)

// The measured service.
const (
	Port = 80
	// FileName is the name of the served file, as in experiment 1.
	FileName = "dummy_file"
)

// Settings are the keys that only loads of this kind have.
type Settings struct {
	// TLS makes clients use HTTPS.
	TLS bool `yaml:"tls"`
}

// kind is a load that a generator makes.
type kind struct{ load.Kind }

func overTLS(p bench.Point) bool { return bench.SettingsOf[Settings](p.By).TLS }
