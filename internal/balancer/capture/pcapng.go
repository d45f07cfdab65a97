// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"fmt"
	"io"
	"net/netip"
	"strings"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/trace"
)

// Frames says which frames of a packet are written: as it came in, as it leaves, or both.
type Frames string

// The frames. A packet that is dropped, or passed as it came, has none that leaves: FramesOut writes it as it came.
const (
	FramesIn   Frames = "in"
	FramesOut  Frames = "out"
	FramesBoth Frames = "both"
)

// Writer writes packets as a pcapng file (draft-ietf-opsawg-pcapng): an interface block for each interface, hook and
// direction, and the decision about a packet as its comments.
type Writer struct {
	to      *blocks
	frames  Frames
	request Request
	hooks   []Point
	// interfaces are the numbers of interface blocks.
	interfaces map[block]int
}

// block identifies an interface block: interface, hook and direction.
type block struct {
	name string
	hook lb.Hook
	out  bool
}

// NewWriter begins a file. Application is the program and its version, for the file's head.
func NewWriter(to io.Writer, started *Started, frames Frames, application string) (*Writer, error) {
	w := &Writer{frames: frames, request: started.Request, hooks: started.Hooks, interfaces: map[block]int{}}
	first := block{name: "", hook: lb.HookXDP}
	if len(w.hooks) > 0 {
		first = block{name: w.hooks[0].Interface, hook: w.hooks[0].Hook}
	}
	first.out = frames == FramesOut
	var err error
	if w.to, err = newBlocks(to, application, trace.Printable(strings.Join(started.Notes, "; "))); err != nil {
		return nil, fmt.Errorf("beginning the capture file: %w", err)
	}
	if _, err := w.interfaceOf(first); err != nil {
		return nil, err
	}
	for _, hook := range w.hooks {
		for _, out := range []bool{false, true} {
			if (out && frames == FramesIn) || (!out && frames == FramesOut) {
				continue
			}
			if _, err := w.interfaceOf(block{hook.Interface, hook.Hook, out}); err != nil {
				return nil, err
			}
		}
	}
	return w, w.Flush()
}

// describe returns the name and the description of an interface block.
func describe(b block) (title, description string) {
	direction, what := "in", "frames as they come in"
	if b.out {
		direction, what = "out", "frames as they leave"
	}
	name := b.name
	if name == "" {
		name = "-"
	}
	name = trace.Printable(name)
	return fmt.Sprintf("%s:%s:%s", name, b.hook, direction), fmt.Sprintf("%s on %s, at the hook %s", what, name, b.hook)
}

// interfaceOf returns the number of an interface block, which it writes if there is none yet.
func (w *Writer) interfaceOf(b block) (int, error) {
	if id, known := w.interfaces[b]; known {
		return id, nil
	}
	name, description := describe(b)
	id, err := w.to.addInterface(name, description, uint32(w.request.Snap))
	if err != nil {
		return 0, fmt.Errorf("writing an interface of the capture file: %w", err)
	}
	w.interfaces[b] = id
	return id, nil
}

// Write writes a packet.
func (w *Writer) Write(p *Packet) error {
	if w.frames != FramesOut {
		if err := w.frame(p, p.FrameIn, false); err != nil {
			return err
		}
	}
	if w.frames == FramesIn {
		return nil
	}
	if !p.FrameOut.IsZero() {
		return w.frame(p, p.FrameOut, true)
	}
	if w.frames == FramesOut {
		return w.frame(p, p.FrameIn, true)
	}
	return nil
}

// frame writes one frame of a packet.
func (w *Writer) frame(p *Packet, f Frame, out bool) error {
	id, err := w.interfaceOf(block{p.Interface, p.Hook, out})
	if err != nil {
		return err
	}
	direction := uint32(directionIn)
	if out {
		direction = directionOut
	}
	// The captured bytes are no longer than the frame, whatever the daemon says.
	if err := w.to.packet(id, p.Time, f.Bytes, max(f.Length, len(f.Bytes)), direction, p.Comments()); err != nil {
		return fmt.Errorf("writing a packet of the capture file: %w", err)
	}
	return nil
}

// Flush writes the bytes that are held back.
func (w *Writer) Flush() error {
	if err := w.to.to.Flush(); err != nil {
		return fmt.Errorf("writing the capture file: %w", err)
	}
	return nil
}

// maxComment bounds a comment in bytes: an option of pcapng has up to 65,535.
const maxComment = 4096

// Comments are the decision about a packet, a fact each.
func (p *Packet) Comments() []string {
	var comments []string
	add := func(name, text string) {
		if text != "" {
			text = strings.ToValidUTF8(text[:min(len(text), maxComment)], "?")
			comments = append(comments, name+": "+trace.Printable(text))
		}
	}
	outcome := p.Outcome
	if p.Help != "" {
		outcome += " (" + p.Help + ")"
	}
	add("outcome", outcome)
	if s := p.Service; s != nil {
		add("service",
			fmt.Sprintf("%s (%s, %s, %s)", s.Name, lb.ServiceKey{VIP: s.VIP, Port: s.Port, Protocol: s.Protocol},
				s.Mode, s.Scheduler))
	}
	if b := p.Backend; b != nil {
		add("backend", fmt.Sprintf("%s (%s)", b.Name, netip.AddrPortFrom(b.Address, b.Port)))
	}
	var reasons []string
	for _, r := range p.Reasons {
		reasons = append(reasons, string(r))
	}
	if p.Slot != nil {
		reasons = append(reasons, fmt.Sprintf("slot %d of %d", *p.Slot, p.Slots))
	}
	add("reason", strings.Join(reasons, ", "))
	if p.Came != nil {
		add("came as", p.Came.Text())
	}
	add("leaves as", p.LeavesText())
	if p.Count > 1 {
		add("packets", fmt.Sprint(p.Count))
	}
	return comments
}
