// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/jeoul/jeoul/internal/balancer/datapath/libxdp"
	"github.com/jeoul/jeoul/internal/balancer/datapath/rcu"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// The hook can change while packets arrive. XDP runs before TC, and what it sends or drops
// never reaches TC. So TC is there for as long as XDP comes or goes, and XDP comes and goes
// with a program that passes everything: on every interface, for a frame that XDP redirects
// to one without XDP may be lost there. What decides is exchanged in one step per interface,
// and a packet meets the old program or the new one. A packet that XDP leaves to the kernel
// while both decide is left by TC, too: it bears nothing that is ours any more. It is counted
// twice.

// queued is how long packets that XDP has passed may be on their way to TC, in a queue of
// another CPU (RPS) or waiting to be merged (GRO).
const queued = 50 * time.Millisecond

// rehook attaches the programs of a new generation as a wish wants it, on interfaces that may
// be others than before, and then takes the current ones off. On an error these go on.
func (d *Datapath) rehook(ports []port, wish lb.Hook, load loader) (*generation, error) {
	last := fmt.Errorf("hook: %s: %w on these interfaces", wish, ErrUnsupported)
	var lacks []string
	for _, a := range d.ways(wish, ports) {
		if a.way != d.way && a.way.hook == d.way.hook {
			// An interface has one program of a hook at a time, so there is no step from
			// one of its ways to the other.
			lacks = append(lacks, d.passedOver(a.way, ports))
			continue
		}
		made, lack, err := d.take(ports, a.way, load)
		if lack != "" {
			lacks = append(lacks, lack)
		}
		if err == nil {
			d.hook, d.way, d.attachments = wish, a.way, attachments(ports, a.way, a.because(lacks))
			return made, nil
		}
		if last = err; lack == "" {
			break
		}
	}
	return nil, last
}

// passedOver says why a way of the hook in use is not taken.
func (d *Datapath) passedOver(w way, ports []port) string {
	if w == tcx || w == tcFilter || slices.EqualFunc(ports, d.current.ports, port.sameInterface) {
		return w.lack(ports[0]) // it was tried before the one that is in use
	}
	return fmt.Sprintf("the other interfaces were in %s already (a restart tries %s)", d.way.name, w.name)
}

// take loads a generation and puts it to work by a way, which may be the one in use. The lack
// that it returns with an error says why another way may do; without one, what is not as it
// should be.
func (d *Datapath) take(ports []port, w way, load loader) (made *generation, lack string, err error) {
	if w == d.way {
		return d.renew(ports, load)
	}
	if made, err = load(d.kindOf(w)); err != nil {
		if w.dispatched && errors.Is(err, libxdp.ErrUnsupported) {
			return nil, lackOfXDP(ports), cannotJoin(err, ports)
		}
		return nil, "", err
	}
	if lack, err = d.moveTo(ports, made, w); err != nil {
		made.close()
		return nil, lack, err
	}
	return made, lack, nil
}

// moveTo puts the programs of a new generation to work by another hook.
func (d *Datapath) moveTo(ports []port, made *generation, w way) (lack string, err error) {
	pass, err := passing(w, d.way, ports)
	if err != nil {
		return "", err
	}
	defer pass.Close()
	if w.dispatched || d.way.dispatched {
		if err := d.keeper.pinPass(made, pass); err != nil {
			return "", err
		}
	}
	h := &handover{d: d, before: d.current.ports, ports: ports, made: made, way: w, pass: pass}
	if w.hook == lb.HookXDP {
		err = h.toXDP()
	} else {
		err = h.toTC()
	}
	if err != nil {
		return h.lack, errors.Join(err, h.undo())
	}
	d.holds, d.unspecific = h.holds, false
	return h.lack, nil
}

// passing makes an XDP program that passes everything and can be exchanged for ours by the way to XDP, or
// from it.
func passing(to, from way, ports []port) (*ebpf.Program, error) {
	if to.dispatched || from.dispatched {
		return passingDispatched(ports)
	}
	return passingXDP()
}

