// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cilium/ebpf"

	"github.com/jeoul/jeoul/internal/balancer/datapath/attach"
	"github.com/jeoul/jeoul/internal/balancer/datapath/libxdp"
	"github.com/jeoul/jeoul/internal/balancer/datapath/loader"
	"github.com/jeoul/jeoul/internal/balancer/datapath/rcu"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// The hook can change while packets arrive. XDP runs before TC, and frames that it sends or drops never reach TC. So
// our TC programs are attached while XDP is attached or detached, and XDP is attached and detached with a program that
// passes everything: on every interface, because a frame that XDP redirects to an interface without XDP may be lost
// there. The deciding program is replaced atomically on each interface, so each packet is processed by the old program
// or the new one. A packet that XDP passes to the kernel while both decide is passed by TC, too, because none of its
// addresses makes TC decide otherwise; it is counted twice.

// queueDrainTime is how long packets that XDP has passed may take to reach TC: in a queue of another CPU (RPS), or
// waiting to be merged (GRO).
const queueDrainTime = 50 * time.Millisecond

// rehook attaches the programs of a new generation to the requested hook, perhaps on other interfaces than before, and
// then detaches the current ones. On an error the current ones stay attached.
func (d *Datapath) rehook(ports []attach.Port, requested lb.Hook, load loadFunc) (*loader.Programs, error) {
	lastErr := fmt.Errorf("hook: %s: %w on these interfaces", requested, attach.ErrUnsupported)
	var reasons []string
	for _, a := range d.attempts(requested, ports) {
		if a.Method != d.method && a.Method.Hook == d.method.Hook {
			// An interface has one program per hook, so there is no atomic step from one method of a hook to another.
			reasons = append(reasons, d.skipReason(a.Method, ports))
			continue
		}
		programs, reason, err := d.installBy(ports, a.Method, load)
		if reason != "" {
			reasons = append(reasons, reason)
		}
		if err == nil {
			d.hook, d.method = requested, a.Method
			d.attachments = attach.Describe(ports, a.Method, a.FullReason(reasons))
			return programs, nil
		}
		if lastErr = err; reason == "" {
			break
		}
	}
	return nil, lastErr
}

// skipReason returns why a better method of the hook in use is skipped.
func (d *Datapath) skipReason(w attach.Method, ports []attach.Port) string {
	if w == attach.TCX || w == attach.TCFilter || slices.EqualFunc(ports, d.current.Ports, attach.Port.SameInterface) {
		return w.MissingCapability(ports[0], nil) // it was tried before the one that is in use
	}
	return fmt.Sprintf("the other interfaces were in %s already (a restart tries %s)", d.method.Name, w.Name)
}

// installBy loads a generation and attaches it by a method, which may be the one in use. With an error it returns the
// reason why another method may work; without an error, the reason is the deficiency of this method.
func (d *Datapath) installBy(ports []attach.Port, w attach.Method, load loadFunc) (
	programs *loader.Programs, reason string, err error,
) {
	if w == d.method {
		return d.swapPrograms(ports, load)
	}
	if programs, err = load(d.kindOf(w)); err != nil {
		if w.Dispatched && errors.Is(err, libxdp.ErrUnsupported) {
			return nil, attach.XDPHolders(ports), attach.JoinError(err, ports)
		}
		return nil, "", err
	}
	if reason, err = d.changeHook(ports, programs, w); err != nil {
		programs.Close()
		return nil, reason, err
	}
	return programs, reason, nil
}

// changeHook attaches the programs of a new generation to another hook.
func (d *Datapath) changeHook(ports []attach.Port, programs *loader.Programs, w attach.Method) (
	reason string, err error,
) {
	pass, err := attach.PassProgram(w, d.method, ports)
	if err != nil {
		return "", err
	}
	defer pass.Close()
	if w.Dispatched || d.method.Dispatched {
		if err := d.keeper.PinPass(programs, pass); err != nil {
			return "", err
		}
	}
	h := &hookChange{d: d, before: d.current.Ports, ports: ports, programs: programs, method: w, pass: pass}
	if w.Hook == lb.HookXDP {
		err = h.toXDP()
	} else {
		err = h.toTC()
	}
	if err != nil {
		return h.reason, errors.Join(err, h.undo())
	}
	d.holds, d.noAttachType = h.holds, false
	return h.reason, nil
}

