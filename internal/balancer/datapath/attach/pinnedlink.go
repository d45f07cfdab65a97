// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// Releaser is a Hold that the process can release while the program stays attached.
type Releaser interface {
	// Release closes the handles; the program stays attached.
	Release() error
}

// LinkPin returns the name of the pin of an interface's link, by the interface's index.
func (m Method) LinkPin(index int) string { return m.LinkPrefix() + strconv.Itoa(index) }

// LinkPrefix returns the prefix of the names of the pins of a method's links.
func (m Method) LinkPrefix() string {
	return strings.ReplaceAll(strings.ToLower(m.Name), " ", "-") + "-"
}

// OpenLink opens the link that is pinned at a path, and returns the id of its program.
func OpenLink(path string) (Hold, ebpf.ProgramID, error) {
	l, err := link.LoadPinnedLink(path, nil)
	if err != nil {
		return nil, 0, fmt.Errorf("%s is no link of ours: %w", path, err)
	}
	info, err := l.Info()
	if err != nil {
		return nil, 0, errors.Join(fmt.Errorf("asking for the program of %s: %w", path, err), l.Close())
	}
	return PinnedLink{l}, info.Program, nil
}

// InterfaceOf returns the index of the interface that a pinned link is attached to, in the link's own network
// namespace; 0: the interface was deleted.
func InterfaceOf(path string) (uint32, error) {
	l, err := link.LoadPinnedLink(path, nil)
	if err != nil {
		return 0, fmt.Errorf("%s is no link of ours: %w", path, err)
	}
	defer l.Close()
	info, err := l.Info()
	if err != nil {
		return 0, fmt.Errorf("asking for the interface of %s: %w", path, err)
	}
	if xdp := info.XDP(); xdp != nil {
		return xdp.Ifindex, nil
	}
	if tcx := info.TCX(); tcx != nil {
		return tcx.Ifindex, nil
	}
	return 0, fmt.Errorf("%s is a link of another kind: %v", path, info.Type)
}

// PinnedLink keeps a program attached to an interface, also when the process ends.
type PinnedLink struct{ link.Link }

// Release closes the handle of the link; the program stays attached.
func (p PinnedLink) Release() error { return p.Link.Close() }

// Close detaches the program, also where a pin that cannot be reached keeps the link, such as one under another mount.
// The pin is removed first: a detached link is of no use to the next process.
func (p PinnedLink) Close() error {
	err := p.Unpin()
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return errors.Join(err, p.Detach(), p.Link.Close())
}
