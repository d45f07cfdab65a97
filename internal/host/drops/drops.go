// SPDX-License-Identifier: Apache-2.0

// Package drops counts the packets that the kernel drops, by reason, function and network namespace, and those that XDP
// programs lost. A [Tracer] uses the kernel's tracepoints; it costs nothing while nothing is dropped.
package drops

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"runtime"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
)

// Errors that callers may test for.
var (
	// ErrNoRights means that the process may not trace the kernel.
	ErrNoRights = errors.New("no right to trace the kernel")
	// ErrUnsupported means that the kernel lacks type information, or drop reasons (before 5.17).
	ErrUnsupported = errors.New("the kernel cannot be traced in this way")
)

// Source is the tracepoint that reported a drop.
type Source string

// The sources.
const (
	// Stack means that the network stack dropped the packet, with a reason of enum skb_drop_reason.
	Stack Source = "stack"
	// XDPException means that an XDP program ended in an error, or that its XDP_TX failed. The reason is the verdict.
	XDPException Source = "xdp-exception"
	// XDPRedirect means that the kernel rejected a redirect. The reason is an error's name.
	XDPRedirect Source = "xdp-redirect"
	// XDPTransmit means that the target device of a redirect did not accept the frames.
	XDPTransmit Source = "xdp-transmit"
)

var sources = [tracerDropSourceDROP_SOURCES]Source{
	tracerDropSourceDROP_SKB:           Stack,
	tracerDropSourceDROP_XDP_EXCEPTION: XDPException,
	tracerDropSourceDROP_XDP_REDIRECT:  XDPRedirect,
	tracerDropSourceDROP_XDP_TRANSMIT:  XDPTransmit,
}

// Drop counts the packets that were dropped for one reason in one place.
type Drop struct {
	Source Source `json:"source"`
	// Reason is the kernel's name without its prefix, such as "TCP_CSUM", or its number if the kernel has no name for
	// it.
	Reason string `json:"reason"`
	// Function is the kernel's function that dropped the packets; empty for XDP.
	Function string `json:"function,omitempty"`
	// Namespace is the inode number of the network namespace; 0 for packets that no longer belonged to one.
	Namespace uint32 `json:"-"`
	// Interface is the index of the device in Namespace; 0 if unknown.
	Interface int `json:"interface,omitempty"`
	// EtherType is the EtherType of the frame (IEEE 802.3), such as 0x0800.
	EtherType uint16 `json:"ethertype,omitempty"`
	Packets   uint64 `json:"packets"`
	// Bytes is the sum of the packets' lengths when they were dropped.
	Bytes uint64 `json:"bytes,omitempty"`
	// Example is one of the packets; nil if none could be read.
	Example *Flow `json:"example,omitempty"`
}

// Flow is the 5-tuple of a packet.
type Flow struct {
	Source      netip.Addr `json:"source"`
	Destination netip.Addr `json:"destination"`
	// Protocol is IP's protocol number (IANA "Protocol Numbers").
	Protocol uint8 `json:"protocol"`
	// The ports are 0 where there are none.
	SourcePort      uint16 `json:"source_port,omitempty"`
	DestinationPort uint16 `json:"destination_port,omitempty"`
}

// Tracer counts drops of the whole machine until it is closed.
type Tracer struct {
	objects tracerObjects
	links   []link.Link
	names   names
}

// New starts the tracer. Errors: ErrNoRights, ErrUnsupported.
func New() (*Tracer, error) {
	t := &Tracer{}
	var err error
	if t.names, err = readNames(); err != nil {
		return nil, explainError(err)
	}
	if err := t.load(); err != nil {
		return nil, explainError(err)
	}
	o := &t.objects
	for _, program := range []*ebpf.Program{o.KfreeSkb, o.XdpException, o.XdpRedirectErr, o.XdpDevmapXmit} {
		l, err := link.AttachTracing(link.TracingOptions{Program: program})
		if err != nil {
			return nil, errors.Join(explainError(err), t.Close())
		}
		t.links = append(t.links, l)
	}
	return t, nil
}

func (t *Tracer) load() error {
	spec, err := loadTracer()
	if err != nil {
		return err
	}
	if err := spec.Variables[tracerVarNamesSocket].Set(t.names.socket); err != nil {
		return err
	}
	return spec.LoadAndAssign(&t.objects, nil)
}

