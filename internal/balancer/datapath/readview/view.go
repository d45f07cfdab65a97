// SPDX-License-Identifier: Apache-2.0

package readview

import (
	"sync"
	"sync/atomic"

	"github.com/jeoul/jeoul/internal/balancer/datapath/generation"
	"github.com/jeoul/jeoul/internal/balancer/datapath/localsockets"
	"github.com/jeoul/jeoul/internal/balancer/datapath/sharedmaps"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// View is the data plane in use, for readers. It is immutable: each change publishes another.
type View struct {
	Attachments []lb.Attachment
	Plan        lb.MemoryPlan
	// Shared is nil before the first Apply. Its maps stay open during Published.Read.
	Shared  *sharedmaps.Maps
	Records []*generation.Record
	// Indices is the number of backend indices whose counters are read.
	Indices int
	Ledger  sharedmaps.Ledger
	// Numbers are the numbers of full NAT's addresses.
	Numbers generation.PoolNumbers
	// Sockets are the programs at sockets; nil where there are none.
	Sockets *localsockets.Sockets
	// Err is the reason why the data plane cannot be read any more.
	Err error
}

// Published holds the current view, which readers load without a lock.
type Published struct {
	view atomic.Pointer[View]
	// readers is read-locked while a view's maps are read.
	readers sync.RWMutex
}

// Publish replaces the current view.
func (s *Published) Publish(p *View) { s.view.Store(p) }

// Load returns the current view, whose maps may be closed by now: see Read.
func (s *Published) Load() *View { return s.view.Load() }

// WaitForReaders waits until readers of previous views have finished, which takes milliseconds: then maps that only
// those have may be closed.
func (s *Published) WaitForReaders() {
	s.readers.Lock()
	defer s.readers.Unlock()
}

// Read calls do with the view in use. Its maps stay open until do returns. Error: the view's, or that of do.
func (s *Published) Read(do func(*View) error) error {
	s.readers.RLock()
	defer s.readers.RUnlock()
	p := s.view.Load()
	if p.Err != nil {
		return p.Err
	}
	return do(p)
}
