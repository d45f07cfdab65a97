// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"

	"github.com/jeoul/jeoul/internal/balancer/datapath/libxdp"
	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// An interface has one XDP program. libxdp's dispatcher runs several, and we join it where that is possible
// (dispatched.go). TC runs any number of programs; two of ours would balance twice.

// DispatcherName is the name of the dispatcher's program, in each version of libxdp.
const DispatcherName = "xdp_dispatcher"

// holder is the program that is attached to an interface where ours would be.
type holder struct {
	port Port
	id   ebpf.ProgramID
	// name is empty where it cannot be read.
	name string
	// link is the id of the link that keeps it attached; 0: it was attached without one.
	link link.ID
	// runs are the programs that libxdp's dispatcher runs, and foreign is why libxdp's protocol cannot read it.
	runs    []string
	foreign error
}

// holderOf describes the program that is attached to an interface where ours would be, and the remedy, in the words
// that follow "another program is attached". Where no program is visible it gives the remedy only.
func holderOf(p Port, m Method) holder {
	h := holder{port: p}
	if m.Hook == lb.HookTC {
		h.id, _ = otherBalancerOn(p)
	} else {
		h.id = xdpOn(p)
	}
	if h.id != 0 {
		h.name, _ = programName(h.id)
		h.readLinks()
	}
	if h.name == DispatcherName {
		_, _, h.foreign = libxdp.Components(p.Index)
	}
	return h
}

// otherBalancerOn returns the program of another data plane of Jeoul's that is attached to an interface by TCX.
func otherBalancerOn(p Port) (ebpf.ProgramID, bool) {
	result, err := link.QueryPrograms(link.QueryOptions{Target: p.Index, Attach: ebpf.AttachTCXIngress})
	if err != nil {
		return 0, false // a kernel without TCX
	}
	for _, one := range result.Programs {
		if name, _ := programName(one.ID); name == objects.TCProgJeoulTc {
			return one.ID, true
		}
	}
	return 0, false
}

// OursOn returns a program of Jeoul's that is attached to an interface by a link or by netlink.
func OursOn(p Port) (ebpf.ProgramID, bool) {
	if id := xdpOn(p); id != 0 {
		if name, _ := programName(id); name == objects.XDPProgJeoulXdp {
			return id, true
		}
		if id, found := dispatchedOn(p); found {
			return id, true
		}
	}
	return otherBalancerOn(p)
}

// xdpOn returns the XDP program on an interface; 0: none.
func xdpOn(p Port) ebpf.ProgramID {
	nl, err := netlink.LinkByIndex(p.Index)
	if err != nil || nl.Attrs().Xdp == nil {
		return 0
	}
	return ebpf.ProgramID(nl.Attrs().Xdp.ProgId)
}

// programName returns the name and the type of a loaded program; an empty name where it cannot be read.
func programName(id ebpf.ProgramID) (string, ebpf.ProgramType) {
	program, err := ebpf.NewProgramFromID(id)
	if err != nil {
		return "", ebpf.UnspecifiedProgram
	}
	defer program.Close()
	info, err := program.Info()
	if err != nil {
		return "", ebpf.UnspecifiedProgram
	}
	return info.Name, info.Type
}

// readLinks looks among all links for the one that keeps the program, and for those that replace
// functions of it.
func (h *holder) readLinks() {
	links := new(link.Iterator)
	defer links.Close()
	for links.Next() {
		info, err := links.Link.Info()
		if err != nil {
			continue
		}
		if info.Program == h.id {
			h.link = links.ID
		}
		if t := info.Tracing(); t == nil || t.TargetObjectId != uint32(h.id) {
			continue
		}
		// The target's id may also be that of type information (BTF): a link to a kernel function has such a target.
		if name, kind := programName(info.Program); kind == ebpf.Extension {
			h.runs = append(h.runs, name)
		}
	}
	slices.Sort(h.runs)
}

func (h holder) String() string {
	description, remedy := h.describe()
	return description + ": " + remedy
}

// anotherBalancer returns the remedy where the attached program is another balancer's.
func (h holder) anotherBalancer() string {
	return fmt.Sprintf("it is of another balancer, which may have another --state-dir: stop it, or take away what one "+
		"has left, with `jeoul detach --interface %s`", h.port.Name)
}

func (h holder) describe() (description, remedy string) {
	description = fmt.Sprintf(" (program %q, id %d)", h.name, h.id)
	const after = "or set hook: tc, which takes the packets that it passes"
	switch {
	case h.name == objects.XDPProgJeoulXdp || h.name == objects.TCProgJeoulTc:
		return description, h.anotherBalancer()
	case h.name == DispatcherName:
		description = fmt.Sprintf(" (libxdp's dispatcher, id %d", h.id)
		if len(h.runs) > 0 {
			description += ", which runs " + strings.Join(h.runs, ", ")
		}
		description += ")"
		if slices.Contains(h.runs, objects.XDPProgJeoulXdp) {
			return description, h.anotherBalancer()
		}
		if h.foreign != nil {
			description += fmt.Sprintf(", which Jeoul cannot join: %v", h.foreign)
		}
		return description, fmt.Sprintf("take its programs off with `xdp-loader unload %s --all`, %s", h.port.Name, after)
	case h.link != 0:
		return description, fmt.Sprintf("stop its owner, or take it off with `bpftool link detach id %d`, %s", h.link, after)
	case h.id == 0:
		description = ""
	case h.name == "":
		description = fmt.Sprintf(" (program id %d)", h.id)
	}
	return description, fmt.Sprintf("stop its owner, or remove it with `ip link set dev %s xdp off`, %s", h.port.Name, after)
}
