// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/weigh/lab/claim"
	"github.com/jeoul/jeoul/internal/weigh/lab/netdev"
	"github.com/jeoul/jeoul/internal/weigh/lab/netns"
	"github.com/jeoul/jeoul/internal/weigh/lab/topology"
)

// makeDir makes the work directory. The lock file names it before it exists, so
// that a cleaner finds it whenever the owner dies.
func (l *Lab) makeDir() error {
	l.Dir = l.spec.Dir
	if l.Dir == "" {
		l.ownDir = true
		l.Dir = filepath.Join(os.TempDir(), claim.DirName(l.ID))
	}
	var err error
	if l.Dir, err = filepath.Abs(l.Dir); err != nil {
		return fmt.Errorf("find the work directory: %w", err)
	}
	r := claim.Record{PID: os.Getpid()}
	if l.ownDir {
		r.Dir = l.Dir
		// No lab has a directory of that name any more: this lab has the ID now.
		if err := os.RemoveAll(l.Dir); err != nil {
			return fmt.Errorf("make room for the work directory: %w", err)
		}
	}
	if err := l.lock.Write(r); err != nil {
		return err
	}
	if !l.ownDir {
		err = os.MkdirAll(l.Dir, 0o755)
	} else {
		err = makeOpenDir(l.Dir)
	}
	if err != nil {
		return fmt.Errorf("make the work directory: %w", err)
	}
	return nil
}

// makeOpenDir makes a directory that other users may enter, whatever the umask: web servers read their files as users
// of their own.
func makeOpenDir(dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	return os.Chmod(dir, 0o755)
}

// newHost makes the namespaces of a host and the thread that keeps them alive.
func newHost(l *Lab, r topology.Role, n int) (*Host, error) {
	h := &Host{Name: topology.HostName(r, n), lab: l, role: r, number: n}
	h.Dir = filepath.Join(l.Dir, h.Name)
	h.Namespace = netns.Name(l.ID, h.Name)
	if err := makeOpenDir(h.Dir); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("make the directory of host %s: %w", h.Name, err)
	}
	k, err := netns.NewKeeper(h.enterNew)
	if err != nil {
		h.netns.Close()
		h.mntns.Close()
		return nil, fmt.Errorf("make the namespace of host %s: %w", h.Name, err)
	}
	h.keeper = k
	return h, nil
}

// enterNew moves the calling thread into new namespaces: a network namespace
// under the host's name, and a mount namespace whose /sys shows that network.
func (h *Host) enterNew() error {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		if err == unix.EPERM {
			return fmt.Errorf("%w: unsharing the network namespace is refused; a container needs CAP_SYS_ADMIN",
				ErrNoRights)
		}
		return fmt.Errorf("unshare the network namespace: %w", err)
	}
	if err := netns.Bind(h.Namespace); err != nil {
		return err
	}
	var err error
	if h.netns, err = os.Open("/proc/thread-self/ns/net"); err != nil {
		return err
	}
	if h.inode, err = netns.Inode(h.netns); err != nil {
		return err
	}
	if h.root, err = netns.OwnMounts(); err != nil {
		return err
	}
	h.mntns, err = os.Open("/proc/thread-self/ns/mnt")
	return err
}

func (l *Lab) addSwitch() (*Host, error) {
	h, err := newHost(l, topology.Switch, 0)
	if err != nil {
		return nil, err
	}
	err = h.onKeeper(func() error {
		if err := l.setSysctls(topology.Switch); err != nil {
			return err
		}
		return netdev.BuildBridge(topology.PortMAC(topology.Switch, 0))
	})
	if err != nil {
		return h, fmt.Errorf("set up the switch: %w", err)
	}
	return h, nil
}

