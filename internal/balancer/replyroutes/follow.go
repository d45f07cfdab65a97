// SPDX-License-Identifier: Apache-2.0

// Package replyroutes mirrors the kernel's routes into the data plane, for replies (modes nat and fullnat), so that it
// does not ask the kernel for the next hop of each.
//
// A mirrored route gives exactly the answer of bpf_fib_lookup, and all else is left to the kernel: destinations on a
// link, several next hops, tunnels, metrics that set an MTU, routes that expire, rules other than the kernel's own. Any
// event that may change an answer takes the mirror back at once; it is read again when the kernel has been quiet for a
// while.
package replyroutes

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"sync"
	"syscall"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/host/namespace"
)

const (
	// debounce is how long nothing may change before routes are read.
	debounce = 50 * time.Millisecond
	// rereadInterval is the time between readings while nothing changes: the kernel sends no event for MTUs of paths.
	rereadInterval = 2 * time.Second
	// idleFactor bounds the cost of reading: the time between readings is as many times their own.
	idleFactor = 20
	// retryInterval is when routes are read again of which there were too many.
	retryInterval = time.Minute
	// receiveTimeout bounds each wait of the receiving socket, so that listen notices the end of its context.
	receiveTimeout = 200 * time.Millisecond
)

// Mirror is the mirror in the data plane, whose methods are documented there: *datapath.Datapath.
type Mirror interface {
	InvalidateReplyRoutes() error
	WriteReplyRoutes(lb.ReplyRoutes) error
	EnableReplyRoutes(lb.ReplyRoutes) error
	ReplyRoutesEnabled() (holds, could bool, err error)
}

// Follower keeps a mirror as the kernel's routes are.
type Follower struct {
	mirror Mirror
	log    *slog.Logger
	ns     *namespace.Namespace
	// ingress names the interfaces that replies come in on.
	ingress func() []string
	events  *nl.NetlinkSocket
	// changed has a value after an event that may change an answer.
	changed chan struct{}
	// logged is the last line of logOnce.
	logged string
	// mirrored are the routes in the mirror.
	mirrored lb.ReplyRoutes

	mu sync.Mutex
	// changes counts events that may have changed an answer.
	changes uint64
	// routers are the next hops that routes have, and their MAC addresses, as far as they are known.
	routers map[neighbour]mac
	// idle: routes are not read, so events change nothing.
	idle bool
}

// New returns a Follower of the routes in the calling thread's network namespace. Ingress names the interfaces that
// replies come in on, as of the call. It works in Run.
func New(mirror Mirror, ingress func() []string, log *slog.Logger) (*Follower, error) {
	ns, err := namespace.Current()
	if err != nil {
		return nil, fmt.Errorf("mirror the routes of replies: %w", err)
	}
	f := &Follower{mirror: mirror, log: log, ns: ns, ingress: ingress, changed: make(chan struct{}, 1)}
	err = ns.Do(func() error {
		f.events, err = nl.Subscribe(unix.NETLINK_ROUTE, unix.RTNLGRP_LINK, unix.RTNLGRP_NEIGH, unix.RTNLGRP_NEXTHOP,
			unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV4_RULE, unix.RTNLGRP_IPV4_NETCONF,
			unix.RTNLGRP_IPV6_IFADDR, unix.RTNLGRP_IPV6_ROUTE, unix.RTNLGRP_IPV6_RULE, unix.RTNLGRP_IPV6_NETCONF,
			unix.RTNLGRP_IPV6_IFINFO)
		return err
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("listen to changes of the routes of replies: %w", err), ns.Close())
	}
	timeout := unix.NsecToTimeval(int64(receiveTimeout))
	if err := f.events.SetReceiveTimeout(&timeout); err != nil {
		f.Close()
		return nil, fmt.Errorf("listen to changes of the routes of replies: %w", err)
	}
	return f, nil
}

// Close releases a Follower that is not run.
func (f *Follower) Close() {
	f.events.Close()
	_ = f.ns.Close()
}

