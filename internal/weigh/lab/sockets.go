// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strconv"

	"github.com/vishvananda/netlink"

	"github.com/jeoul/jeoul/internal/host/sysctl"
	"github.com/jeoul/jeoul/internal/weigh/lab/measure"
)

// Sockets counts the host's TCP sockets; on a machine, only those of the lab.
func (h *Host) Sockets() (SocketCount, error) {
	if h.machine != nil {
		return runTask(socketsTask, h, h.scope())
	}
	return h.sockets(measure.Scope{})
}

func (h *Host) sockets(of measure.Scope) (SocketCount, error) {
	var count SocketCount
	err := h.Do(func() (err error) {
		count, err = measure.CountSockets(of)
		return err
	})
	if err != nil {
		return SocketCount{}, fmt.Errorf("count the sockets of %s: %w", h.Name, err)
	}
	return count, nil
}

// DestroySockets ends every TCP socket of the host that is not listening, immediately and in any state: a
// trial does not wait for the sockets that the previous one left, most of them in TIME-WAIT. Peers of open connections
// see a reset. It returns ErrNoSocketDestroy on a kernel that cannot.
//
// On a machine it ends only the lab's sockets.
func (h *Host) DestroySockets() error {
	if h.machine == nil {
		return h.destroySockets(measure.Scope{})
	}
	can, err := runTask(destroySocketsTask, h, h.scope())
	if err == nil && !can {
		err = fmt.Errorf("destroy the sockets of %s: %w", h.Name, ErrNoSocketDestroy)
	}
	return err
}

func (h *Host) destroySockets(of measure.Scope) error {
	err := h.Do(func() error { return measure.DestroySockets(of) })
	if err != nil {
		return fmt.Errorf("destroy the sockets of %s: %w", h.Name, err)
	}
	return nil
}

// Conntrack returns the number of connections that the host tracks; 0 where the kernel has no connection tracking.
//
// On a machine it counts the connections that were made to the VIP.
func (h *Host) Conntrack() (int, error) {
	if h.machine != nil {
		return runTask(conntrackTask, h, measure.ConntrackTo{Address: h.lab.VIP4})
	}
	var n int
	err := h.Do(func() error {
		value, err := sysctl.Read("net.netfilter.nf_conntrack_count")
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		n, err = strconv.Atoi(value)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("count the tracked connections of %s: %w", h.Name, err)
	}
	return n, nil
}

// FlushConntrack deletes the connections that the host tracks; on a machine, those that were made to the VIP.
func (h *Host) FlushConntrack() error {
	if h.machine != nil {
		_, err := runTask(forgetTask, h, measure.ConntrackTo{Address: h.lab.VIP4})
		return err
	}
	return h.Do(func() error { return netlink.ConntrackTableFlush(netlink.ConntrackTable) })
}

var (
	socketsTask = NewTask("sockets", func(_ context.Context, h *Host, of measure.Scope) (SocketCount, error) {
		return h.sockets(of)
	})
	// The result reports whether this kernel can.
	destroySocketsTask = NewTask("destroy-sockets", func(_ context.Context, h *Host, of measure.Scope) (bool, error) {
		err := h.destroySockets(of)
		if errors.Is(err, ErrNoSocketDestroy) {
			return false, nil
		}
		return err == nil, err
	})
	conntrackTask = NewTask("conntrack", func(_ context.Context, h *Host, of measure.ConntrackTo) (int, error) {
		n := 0
		err := h.Do(func() (err error) {
			n, err = of.Count()
			return err
		})
		return n, err
	})
	forgetTask = NewTask("forget-tracked", func(_ context.Context, h *Host, of measure.ConntrackTo) (nothing, error) {
		return nothing{}, h.Do(of.Delete)
	})
)
