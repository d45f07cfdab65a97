// SPDX-License-Identifier: Apache-2.0

package readview

import (
	"slices"
	"sync/atomic"

	"github.com/jeoul/jeoul/internal/balancer/datapath/flowtable"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// Reader reads the current view. It may be used by several goroutines.
type Reader struct {
	published *Published
	janitor   *flowtable.Janitor
	// tables is the last result of ServiceTables.
	tables atomic.Pointer[serviceTables]
	// replyHops are the buffers of ReplyHops.
	replyHops replyHopBuffers
}

// NewReader returns a reader of the published view. The janitor has the clock of the flows.
func NewReader(s *Published, janitor *flowtable.Janitor) *Reader {
	return &Reader{published: s, janitor: janitor}
}

// Attachments returns the hook and method in use on each of Options.Interfaces, in their order; none before the first
// Apply. It does not wait for a change under way.
func (r *Reader) Attachments() []lb.Attachment { return slices.Clone(r.published.Load().Attachments) }

// Memory returns the kernel memory in use; the zero value before the first Apply. It does not wait for a change under
// way.
func (r *Reader) Memory() lb.MemoryPlan { return r.published.Load().Plan }
