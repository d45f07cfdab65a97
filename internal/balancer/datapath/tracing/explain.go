// SPDX-License-Identifier: Apache-2.0

package tracing

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cilium/ebpf"

	"github.com/jeoul/jeoul/internal/balancer/datapath/attach"
	"github.com/jeoul/jeoul/internal/balancer/datapath/loader"
	"github.com/jeoul/jeoul/internal/balancer/datapath/sharedmaps"
	"github.com/jeoul/jeoul/internal/balancer/datapath/traced"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/trace"
)

// ExplainInput has the programs, maps and configuration in use, for questions about packets.
type ExplainInput struct {
	Kernel loader.Kernel
	Hook   lb.Hook
	// Programs are the attached programs, whose ports, memory and shared maps the copy uses.
	Programs *loader.Programs
	Shared   *sharedmaps.Maps
	Names    *Names
	State    lb.State
}

// Check returns an error for a question that has no answer. Error: trace.ErrBadQuestion.
func (q ExplainInput) Check(question trace.Question) error {
	_, _, err := q.frame(question)
	return err
}

// frame returns the packet of a question, and the index of the port that it comes in at.
func (q ExplainInput) frame(question trace.Question) (at int, frame []byte, err error) {
	if at, err = PortNamed(q.Programs.Ports, question.Interface); err == nil {
		frame, err = question.Frame(q.Programs.Ports[at].MAC)
	}
	return at, frame, err
}

// Explain returns the outcome that a packet would have if it came in now, by the names and the state of now, of the
// generation that the copy was loaded for. Errors: trace.ErrBadQuestion, trace.ErrNoService.
func (e *Explainer) Explain(q ExplainInput, question trace.Question) (*trace.Packet, error) {
	at, frame, err := q.frame(question)
	if err != nil {
		return nil, err
	}
	e.names = q.Names
	packet, err := e.explain(at, frame)
	if err != nil {
		return nil, err
	}
	if packet.Outcome == outcomeNoService {
		return nil, noService(question, q.State)
	}
	return packet, nil
}

// outcomeNoService is the outcome of a packet for no service.
const outcomeNoService = "passed_no_service"

// PortNamed returns the index of the port of that name; of the first port for "".
func PortNamed(ports []attach.Port, name string) (int, error) {
	var names []string
	for i, p := range ports {
		if name == "" || p.Name == name {
			return i, nil
		}
		names = append(names, p.Name)
	}
	return 0, fmt.Errorf("%w: no balancing on interface %q; it is on %s", trace.ErrBadQuestion, name,
		strings.Join(names, ", "))
}

// MaxServicesListed bounds the list of services in an error.
const MaxServicesListed = 20

// noService returns an error that lists the services, those of the same address first.
func noService(question trace.Question, state lb.State) error {
	services := slices.DeleteFunc(slices.Clone(state.Services), func(s lb.RoutedService) bool { return s.IsHairpin })
	slices.SortStableFunc(services, func(a, b lb.RoutedService) int {
		return compareBool(b.VIP == question.Destination, a.VIP == question.Destination)
	})
	var list []string
	for _, s := range services[:min(len(services), MaxServicesListed)] {
		list = append(list, fmt.Sprintf("%s (%s)", s.Name, s.Key()))
	}
	if more := len(services) - MaxServicesListed; more > 0 {
		list = append(list, fmt.Sprintf("and %d more", more))
	}
	key := lb.ServiceKey{VIP: question.Destination, Port: question.DestinationPort, Protocol: question.Protocol}
	return fmt.Errorf("%w: %s is none, and no backend sends such a reply; the kernel gets the packet. There are: %s",
		trace.ErrNoService, key, strings.Join(list, ", "))
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// Explainer is a copy of a generation for dry runs.
type Explainer struct {
	*loader.Programs
	tracing *traced.Tracing
	names   *Names
	hook    lb.Hook
}

// NewExplainer loads the copy. It uses the maps of the attached generation, and must be closed before that.
func NewExplainer(q ExplainInput) (*Explainer, error) {
	t, err := loader.NewTracing(true)
	if err != nil {
		return nil, err
	}
	copied, err := q.Kernel.LoadPrograms(loader.KindFor(q.Hook), q.Programs.Ports, q.Programs.Memory, q.Shared, t, nil)
	if err != nil {
		t.Close()
		return nil, err
	}
	return &Explainer{copied, t, q.Names, q.Hook}, nil
}

// Close frees the copy.
func (e *Explainer) Close() {
	e.Programs.Close()
	e.tracing.Close()
}

// explain returns the outcome of a frame that arrives on a port.
func (e *Explainer) explain(at int, frame []byte) (*trace.Packet, error) {
	packet, out, err := e.Run(at, frame)
	if err != nil || strings.HasPrefix(packet.Outcome, "dropped_") {
		return packet, err
	}
	// The complete packet, not just the part in a record.
	packet.Leaves = trace.Describe(out)
	packet.Changes = trace.Compare(trace.Describe(frame), packet.Leaves)
	return packet, nil
}

// Run runs the program on a frame, and returns its record and the outgoing frame.
func (e *Explainer) Run(at int, frame []byte) (*trace.Packet, []byte, error) {
	// Room for a tunnel's headers, or an answer's.
	options := ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+1024), Repeat: 1}
	if context := testContext(e.hook, e.Ports[at].Index, len(frame)); context != nil {
		options.Context = context
	}
	if _, err := e.Programs.Programs[at].Run(&options); err != nil {
		return nil, nil, fmt.Errorf("running the program on a packet of %d bytes: %v", len(frame), err)
	}
	// The record is in the ring by now, if there is one.
	e.tracing.Reader.SetDeadline(time.Now())
	record, err := traced.Read(e.tracing.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("the program recorded nothing of the packet: %v", err)
	}
	return e.names.Packet(&record.XdpTraceRecord), options.DataOut, nil
}

// Offsets in the context of BPF_PROG_TEST_RUN.
const (
	xdpDataEnd, xdpIngress, xdpContext = 4, 12, 24
	skbInterface, skbContext           = 40, 44
)

// testContext returns the context of a dry run on an interface; nil where none is needed.
func testContext(hook lb.Hook, index, length int) []byte {
	if index == 0 {
		return nil
	}
	if hook == lb.HookTC {
		context := make([]byte, skbContext)
		binary.NativeEndian.PutUint32(context[skbInterface:], uint32(index))
		return context
	}
	context := make([]byte, xdpContext)
	binary.NativeEndian.PutUint32(context[xdpDataEnd:], uint32(length))
	binary.NativeEndian.PutUint32(context[xdpIngress:], uint32(index))
	return context
}
