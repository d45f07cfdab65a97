// SPDX-License-Identifier: Apache-2.0

package top

import (
	"github.com/jeoul/jeoul/internal/balancer/ops"
)

// limitRow is a bound, and how much of it is in use.
type limitRow struct {
	Name  string  `json:"limit"`
	Used  float64 `json:"used"`
	Limit float64 `json:"of"`
	// Share is Used of Of, of 1.
	Share float64 `json:"share"`
	// Consequence names the consequence of exceeding it.
	Consequence string `json:"then"`
}

// The shares from which a limit needs attention.
const (
	warnShare = 0.8
	badShare  = 0.95
)

// tone judges how much is used.
func (r limitRow) tone() tone {
	switch {
	case r.Share >= badShare:
		return bad
	case r.Share >= warnShare:
		return warn
	}
	return plain
}

// limitRows lists every bound that is in force.
func limitRows(s *ops.Status, f *snapshotFigures) (rows []limitRow) {
	add := func(name string, used, of float64, then string) {
		if of > 0 {
			rows = append(rows, limitRow{name, used, of, used / of, then})
		}
	}
	if t := s.Flows; t != nil {
		add("proven flows", float64(t.Proven), float64(t.ProvenLimit), "proven flows stay among the unproven")
		add(
			"unproven flows",
			float64(t.Unproven),
			float64(t.UnprovenLimit),
			"new flows go by the hash, or replace silent ones",
		)
	}
	for i := range s.Services {
		service := &s.Services[i]
		if l := service.Limits; l != nil {
			refused := "new flows are refused: " + orDash(string(l.Refuse))
			if service.Mode.Proxied() {
				refused = "new connections wait"
			}
			add(service.Name+": new flows/s", f.services[i].rates.Connections, float64(l.Rate), refused)
			add(service.Name+": active flows", float64(service.Active), float64(l.Connections), refused)
		}
		for j := range service.Backends {
			b := &service.Backends[j]
			name := service.Name + "/" + b.Name
			add(name+": active flows", float64(b.Active), float64(b.Upper), "new flows go to other backends")
			if b.Ports != nil {
				add(name+": NAT ports", float64(b.Ports.Held), float64(b.Ports.Limit), "new flows are dropped")
			}
		}
	}
	return rows
}
