// SPDX-License-Identifier: Apache-2.0

package checkpath

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"

	"github.com/jeoul/jeoul/internal/balancer/checknet"
	"github.com/jeoul/jeoul/internal/balancer/datapath/attach"
	"github.com/jeoul/jeoul/internal/balancer/datapath/mapmem"
	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
	"github.com/jeoul/jeoul/internal/balancer/datapath/readview"
	"github.com/jeoul/jeoul/internal/balancer/datapath/sharedmaps"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/host/memleft"
)

// A mismatch of the sockets' first port and the program's does not compile.
var _ [checknet.FirstPort]struct{} = [objects.XDPCheckAgreementCHECK_FIRST_PORT]struct{}{}

// Open sets up the path of health checks through the published data plane, which receives packets on these interfaces:
// nothing of it outlives the process. Errors: checknet.ErrNoRights, attach.ErrUnsupported, lb.ErrTooLarge.
func Open(shown *readview.Published, ports []attach.Port) (*Checks, error) {
	c := &Checks{published: shown}
	c.SetPorts(ports)
	if err := c.open(); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// Answers returns the map that programs look answers up in; nil where there is no path for checks.
func (c *Checks) Answers() *ebpf.Map {
	if c == nil {
		return nil
	}
	return c.answers
}

// Targets returns the map of the backends that are checked, by their mark.
func (c *Checks) Targets() *ebpf.Map { return c.targets }

// Plan returns the kernel memory of the maps of the path for health checks; none where there is no path.
func (c *Checks) Plan() lb.MemoryPlan {
	if c == nil {
		return lb.MemoryPlan{}
	}
	return c.plan
}

// open creates the namespace, and attaches the programs to both ends of its veth.
func (c *Checks) open() (err error) {
	if c.net, err = checknet.Open(); err != nil {
		return err
	}
	c.closers = append(c.closers, c.net)
	if err := c.openSender(); err != nil {
		return err
	}
	return c.openInside()
}

// Close removes the namespace, the programs and the maps.
func (c *Checks) Close() error {
	if c == nil {
		return nil
	}
	var errs []error
	for i := len(c.closers) - 1; i >= 0; i-- {
		errs = append(errs, c.closers[i].Close())
	}
	return errors.Join(errs...)
}

// openSender loads and attaches the program that forwards checks.
func (c *Checks) openSender() error {
	spec, err := objects.LoadCheck()
	if err != nil {
		return fmt.Errorf("reading the embedded eBPF program: %v", err)
	}
	c.plan = sharedmaps.PlanChecks(spec)
	if err := sharedmaps.CheckPlan(c.plan, memleft.Read(os.DirFS("/"))); err != nil {
		return err
	}
	if c.answers, err = ebpf.NewMap(spec.Maps[objects.CheckMapCheckAnswers]); err != nil {
		return attach.LoadError(fmt.Errorf("making the map of answers to health checks: %w", err))
	}
	c.closers = append(c.closers, c.answers)
	// All modes, because a change of the configuration may need others.
	constants := objects.XDPSettings{Modes: 1<<(objects.XDPModeMODE_FULLNAT+1) - 1, Interface: uint32(c.net.Outer()),
		Weak: mapmem.Weak()}
	if err := spec.Variables[objects.CheckVarLoaded].Set(constants); err != nil {
		return fmt.Errorf("setting the program's constants: %v", err)
	}
	var loaded struct {
		Program *ebpf.Program `ebpf:"jeoul_check"`
		Targets *ebpf.Map     `ebpf:"check_targets"`
	}
	if err := spec.LoadAndAssign(&loaded,
		&ebpf.CollectionOptions{MapReplacements: map[string]*ebpf.Map{
			objects.CheckMapCheckAnswers: c.answers,
		}}); err != nil {
		return attach.LoadError(err)
	}
	c.targets = loaded.Targets
	c.closers = append(c.closers, loaded.Targets, loaded.Program)
	return c.net.Host(func() error { return c.attach(loaded.Program, c.net.Outer(), ebpf.AttachTCXIngress) })
}

// openInside attaches programs to the end of the veth in the sockets' namespace: one marks outgoing packets, one passes
// incoming ones, because a veth receives frames that XDP sends only where it runs XDP itself.
func (c *Checks) openInside() error {
	spec, err := objects.LoadMark()
	if err != nil {
		return fmt.Errorf("reading the embedded eBPF program: %v", err)
	}
	marks, err := ebpf.NewProgram(spec.Programs[objects.MarkProgJeoulMark])
	if err != nil {
		return attach.LoadError(err)
	}
	c.closers = append(c.closers, marks)
	pass, err := attach.PassXDP()
	if err != nil {
		return err
	}
	c.closers = append(c.closers, pass)
	return c.net.Inside(func() error {
		if err := c.attach(marks, c.net.Inner(), ebpf.AttachTCXEgress); err != nil {
			return err
		}
		l, err := link.AttachXDP(link.XDPOptions{Interface: c.net.Inner(), Program: pass, Flags: link.XDPDriverMode})
		return c.noteLink(l, err)
	})
}

// noteLink adds a link to those that Close closes.
func (c *Checks) noteLink(l io.Closer, err error) error {
	if err != nil {
		return fmt.Errorf("attaching to the device of health checks: %w", err)
	}
	c.closers = append(c.closers, l)
	return nil
}

// attach attaches a program to an end of the veth, in whose namespace the calling thread is. Where the kernel has no
// TCX it is a filter, which is removed with the device.
func (c *Checks) attach(program *ebpf.Program, index int, at ebpf.AttachType) error {
	l, err := link.AttachTCX(link.TCXOptions{Interface: index, Program: program, Attach: at})
	if err == nil || !attach.Unsupported(err) {
		return c.noteLink(l, err)
	}
	direction := uint32(netlink.HANDLE_MIN_INGRESS)
	if at == ebpf.AttachTCXEgress {
		direction = netlink.HANDLE_MIN_EGRESS
	}
	if err := attach.AddFilter(program, index, direction); err != nil {
		return fmt.Errorf("attaching to the device of health checks: %w", err)
	}
	return nil
}