func passingXDP() (*ebpf.Program, error) {
	spec, err := xdpProgram.load()
	if err != nil {
		return nil, fmt.Errorf("reading the embedded eBPF program: %v", err)
	}
	like := spec.Programs[xdpProgram.name]
	const xdpPass = 2
	made, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "jeoul_pass", Type: like.Type, AttachType: like.AttachType,
		Flags: like.Flags, License: like.License,
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, xdpPass), asm.Return()}})
	if err != nil {
		return nil, loadError(err)
	}
	return made, nil
}

// handover is a change of the hook or the interfaces under way.
type handover struct {
	d *Datapath
	// before are the interfaces that packets are taken on so far, and ports those to come.
	before, ports []port
	made          *generation
	way           way
	// pass stands in for our programs in XDP.
	pass *ebpf.Program
	// holds keep the new programs.
	holds []hold
	lack  string
	// done is how to take back what was done so far.
	done []func() error
}

// undo takes back what was done, the last step first.
func (h *handover) undo() (err error) {
	for _, back := range slices.Backward(h.done) {
		err = errors.Join(err, back())
	}
	return err
}

// toXDP moves from TC to XDP.
func (h *handover) toXDP() error {
	pass := slices.Repeat([]*ebpf.Program{h.pass}, len(h.ports))
	if err := h.attach(pass); err != nil {
		return err
	}
	h.done = append(h.done, func() error { return h.d.hideTags(nil) })
	if err := h.d.showTags(h.ports, h.way); err != nil {
		h.lack = err.Error()
		return err
	}
	if err := h.exchange(h.holds, h.ports, h.made.programs, pass); err != nil {
		return err
	}
	// What was passed before is decided on in TC.
	rcu.Wait()
	<-time.After(queued)
	return h.release(h.before, h.d.current.programs)
}

// toTC moves from XDP to TC.
func (h *handover) toTC() error {
	if err := h.attach(h.made.programs); err != nil {
		return err
	}
	pass := slices.Repeat([]*ebpf.Program{h.pass}, len(h.before))
	if err := h.exchange(h.d.holds, h.before, pass, h.d.current.programs); err != nil {
		return err
	}
	// Frames may be on their way to be sent by an interface that is about to lose XDP.
	rcu.Wait()
	if err := h.release(h.before, pass); err != nil {
		return err
	}
	if err := h.d.hideTags(nil); err != nil {
		h.lack = err.Error() // harmless: TC sees tags wherever they are
	}
	return nil
}

// attach hooks programs onto the interfaces by the new way.
func (h *handover) attach(programs []*ebpf.Program) error {
	holds, refused, err := h.d.attachAll(programs, h.ports, h.way)
	if err != nil {
		if unsupported(err) {
			h.lack = h.way.lack(refused)
		}
		return attachError(err, refused, h.way)
	}
	h.holds = holds
	h.done = append(h.done, func() error { return closeAll(holds) })
	return nil
}

// exchange puts programs in the place of others.
func (h *handover) exchange(holds []hold, ports []port, to, from []*ebpf.Program) error {
	if err := swapAll(holds, ports, to, from); err != nil {
		return err
	}
	h.done = append(h.done, func() error { return swapAll(holds, ports, from, to) })
	return nil
}

// release takes the programs off interfaces by which packets came so far. If one cannot be
// taken off, all are put back: programs[i] is that of the i-th interface before.
func (h *handover) release(leaving []port, programs []*ebpf.Program) error {
	for at, p := range leaving {
		i := h.d.current.portAt(p)
		err := h.d.holds[i].Close()
		if err == nil || p.deleted() {
			continue
		}
		err = fmt.Errorf("detaching from %s in %s (it goes on there): %w", p.name, h.d.way.name, err)
		// The last one, too: it is not ours to exchange any more.
		for _, p := range leaving[:at+1] {
			back := h.d.current.portAt(p)
			again, failed := h.d.attach(programs[back], p, h.d.way)
			if failed != nil {
				err = errors.Join(err, attachError(failed, p, h.d.way))
				continue
			}
			h.d.holds[back] = again
		}
		return err
	}
	return nil
}
