// SPDX-License-Identifier: Apache-2.0

package web

import (
	"github.com/jeoul/jeoul/internal/weigh/bench"
	"github.com/jeoul/jeoul/internal/weigh/bench/load"
)

// The service that is weighed.
const (
	Port = 80
	// FileName is the name of the file that it serves, as in experiment 1.
	FileName = "dummy_file"
)

// Settings are a load's keys besides those of all kinds.
type Settings struct {
	// TLS has clients ask over HTTPS.
	TLS bool `yaml:"tls"`
}

// kind is a load put on by a generator.
type kind struct{ load.Kind }

func overTLS(p bench.Point) bool { return bench.SettingsOf[Settings](p.By).TLS }
