// SPDX-License-Identifier: Apache-2.0

// Package numbered sends a stream of numbered UDP datagrams through a balancer of a
// laboratory and tells which of them came: by their numbers, at the ingress of the servers'
// devices, so that neither a socket's buffer nor a server that has other work is taken for
// loss by the balancer.
package numbered

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// Errors that callers may test for.
var (
	// ErrOptions says that there is no such stream.
	ErrOptions = errors.New("impossible numbered stream")
	// ErrKernel says that this kernel has no TCX, at which the receiver counts.
	ErrKernel = errors.New("this kernel has no TCX (Linux 6.6)")
	// ErrUsedUp says that every number was sent.
	ErrUsedUp = errors.New("the numbered stream has no numbers left")
	// ErrUncut says that a device on the way takes several datagrams for one packet.
	ErrUncut = errors.New("numbered datagrams were not sent one by one")
)

const (
	// MaxRate is the highest rate, in datagrams a second.
	MaxRate = 1_000_000
	// maxNumbers are those of one stream: 22 minutes of 200,000 a second, in 32 MiB.
	maxNumbers = 1 << 28
)

// Options say what a stream is.
type Options struct {
	// Target is the service.
	Target netip.AddrPort
	// Rate is how many datagrams are sent a second.
	Rate int
	// Flows is from how many sockets, and so local ports, they are sent by turns.
	Flows int
}

func (o Options) check() error {
	switch {
	case !o.Target.IsValid():
		return fmt.Errorf("%w: it has no target", ErrOptions)
	case o.Rate < 1 || o.Rate > MaxRate:
		return fmt.Errorf("%w: %d datagrams a second; use 1 to %d", ErrOptions, o.Rate, MaxRate)
	case o.Flows < 1:
		return fmt.Errorf("%w: %d flows; use 1 or more", ErrOptions, o.Flows)
	}
	return nil
}

// Stream is one that can be sent once.
type Stream struct {
	options Options
	objects numberedObjects
	// came has a bit for each number; the receiver sets it.
	came  *ebpf.Memory
	links []link.Link
	mark  uint64

	sent atomic.Uint64
	mu   sync.Mutex
	// moments say when numbers were sent, in their order.
	moments []moment
}

// New loads the receiver of a stream. It is to be closed.
func New(o Options) (*Stream, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	spec, err := loadNumbered()
	if err != nil {
		return nil, fmt.Errorf("reading the receiver of numbered datagrams: %w", err)
	}
	s := &Stream{options: o, mark: rand.Uint64()}
	spec.Maps["came"].MaxEntries = maxNumbers / wordBits
	if err := spec.Variables["mark"].Set(s.mark); err != nil {
		return nil, fmt.Errorf("setting up the receiver of numbered datagrams: %w", err)
	}
	if err := spec.LoadAndAssign(&s.objects, nil); err != nil {
		return nil, fmt.Errorf("loading the receiver of numbered datagrams: %w", err)
	}
	if s.came, err = s.objects.Came.Memory(); err != nil {
		return nil, errors.Join(fmt.Errorf("mapping the numbers that came: %w", err), s.objects.Close())
	}
	return s, nil
}

// Receive counts what comes in by a device, by its index in the calling thread's network
// namespace, until the stream is closed, and drops it.
func (s *Stream) Receive(device int) error {
	l, err := link.AttachTCX(link.TCXOptions{
		Interface: device, Program: s.objects.NumberedReceive, Attach: ebpf.AttachTCXIngress, Anchor: link.Head(),
	})
	switch {
	case errors.Is(err, ebpf.ErrNotSupported):
		return fmt.Errorf("%w: %v", ErrKernel, err)
	case err != nil:
		return fmt.Errorf("attaching the receiver of numbered datagrams: %w", err)
	}
	s.links = append(s.links, l)
	return nil
}

// Close takes the receiver off its devices. The sender must have returned.
func (s *Stream) Close() error {
	var errs []error
	for _, l := range s.links {
		errs = append(errs, l.Close())
	}
	return errors.Join(append(errs, s.objects.Close())...)
}
