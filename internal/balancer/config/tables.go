// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"math/big"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// The sizes of tables, in bytes: of a slot, and of a row for each backend that shares the slots.
const (
	slotBytes   = 2
	memberBytes = 64
	// maxTables is half of the memory that an eBPF program can address at once (BPF_MAX_VAR_OFF of Linux): while a
	// service changes, its table is there twice.
	maxTables = 1 << 28
)

// slotsOf returns the size of a service's table.
func slotsOf(s *lb.Service) uint64 {
	switch {
	case s.Mode.Proxied():
		return 0
	case s.Scheduler.InOrder():
		return 1
	case s.TableSize != 0:
		return uint64(s.TableSize)
	}
	return uint64(lb.DefaultTableSize(len(s.Backends)))
}

// checkTables refuses tables that do not fit into memory together, and names the sizes that would.
func (p *parser) checkTables() {
	slots, members, services := uint64(0), uint64(0), uint64(0)
	for i := range p.cfg.Services {
		s := &p.cfg.Services[i]
		if i < p.old && s.Name == "" {
			continue
		}
		slots = slots + slotsOf(s)
		if !s.Mode.Proxied() {
			members += uint64(len(s.Backends))
		}
		if !s.Scheduler.InOrder() && !s.Mode.Proxied() {
			services++
		}
	}
	need, rows := slots*slotBytes+members*memberBytes, members*memberBytes
	if need <= maxTables {
		return
	}
	advice := "use fewer services, or fewer backends"
	if rows < maxTables && services > 0 {
		if size := previousPrime((maxTables - rows) / slotBytes / services); size > 0 {
			advice = fmt.Sprintf("table_size: %d for each of the %d would fit", size, services)
		}
	}
	p.Fail(p.largestTable(), "the tables of all services take %d bytes together, and can take %d; %s", need,
		maxTables, advice)
}

// largestTable returns the field of the size of the largest table or, if it is not written, that of the services.
func (p *parser) largestTable() string {
	field, largest := "services", uint64(0)
	for i := range p.cfg.Services {
		s, own := &p.cfg.Services[i], ServiceField(i, "table_size")
		size := slotsOf(s)
		if size <= largest {
			continue
		}
		largest, field = size, "services"
		if written := p.Written(own); written {
			field = own
		} else if s.TableSize != 0 {
			field = "table_size"
		}
	}
	return field
}

// previousPrime returns the largest prime that is not above n, or 0.
func previousPrime(n uint64) uint64 {
	for ; n > 1; n-- {
		if new(big.Int).SetUint64(n).ProbablyPrime(0) {
			return n
		}
	}
	return 0
}