// hookChange is a change of the hook or the interfaces under way.
type hookChange struct {
	d *Datapath
	// before are the present interfaces, and ports those after the change.
	before, ports []attach.Port
	programs      *loader.Programs
	method        attach.Method
	// pass is the XDP program that passes everything, in place of ours.
	pass *ebpf.Program
	// holds are the attachments of the new programs.
	holds  []attach.Hold
	reason string
	// undoSteps undo the steps made so far.
	undoSteps []func() error
}

// undo undoes the steps, the last one first.
func (h *hookChange) undo() (err error) {
	for _, back := range slices.Backward(h.undoSteps) {
		err = errors.Join(err, back())
	}
	return err
}

// toXDP moves from TC to XDP.
func (h *hookChange) toXDP() error {
	pass := slices.Repeat([]*ebpf.Program{h.pass}, len(h.ports))
	if err := h.attach(pass); err != nil {
		return err
	}
	h.undoSteps = append(h.undoSteps, func() error { return h.d.tags.RestoreStripping(nil) })
	if err := h.d.tags.DisableStripping(h.ports, h.method); err != nil {
		h.reason = err.Error()
		return err
	}
	if err := h.exchange(h.holds, h.ports, h.programs.Programs, pass); err != nil {
		return err
	}
	// TC decides on packets that XDP has passed before.
	rcu.Wait()
	<-time.After(queueDrainTime)
	return h.release(h.before, h.d.current.Programs)
}

// toTC moves from XDP to TC.
func (h *hookChange) toTC() error {
	if err := h.attach(h.programs.Programs); err != nil {
		return err
	}
	pass := slices.Repeat([]*ebpf.Program{h.pass}, len(h.before))
	if err := h.exchange(h.d.holds, h.before, pass, h.d.current.Programs); err != nil {
		return err
	}
	// Frames may be on their way to an interface that is about to lose XDP.
	rcu.Wait()
	if err := h.release(h.before, pass); err != nil {
		return err
	}
	if err := h.d.tags.RestoreStripping(nil); err != nil {
		h.reason = err.Error() // harmless: TC sees tags wherever they are
	}
	return nil
}

// attach attaches programs to the interfaces by the new method.
func (h *hookChange) attach(programs []*ebpf.Program) error {
	holds, refused, err := h.d.attachAll(programs, h.ports, h.method)
	if err != nil {
		if h.method.Refused(err) {
			h.reason = h.method.MissingCapability(refused, err)
		}
		return attach.Explain(err, refused, h.method)
	}
	h.holds = holds
	h.undoSteps = append(h.undoSteps, func() error { return attach.CloseAll(holds) })
	return nil
}

// exchange replaces programs by others.
func (h *hookChange) exchange(holds []attach.Hold, ports []attach.Port, to, from []*ebpf.Program) error {
	if err := attach.SwapAll(holds, ports, to, from); err != nil {
		return err
	}
	h.undoSteps = append(h.undoSteps, func() error { return attach.SwapAll(holds, ports, from, to) })
	return nil
}

// release detaches the programs from removed interfaces. If that fails on one interface, all are attached again:
// programs[i] is the program of the i-th present interface.
func (h *hookChange) release(removed []attach.Port, programs []*ebpf.Program) error {
	for at, p := range removed {
		i := h.d.current.PortAt(p)
		err := h.d.holds[i].Close()
		if err == nil || p.Deleted() {
			continue
		}
		err = fmt.Errorf("detaching from %s in %s (it goes on there): %w", p.Name, h.d.method.Name, err)
		// The last one, too: its link cannot be exchanged any more.
		for _, p := range removed[:at+1] {
			back := h.d.current.PortAt(p)
			attached, failed := h.d.attach(programs[back], p, h.d.method)
			if failed != nil {
				err = errors.Join(err, attach.Explain(failed, p, h.d.method))
				continue
			}
			h.d.holds[back] = attached
		}
		return err
	}
	return nil
}