func explainError(err error) error {
	var refusal *ebpf.VerifierError
	if errors.Is(err, fs.ErrPermission) && !errors.As(err, &refusal) {
		// The rest of the error is about maps and limits, which are not the cause.
		return fmt.Errorf("listen to what the kernel drops: %w", ErrNoRights)
	}
	return fmt.Errorf("listen to what the kernel drops: %w: %v", ErrUnsupported, err)
}

// Read returns the drops so far, in no order, and the number of further drops that were not recorded.
func (t *Tracer) Read() (dropped []Drop, unknown uint64, err error) {
	var key tracerDropKey
	var perCPU []tracerDropValue
	functions := map[uint64]string{}
	for entries := t.objects.Dropped.Iterate(); entries.Next(&key, &perCPU); err = entries.Err() {
		drop := t.describe(key, functions)
		for _, v := range perCPU {
			drop.Packets += v.Packets
			drop.Bytes += v.Bytes
			if f := flowOf(v); f != nil {
				drop.Example = f
			}
		}
		if drop.Packets > 0 {
			dropped = append(dropped, drop)
		}
	}
	if err != nil {
		return nil, 0, fmt.Errorf("read what the kernel dropped: %w", err)
	}
	var sums []uint64
	if err := t.objects.Uncounted.Lookup(uint32(0), &sums); err != nil {
		return nil, 0, fmt.Errorf("read what the kernel dropped: %w", err)
	}
	for _, n := range sums {
		unknown += n
	}
	return dropped, unknown, nil
}

func (t *Tracer) describe(key tracerDropKey, functions map[uint64]string) Drop {
	drop := Drop{Source: sources[key.From], Namespace: key.Netns, Interface: int(key.Ifindex), EtherType: key.Ethertype}
	drop.Reason = t.names.reason(drop.Source, key.Reason)
	if key.Location != 0 {
		if _, known := functions[key.Location]; !known {
			functions[key.Location] = t.function(key.Location)
		}
		drop.Function = functions[key.Location]
	}
	return drop
}

// function returns the name of the kernel function at an address, or the address itself if it has no name.
func (t *Tracer) function(address uint64) string {
	fallback := fmt.Sprintf("%#x", address)
	if err := t.objects.Question.Set(tracerSymbolQuestion{Address: address}); err != nil {
		return fallback
	}
	if _, err := t.objects.Symbol.Run(&ebpf.RunOptions{}); err != nil {
		return fallback
	}
	var answer tracerSymbolQuestion
	if err := t.objects.Question.Get(&answer); err != nil {
		return fallback
	}
	runtime.KeepAlive(t)
	var name []byte
	for _, c := range answer.Name {
		if c == 0 {
			break
		}
		name = append(name, byte(c))
	}
	if len(name) == 0 {
		return fallback
	}
	return string(name)
}

// Close stops counting.
func (t *Tracer) Close() error {
	var errs []error
	for _, l := range t.links {
		errs = append(errs, l.Close())
	}
	return errors.Join(append(errs, t.objects.Close())...)
}

// names has the names and properties of the running kernel's tracepoints.
type names struct {
	reasons map[uint32]string
	// socket: kfree_skb has a fourth argument, the receiving socket.
	socket bool
}

func readNames() (names, error) {
	n := names{reasons: map[uint32]string{}}
	kernel, err := btf.LoadKernelSpec()
	if err != nil {
		return n, err
	}
	var reasons *btf.Enum
	if err := kernel.TypeByName("skb_drop_reason", &reasons); err != nil {
		return n, fmt.Errorf("the kernel gives no reasons for its drops: %w", err)
	}
	for _, v := range reasons.Values {
		n.reasons[uint32(v.Value)] = v.Name
	}
	var tracepoint *btf.Typedef
	if err := kernel.TypeByName("btf_trace_kfree_skb", &tracepoint); err != nil {
		return n, err
	}
	if pointer, ok := tracepoint.Type.(*btf.Pointer); ok {
		if function, ok := pointer.Target.(*btf.FuncProto); ok {
			// The first parameter is the tracepoint's own.
			n.socket = len(function.Params) > 4
		}
	}
	return n, nil
}
