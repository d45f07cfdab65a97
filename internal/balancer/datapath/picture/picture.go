// SPDX-License-Identifier: Apache-2.0

package picture

import (
	"sync"
	"sync/atomic"

	"github.com/jeoul/jeoul/internal/balancer/datapath/generation"
	"github.com/jeoul/jeoul/internal/balancer/datapath/localsockets"
	"github.com/jeoul/jeoul/internal/balancer/datapath/sharedmaps"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// Picture is the data plane in use, for readers. It is immutable: each change publishes another.
type Picture struct {
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

// Published holds the current picture, which readers load without a lock.
type Published struct {
	picture atomic.Pointer[Picture]
	// readers is read-locked while a picture's maps are read.
	readers sync.RWMutex
}

// Publish replaces the current picture.
func (s *Published) Publish(p *Picture) { s.picture.Store(p) }

// Load returns the current picture, whose maps may be closed by now: see Read.
func (s *Published) Load() *Picture { return s.picture.Load() }

// WaitForReaders waits until readers of previous pictures have finished, which takes milliseconds: then maps that only
// those have may be closed.
func (s *Published) WaitForReaders() {
	s.readers.Lock()
	defer s.readers.Unlock()
}

// Read calls do with the picture in use. Its maps stay open until do returns. Error: the picture's, or that of do.
func (s *Published) Read(do func(*Picture) error) error {
	s.readers.RLock()
	defer s.readers.RUnlock()
	p := s.picture.Load()
	if p.Err != nil {
		return p.Err
	}
	return do(p)
}