// Run follows routes until the context ends. Then it disables the mirror, whose routes are no longer up to date, and
// closes the Follower.
func (f *Follower) Run(ctx context.Context) {
	var listening sync.WaitGroup
	ctx, stop := context.WithCancel(ctx)
	listening.Go(func() { f.listen(ctx) })
	f.follow(ctx)
	stop()
	listening.Wait()
	f.retract()
	f.Close()
}

// listen takes the mirror back at each event that may change an answer, and at all that it cannot interpret.
func (f *Follower) listen(ctx context.Context) {
	for ctx.Err() == nil {
		messages, _, err := f.events.Receive()
		switch {
		case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
		case err != nil: // of ENOBUFS messages were lost
			f.retract()
		default:
			for i := range messages {
				if f.isRelevant(&messages[i]) {
					f.retract()
					break
				}
			}
		}
	}
}

// isRelevant reports whether an event may change an answer.
func (f *Follower) isRelevant(m *syscall.NetlinkMessage) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.idle {
		return false
	}
	if m.Header.Type != unix.RTM_NEWNEIGH && m.Header.Type != unix.RTM_DELNEIGH {
		return true
	}
	n, address, valid, err := parseNeighbour(m.Data)
	if err != nil {
		return true
	}
	known, is := f.routers[n]
	if m.Header.Type == unix.RTM_DELNEIGH {
		valid = false
	}
	return is && (known != mac{}) != valid || is && valid && known != address
}

// retract takes the mirror back, and has the routes read again.
func (f *Follower) retract() {
	f.mu.Lock()
	f.changes++
	_ = f.mirror.InvalidateReplyRoutes() // closed: there are no packets
	f.mu.Unlock()
	select {
	case f.changed <- struct{}{}:
	default:
	}
}

// follow reads routes when they have changed and been quiet since, and now and then.
func (f *Follower) follow(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	earliest := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.changed:
			timer.Reset(max(debounce, time.Until(earliest)))
			continue
		case <-timer.C:
		}
		began, next := time.Now(), rereadInterval
		if err := f.Update(); errors.Is(err, errTooMany) {
			next = retryInterval
		} else if err != nil {
			f.logOnce(fmt.Sprintf("the kernel is asked where each reply goes: %v", err))
			next = debounce
		}
		next = max(next, idleFactor*time.Since(began))
		earliest = began.Add(idleFactor * time.Since(began))
		timer.Reset(next)
	}
}

// Update reads the kernel's routes, and has the mirror hold them if it does not, and nothing has changed meanwhile.
// It is for callers that do not call Run.
func (f *Follower) Update() error {
	enabled, possible, err := f.mirror.ReplyRoutesEnabled()
	if err != nil || !possible {
		return nil // closed, or nothing has replies
	}
	f.mu.Lock()
	before := f.changes
	f.idle = false
	f.mu.Unlock()
	var read routeSnapshot
	if err := f.ns.Do(func() (err error) { read, err = f.read(); return err }); err != nil {
		f.mu.Lock()
		f.idle = errors.Is(err, errTooMany)
		_ = f.mirror.InvalidateReplyRoutes()
		f.mu.Unlock()
		if errors.Is(err, errTooMany) {
			f.logOnce(err.Error())
		}
		return err
	}
	if enabled && reflect.DeepEqual(read.routes, f.mirrored) {
		return nil
	}
	if err := errors.Join(f.mirror.InvalidateReplyRoutes(), f.mirror.WriteReplyRoutes(read.routes)); err != nil {
		return nil // closed
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.changes == before {
		_ = f.mirror.EnableReplyRoutes(read.routes)
		f.mirrored = read.routes
		f.logOnce(read.String())
	}
	return nil
}

// logOnce logs how replies find their way, when that is new.
func (f *Follower) logOnce(what string) {
	if what != f.logged {
		f.log.Info(what)
	}
	f.logged = what
}
