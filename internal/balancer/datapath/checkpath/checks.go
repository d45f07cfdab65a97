// SPDX-License-Identifier: Apache-2.0

package checkpath

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync/atomic"

	"github.com/cilium/ebpf"

	"github.com/jeoul/jeoul/internal/balancer/checknet"
	"github.com/jeoul/jeoul/internal/balancer/datapath/attach"
	"github.com/jeoul/jeoul/internal/balancer/datapath/generation"
	"github.com/jeoul/jeoul/internal/balancer/datapath/mapmem"
	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
	"github.com/jeoul/jeoul/internal/balancer/datapath/readview"
	"github.com/jeoul/jeoul/internal/balancer/health"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// Checks connect to one backend of a service by the service's VIP, along the path of the service's packets. Their
// sockets are in a namespace of their own (internal/balancer/checknet). One program marks outgoing packets with the
// backend, by their socket; another forwards them by the functions of the data path; and answers are recognised among
// arriving packets that are for no service.
//
// The present row of a backend is written into the map of check targets when a check of it begins: so the program need
// not be replaced with the generation, and checks do not wait for a change.
type Checks struct {
	published *readview.Published
	net       *checknet.Net
	// first is the index of the interface that checks leave by where the path names none: the first one that packets
	// arrive on.
	first atomic.Int64
	// targets has the targets by their mark; answers is shared with the programs that receive packets.
	targets, answers *ebpf.Map
	// plan is the kernel memory of the two maps.
	plan     lb.MemoryPlan
	closers  []io.Closer
	services atomic.Pointer[serviceIndex]

	written targets
}

// serviceIndex has the services of a view by their keys.
type serviceIndex struct {
	view  *readview.View
	byKey map[lb.ServiceKey]*generation.Record
}

// Dial opens a connection to a port of the VIP on a backend: network is "tcp" or "udp". In the modes that translate,
// the port is that of the backend's own address. A UDP socket is connected. Errors: those of net.Dialer,
// health.ErrNoPath and ErrClosed.
func (c *Checks) Dial(ctx context.Context, network string, backend lb.BackendKey, port uint16) (net.Conn, error) {
	t, err := c.target(backend, port)
	if err != nil {
		return nil, err
	}
	return c.net.Dial(ctx, network, t)
}

// Ping sends an echo request to the VIP on a backend, and waits for its reply until the context
// ends. Mode dscp forwards no ICMP to a VIP: health.ErrNoPath.
func (c *Checks) Ping(ctx context.Context, backend lb.BackendKey) error {
	r, _, err := c.find(backend)
	if err != nil {
		return err
	}
	if r.Service.Mode == lb.DSCP {
		return fmt.Errorf(
			"%w: mode dscp takes TCP and UDP to the VIP, and no ICMP: set via: address, or check by TCP or UDP",
			health.ErrNoPath)
	}
	t, err := c.target(backend, 0)
	if err != nil {
		return err
	}
	return c.net.Ping(ctx, t)
}

var _ health.VIPDialer = (*Checks)(nil)

// target finds a backend, and writes its row into the map of check targets.
func (c *Checks) target(key lb.BackendKey, port uint16) (checknet.Target, error) {
	vip := key.Service.VIP
	t := checknet.Target{Remote: netip.AddrPortFrom(vip, port), ReplySource: netip.AddrPortFrom(vip, port)}
	r, i, err := c.find(key)
	if err != nil {
		return t, err
	}
	row, err := c.targetOf(r, i)
	if err != nil {
		return t, err
	}
	if r.Service.Mode.Translates() {
		t.ReplySource = netip.AddrPortFrom(key.Address, port)
	}
	t.Mark, err = c.written.store(c.targets, key, row, c.present)
	return t, err
}

// SetPorts records the interfaces after a change.
func (c *Checks) SetPorts(ports []attach.Port) {
	if c != nil {
		c.first.Store(int64(ports[0].Index))
	}
}

// find looks for a backend in the data plane's present configuration.
func (c *Checks) find(key lb.BackendKey) (*generation.Record, int, error) {
	p := c.published.Load()
	if p.Err != nil {
		return nil, 0, p.Err
	}
	found := c.services.Load()
	if found == nil || found.view != p {
		found = &serviceIndex{view: p, byKey: make(map[lb.ServiceKey]*generation.Record, len(p.Records))}
		for _, r := range p.Records {
			found.byKey[r.Key] = r
		}
		c.services.Store(found)
	}
	r := found.byKey[key.Service]
	if r == nil {
		return nil, 0, fmt.Errorf("%w: the data plane does not have the service", health.ErrForNow)
	}
	for i, b := range r.Service.Backends {
		if b.Address == key.Address && b.Port == key.Port {
			return r, i, nil
		}
	}
	return nil, 0, fmt.Errorf("%w: the data plane does not have it", health.ErrForNow)
}

// targetOf returns the path and mode by which packets of checks reach backend i of a service.
func (c *Checks) targetOf(r *generation.Record, i int) (objects.XDPCheckTarget, error) {
	s := &r.Service
	if !s.Reachable(i) {
		return objects.XDPCheckTarget{}, fmt.Errorf("%w: the MAC address of the next hop is unknown", health.ErrNoPath)
	}
	t := objects.XDPCheckTarget{Backend: r.Row(i), Mode: uint8(generation.ModeNumbers[s.Mode]), Tos: s.DSCP << 2}
	// A backend that is down for flows is still checked.
	generation.PutPath(&s.Paths[i], &t.Backend)
	// Checks arrive on no interface of the balancer, so that there is no interface to send them back by.
	if t.Backend.Interface == 0 {
		t.Backend.Interface = uint32(c.first.Load())
	}
	source := s.Paths[i].Local
	if source.Is4() != r.Key.VIP.Is4() {
		var err error
		if source, err = c.hostAddress(int(t.Backend.Interface), r.Key.VIP.Is4()); err != nil {
			return t, err
		}
	}
	if !source.IsValid() {
		return t, fmt.Errorf("%w: this host has no address that answers could be sent to", health.ErrNoPath)
	}
	t.Source = mapmem.OfAddress(source)
	return t, nil
}

// present returns a function that reports whether the data plane's present configuration has a backend; nil where there
// is no configuration.
func (c *Checks) present() func(lb.BackendKey) bool {
	p := c.published.Load()
	if p.Err != nil {
		return nil
	}
	backends := map[lb.BackendKey]bool{}
	for _, r := range p.Records {
		for _, b := range r.Service.Backends {
			backends[r.Service.BackendKey(b)] = true
		}
	}
	return func(key lb.BackendKey) bool { return backends[key] }
}