// addHost makes host n of a role and connects it. It returns the host with an error, too, if there is already something
// to remove.
func (l *Lab) addHost(r topology.Role, n int) (*Host, error) {
	h, err := newHost(l, r, n)
	if err != nil {
		return nil, err
	}
	h.Interface, h.Port = topology.DeviceName(h.Name, l.ID), topology.PortName(h.Name, l.ID)
	h.MAC = topology.MAC(r, n)
	h.IPv4, h.IPv6 = topology.Addresses(r, n)
	h.portOn = l.Switch
	if l.contained(r) {
		h.IPv4, h.IPv6 = topology.ContainerAddresses(n)
		h.portOn = l.Balancer
	}
	if err := h.onKeeper(func() error { return h.prepare(l) }); err != nil {
		return h, fmt.Errorf("set up host %s: %w", h.Name, err)
	}
	if err := h.portOn.onKeeper(func() error { return connect(h) }); err != nil {
		return h, err
	}
	if err := h.onKeeper(func() error { return h.configure(l) }); err != nil {
		return h, fmt.Errorf("set up host %s: %w", h.Name, err)
	}
	if err := h.portOn.onKeeper(func() error { return h.configurePort(l) }); err != nil {
		return h, fmt.Errorf("set up the port of %s on %s: %w", h.Name, h.portOn.Name, err)
	}
	return h, nil
}

// prepare sets the host up before its device exists.
func (h *Host) prepare(l *Lab) error {
	if err := l.setSysctls(h.role); err != nil {
		return err
	}
	return netdev.Up("lo")
}

// setSysctls sets the sysctls of a role in the calling thread's namespace.
func (l *Lab) setSysctls(r topology.Role) error {
	refused, err := topology.SetSysctls(topology.SysctlsOf(r, l.spec.KernelSettings))
	for _, name := range refused {
		if !slices.Contains(l.refused, name) {
			l.refused = append(l.refused, name)
		}
	}
	return err
}

// configure sets the host's device and its addresses. It runs inside the host.
func (h *Host) configure(l *Lab) error {
	if err := h.useQueues(l); err != nil {
		return err
	}
	if err := l.setDevice(h.Interface, l.hostOffloads()); err != nil {
		return err
	}
	note, err := h.address()
	if note != "" {
		l.note(note)
	}
	if err == nil && l.contained(h.role) {
		err = h.routeByBridge()
	}
	return err
}

// configurePort sets up the far end of the host's link. It runs in the namespace of that end.
func (h *Host) configurePort(l *Lab) error {
	if err := l.setDevice(h.Port, l.portOffloads(h)); err != nil {
		return err
	}
	if h.role != topology.Balancer {
		return nil
	}
	return netdev.AcceptXDP(h.Port)
}

// connect makes the link of host h: one end in h, the other a port of the switch, or of the bridge that h is behind. It
// runs in the namespace of the port.
func connect(h *Host) error {
	bridge, err := netlink.LinkByName(netdev.Bridge)
	if err != nil {
		return fmt.Errorf("find the bridge %s: %w", netdev.Bridge, err)
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name = h.Port
	attrs.HardwareAddr = topology.PortMAC(h.role, h.number)
	attrs.MasterIndex = bridge.Attrs().Index
	queues, back := h.lab.queues(), h.lab.backQueues(h)
	attrs.NumTxQueues, attrs.NumRxQueues = queues, back
	veth := netlink.NewVeth(attrs)
	veth.PeerName = h.Interface
	veth.PeerHardwareAddr = h.MAC
	veth.PeerNamespace = netlink.NsFd(h.netns.Fd())
	veth.PeerNumTxQueues, veth.PeerNumRxQueues = uint32(back), uint32(queues)
	if err := netlink.LinkAdd(veth); err != nil {
		return fmt.Errorf("link %s to %s: %w", h.Name, h.portOn.Name, err)
	}
	return nil
}

// setDevice sets a device's offloads and its queueing, and sets it up. It runs inside the device's namespace.
func (l *Lab) setDevice(name string, offloads netdev.Offloads) error {
	if err := netdev.Up(name); err != nil {
		return err
	}
	if err := l.setQueues(name); err != nil {
		return err
	}
	return l.apply(name, offloads)
}

// address gives the host's device its addresses and sets the congestion control of the routes that come with them. It
// runs inside the host. The note returned gives the reason why congestion control could not be set.
func (h *Host) address() (note string, err error) {
	return netdev.AddAddresses(h.Interface, h.IPv4, h.IPv6)
}
