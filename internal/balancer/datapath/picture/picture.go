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

// Picture is the data plane in use, for those that only read: it is never changed, and each change that was made
// publishes another. So status and counters do not wait for a change under way, which holds the datapath's lock while a
// program is loaded and verified.
type Picture struct {
	Attachments []lb.Attachment
	Plan        lb.MemoryPlan
	// Shared is nil before the first Apply. Its maps stay open for as long as Shown.Read is at work.
	Shared  *sharedmaps.Maps
	Records []*generation.Record
	// Indices is how many backends the counters are read of.
	Indices int
	Ledger  sharedmaps.Ledger
	// Numbers are those of full NAT's addresses.
	Numbers generation.PoolNumbers
	// Sockets are the programs at sockets; nil where there are none.
	Sockets *localsockets.Sockets
	// Err is why there is nothing to read any more.
	Err error
}

// Published holds the current picture, which readers load without a lock.
type Published struct {
	picture atomic.Pointer[Picture]
	// readers is held by those that read a picture's maps.
	readers sync.RWMutex
}

// Publish shows another picture.
func (s *Published) Publish(p *Picture) { s.picture.Store(p) }

// Load returns the picture of the moment, whose maps may be closed by now: see Read.
func (s *Published) Load() *Picture { return s.picture.Load() }

// WaitForReaders waits until readers of the pictures before the last have done, which takes milliseconds: then the maps
// that only those show may be closed.
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
