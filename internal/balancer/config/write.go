// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"fmt"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// Write returns the file that Parse reads into an equal configuration. Values that hold
// anyway are left out; comments are not kept.
func Write(c *Config) ([]byte, error) {
	short := withoutDerived(c)
	var text bytes.Buffer
	encoder := yaml.NewEncoder(&text)
	encoder.SetIndent(2)
	if err := encoder.Encode(rootKeys.Write(short)); err != nil {
		return nil, fmt.Errorf("write the configuration: %w", err)
	}
	return text.Bytes(), nil
}

// withoutDerived returns a copy without what Parse fills in from other values: what it
// would fill in again.
func withoutDerived(c *Config) *Config {
	short := *c
	short.Services = slices.Clone(c.Services)
	if c.BGP.Table == lb.DefaultRouteTable {
		short.BGP.Table = 0
	}
	for i := range short.Services {
		s := &short.Services[i]
		s.Backends, s.Checks.List = slices.Clone(s.Backends), slices.Clone(s.Checks.List)
		for j := range s.Backends {
			if s.Backends[j].Port == s.Port {
				s.Backends[j].Port = 0
			}
		}
		if s.Mode.Proxied() && s.Scheduler == usualScheduler(s.Mode) {
			s.Scheduler = usualScheduler("")
		}
		if s.TableSize == c.TableSize {
			s.TableSize = 0
		}
		if int(s.Persistence.Prefix) == s.VIP.BitLen() {
			s.Persistence.Prefix = 0
		}
		if s.Limits.Refuse == lb.RefuseByDrop {
			s.Limits.Refuse = ""
		}
	}
	return &short
}
