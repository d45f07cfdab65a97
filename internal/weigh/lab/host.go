// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/weigh/lab/netns"
	"github.com/jeoul/jeoul/internal/weigh/lab/topology"
)

// Host is one machine of a lab: a network namespace and the processes in it.
type Host struct {
	Name string
	// Interface is the host's one device; empty for the switch.
	Interface string
	// Port is the other end of the host's link, on the switch or in the bridge that the host is behind; empty for the
	// switch.
	Port string
	// Bridge is the device of the bridge that servers are behind, on a balancer that has servers as containers; empty
	// on all others.
	Bridge string
	// Uplink is the device of a balancer's own link to the router, where there are several balancers (Uplink4 is its
	// address, Gateway4 the router's address, GatewayPort the router's device); empty on all others.
	Uplink, GatewayPort string
	Uplink4, Gateway4   netip.Addr
	// Cgroup is the path of the cgroup in which everything started on the host runs, as the host's programs see it;
	// empty where there is none.
	Cgroup string
	MAC    net.HardwareAddr
	IPv4   netip.Addr
	IPv6   netip.Addr
	// Dir is the host's own directory, inside the lab's.
	Dir string
	// Namespace is the name that `ip netns exec` takes.
	Namespace string

	lab    *Lab
	role   topology.Role
	number int
	// portOn is the host that has Port.
	portOn *Host
	cgroup *os.File

	// mu guards the access to the namespaces: while it is read-locked, the files are open and the keeper runs.
	mu     sync.RWMutex
	closed bool
	keeper *netns.Keeper
	netns  *os.File
	mntns  *os.File
	// root is the root of this process, seen from the root of mntns.
	root  string
	inode uint64

	// machine is the path to a host that is no namespace of this machine, executable the path of the jeoul binary
	// there.
	machine    Machine
	executable string
}

// Do runs f on an OS thread inside the host's network namespace, with the host's /sys mounted, and returns its error.
// The thread is f's alone and ends with it; goroutines that f starts are outside of the namespace, but sockets that f
// opens stay inside. Several Do may run at once, and nest. Do returns ErrClosed after the lab was closed, and ErrRemote
// where the host is a machine. A lab's namespaces continue to exist while f runs.
func (h *Host) Do(f func() error) error {
	if h.machine != nil {
		return fmt.Errorf("enter host %s: %w", h.Name, ErrRemote)
	}
	var err error
	returned := false
	done := make(chan struct{})
	netns.OnOwnThread(func() {
		defer close(done)
		if err = h.enter(); err == nil {
			err = f()
		}
		returned = true
	})
	<-done
	if !returned {
		// f ended its goroutine (a test's FailNow does): end the caller's goroutine, too, because f meant that.
		runtime.Goexit()
	}
	return err
}

// enter moves the calling thread into the host's namespaces. It keeps the working directory, so that relative paths
// mean the same as outside.
func (h *Host) enter() error {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if h.closed {
		return fmt.Errorf("enter host %s: %w", h.Name, ErrClosed)
	}
	dir, err := os.Getwd()
	if err != nil {
		return fmt.Errorf("enter host %s: %w", h.Name, err)
	}
	err = errors.Join(
		// A thread that shares its root and working directory with others may not change its mount namespace.
		unix.Unshare(unix.CLONE_FS),
		unix.Setns(int(h.mntns.Fd()), unix.CLONE_NEWNS),
		unix.Setns(int(h.netns.Fd()), unix.CLONE_NEWNET),
		netns.EnterRoot(h.root, dir),
	)
	if err != nil {
		return fmt.Errorf("enter host %s: %w", h.Name, err)
	}
	return nil
}

// onKeeper runs f on the thread that lives as long as the host.
func (h *Host) onKeeper(f func() error) error {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if h.closed {
		return fmt.Errorf("enter host %s: %w", h.Name, ErrClosed)
	}
	return h.keeper.Do(f)
}

// leave ends the host's thread and releases its namespaces.
func (h *Host) leave() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return
	}
	h.closed = true
	if h.keeper == nil {
		return
	}
	h.keeper.Stop()
	h.cgroup.Close() // nil gives an error, which is ignored
	h.netns.Close()
	h.mntns.Close()
}
