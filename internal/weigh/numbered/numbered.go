// SPDX-License-Identifier: Apache-2.0

// Package numbered sends a stream of numbered UDP datagrams through a balancer of a laboratory and reports which of
// them were received. It reads their numbers at the ingress of the servers' devices, so that neither a socket's buffer
// nor a busy server counts as loss by the balancer, and at the switch's port to the balancer, so that losses of the
// laboratory before or behind the balancer do not count as such either.
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
	// ErrOptions means that there is no such stream.
	ErrOptions = errors.New("impossible numbered stream")
	// ErrKernel means that this kernel has no TCX, at which the receiver counts.
	ErrKernel = errors.New("this kernel has no TCX (Linux 6.6)")
	// ErrUsedUp means that every number was sent.
	ErrUsedUp = errors.New("the numbered stream has no numbers left")
	// ErrUncut means that a device on the path treats several datagrams as one packet.
	ErrUncut = errors.New("numbered datagrams were not sent one by one")
	// ErrUnseen means that numbers were received that did not pass the watched device.
	ErrUnseen = errors.New("numbered datagrams came that were not seen at the balancer")
)

const (
	// MaxRate is the highest rate, in datagrams a second.
	MaxRate = 1_000_000
	// maxNumbers bounds the numbers of one stream: 22 minutes of 200,000 a second, in 32 MiB for each place where they
	// are counted.
	maxNumbers = 1 << 28
)

// Options describe a stream.
type Options struct {
	// Target is the service.
	Target netip.AddrPort
	// Rate is the number of datagrams a second.
	Rate int
	// Flows is the number of sockets, and so of local ports, that send in turns.
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

// Stream is a stream that can be sent once.
type Stream struct {
	options Options
	objects numberedObjects
	// came, entered and returned have a bit for each number: of those that servers received, that went to the balancer,
	// and that it returned.
	came, entered, returned *ebpf.Memory
	links                   []link.Link
	mark                    uint64
	// watched reports whether there are devices that count the datagrams to the balancer and back.
	watched bool

	sent atomic.Uint64
	mu   sync.Mutex
	// moments are the times when numbers were sent, in order.
	moments []moment
}

// New loads the receiver of a stream. The caller must close the stream.
func New(o Options) (*Stream, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	spec, err := loadNumbered()
	if err != nil {
		return nil, fmt.Errorf("reading the receiver of numbered datagrams: %w", err)
	}
	s := &Stream{options: o, mark: rand.Uint64()}
	for _, m := range []string{numberedMapReceived, numberedMapEntered, numberedMapReturned} {
		spec.Maps[m].MaxEntries = maxNumbers / wordBits
	}
	if err := spec.Variables["mark"].Set(s.mark); err != nil {
		return nil, fmt.Errorf("setting up the receiver of numbered datagrams: %w", err)
	}
	if err := spec.LoadAndAssign(&s.objects, nil); err != nil {
		return nil, fmt.Errorf("loading the receiver of numbered datagrams: %w", err)
	}
	for _, m := range []struct {
		memory **ebpf.Memory
		of     *ebpf.Map
	}{{&s.came, s.objects.Received}, {&s.entered, s.objects.Entered}, {&s.returned, s.objects.Returned}} {
		if *m.memory, err = m.of.Memory(); err != nil {
			return nil, errors.Join(fmt.Errorf("mapping the numbers that came: %w", err), s.objects.Close())
		}
	}
	return s, nil
}

// Receive counts and drops the stream's datagrams that arrive at a device, by its index in the calling thread's network
// namespace, until the stream is closed.
func (s *Stream) Receive(device int) error {
	return s.attach(device, s.objects.NumberedReceive, ebpf.AttachTCXIngress)
}

// Watch counts the datagrams that a device sends to the balancer and those that it receives from it, by the device's
// index in the calling thread's network namespace, until the stream is closed. The whole stream must take this path.
func (s *Stream) Watch(device int) error {
	err := errors.Join(s.attach(device, s.objects.NumberedEnter, ebpf.AttachTCXEgress),
		s.attach(device, s.objects.NumberedReturn, ebpf.AttachTCXIngress))
	s.watched = err == nil
	return err
}

func (s *Stream) attach(device int, program *ebpf.Program, at ebpf.AttachType) error {
	l, err := link.AttachTCX(link.TCXOptions{Interface: device, Program: program, Attach: at, Anchor: link.Head()})
	switch {
	case errors.Is(err, ebpf.ErrNotSupported):
		return fmt.Errorf("%w: %v", ErrKernel, err)
	case err != nil:
		return fmt.Errorf("attaching a counter of numbered datagrams: %w", err)
	}
	s.links = append(s.links, l)
	return nil
}

// Close detaches the counters from their devices. The sender must have returned.
func (s *Stream) Close() error {
	var errs []error
	for _, l := range s.links {
		errs = append(errs, l.Close())
	}
	return errors.Join(append(errs, s.objects.Close())...)
}
