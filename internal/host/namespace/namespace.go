// SPDX-License-Identifier: Apache-2.0

// Package namespace holds on to a network namespace and runs code inside it.
//
// The network namespace is a property of the operating system thread that makes a system call: sockets are created in
// it, and /proc/sys/net shows its values. Go moves goroutines between threads, so code that has to use a namespace
// later, from any goroutine, keeps a Namespace and uses Do.
package namespace

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

var errUnfinished = errors.New("the work in the network namespace ended early")

// Namespace is an open handle on a network namespace, which lives at least
// until Close. It is safe for concurrent use.
type Namespace struct {
	handle netns.NsHandle
	inode  uint64
}

// Current returns the network namespace of the calling thread.
func Current() (*Namespace, error) {
	handle, err := netns.GetFromPath("/proc/thread-self/ns/net")
	if err != nil {
		return nil, fmt.Errorf("open the network namespace of this thread: %w", err)
	}
	n, err := fromHandle(handle)
	if err != nil {
		handle.Close()
		return nil, err
	}
	return n, nil
}

// Named returns the network namespace of a name known to `ip netns`.
func Named(name string) (*Namespace, error) {
	handle, err := netns.GetFromName(name)
	if err != nil {
		return nil, fmt.Errorf("open the network namespace %s (`ip netns` lists them): %w", name, err)
	}
	n, err := fromHandle(handle)
	if err != nil {
		handle.Close()
		return nil, err
	}
	return n, nil
}

// New creates a network namespace without a name, which is deleted with the last process, thread and handle in it, also
// after kill -9. Its loopback interface is down.
func New() (*Namespace, error) {
	var created *Namespace
	err := onOwnThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("make a network namespace: %w", err)
		}
		var err error
		created, err = Current()
		return err
	})
	return created, err
}

func fromHandle(handle netns.NsHandle) (*Namespace, error) {
	var stat unix.Stat_t
	if err := unix.Fstat(int(handle), &stat); err != nil {
		return nil, fmt.Errorf("look at a network namespace: %w", err)
	}
	return &Namespace{handle: handle, inode: stat.Ino}, nil
}

// Handle returns the file descriptor, for libraries that need one. The Namespace owns it: do not close it.
func (n *Namespace) Handle() netns.NsHandle { return n.handle }

// Inode returns the namespace's inode number, its identity among existing namespaces: the number of a deleted one may
// be reused.
func (n *Namespace) Inode() uint64 { return n.inode }

// Cookie returns the kernel's cookie of this namespace, which is never reused before a reboot; 0 on kernels before
// 5.14, which have none.
func (n *Namespace) Cookie() (uint64, error) {
	var cookie uint64
	err := n.Do(func() error {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("open a socket: %w", err)
		}
		defer unix.Close(fd)
		cookie, err = unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
		if err == unix.ENOPROTOOPT {
			return nil
		}
		if err != nil {
			return fmt.Errorf("ask for the network namespace's cookie: %w", err)
		}
		return nil
	})
	return cookie, err
}

// Do runs f on a thread in the namespace and returns f's error. Goroutines that f starts do not run in the namespace.
// If the process is in the namespace already, Do needs no privileges.
func (n *Namespace) Do(f func() error) error {
	return onOwnThread(func() error {
		if err := n.enter(); err != nil {
			return err
		}
		return f()
	})
}

// Visit runs f on the calling thread in the namespace, and returns the thread to home, the namespace that it is in. It
// costs two system calls, where Do costs a thread. If the return fails, the thread stays locked to the goroutine, and
// ends with it.
func (n *Namespace) Visit(home *Namespace, f func() error) error {
	runtime.LockOSThread()
	if err := netns.Set(n.handle); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("enter the network namespace: %w", os.NewSyscallError("setns", err))
	}
	err := f()
	if back := netns.Set(home.handle); back != nil {
		return errors.Join(err, fmt.Errorf("return to the network namespace: %w", os.NewSyscallError("setns", back)))
	}
	runtime.UnlockOSThread()
	return err
}

func (n *Namespace) enter() error {
	var stat unix.Stat_t
	if err := unix.Stat("/proc/thread-self/ns/net", &stat); err == nil && stat.Ino == n.inode {
		return nil
	}
	if err := netns.Set(n.handle); err != nil {
		return fmt.Errorf("enter the network namespace: %w", os.NewSyscallError("setns", err))
	}
	return nil
}

// onOwnThread runs f on a locked thread and never unlocks it: a thread that has been in another namespace must not run
// other goroutines, and the runtime terminates it with its goroutine.
func onOwnThread(f func() error) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		// The result if f leaves by runtime.Goexit, as a failed test does.
		err := errUnfinished
		defer func() { result <- err }()
		err = f()
	}()
	return <-result
}

// Close releases the namespace.
func (n *Namespace) Close() error { return n.handle.Close() }
