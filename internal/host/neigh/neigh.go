// SPDX-License-Identifier: Apache-2.0

// Package neigh finds the MAC addresses of backends, and of the routers to them,
// on a link, notices when they change, and announces addresses to a link.
//
// The kernel sends and answers requests (ARP, RFC 826; neighbour discovery, RFC 4861); the Resolver reads and watches
// its neighbour table by netlink. But packets that an XDP program forwards never pass the kernel's neighbour code, so
// the kernel would neither resolve a backend nor verify its entry. The Resolver makes it do so.
//
// The kernel can also keep entries up to date by itself (NTF_EXT_MANAGED, since 5.16). It would continue after the
// death of the process; entries that are only used and probed expire like any others.
package neigh

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/host/namespace"
	"github.com/jeoul/jeoul/internal/host/netdump"
)

// Errors that a caller may test for.
var (
	// ErrNoLink means that there is no interface of that name, or none with
	// Ethernet addresses.
	ErrNoLink = errors.New("no such Ethernet interface")
	// ErrNoRights means that the kernel refused for lack of root or CAP_NET_ADMIN.
	ErrNoRights = errors.New("not permitted: run as root or with CAP_NET_ADMIN")
	// ErrOwnAddress means that an address belongs to this host itself.
	ErrOwnAddress = errors.New("is an address of this host")
	// ErrBadAddress means that an address is not that of a single host.
	ErrBadAddress = errors.New("is not the address of a host")
)

// The states of an Entry.
const (
	// Reachable: it answered recently. It stays so while it is probed again.
	Reachable = "reachable"
	// Stale: its MAC address is from an announcement or an old answer, and is
	// about to be verified.
	Stale = "stale"
	// Probing: it is being probed; the MAC address, if there is one, is unverified.
	Probing = "probing"
	// Failed: it does not answer, or with an invalid MAC address.
	Failed = "failed"
	// Unknown: it has not been probed yet.
	Unknown = "unknown"
)

// Entry is the neighbour entry of a watched address.
type Entry struct {
	Address netip.Addr
	MAC     net.HardwareAddr // nil while unknown; not to be written to
	State   string
	Reason  string // why there is no MAC, for a person to read; "" if there is one
}

// timing has the intervals of probes.
type timing struct {
	// retry is the time until an address that did not answer is probed again. It doubles up to maxRetry. The kernel
	// sends three requests, one a second, each time.
	retry, maxRetry time.Duration
	// verifyNew is the time until an unverified MAC address is probed. It limits the probes that a flood of
	// announcements can trigger.
	verifyNew time.Duration
	// verify is the time until an address that answered is probed again, so that a replaced network card, or a dead
	// host, is detected: after this time and three requests without an answer.
	verify time.Duration
	// spacing lengthens verify where there are many peers: it is the average interval between probes. 0: verify is
	// independent of their number.
	spacing time.Duration
}

var defaultTiming = timing{retry: time.Second, maxRetry: 4 * time.Second, verifyNew: time.Second,
	verify: 5 * time.Second}

// confirmTiming detects changes sooner than the kernel would as a forwarder, which uses a stale entry for 5 s before it
// sends three requests, a second apart (delay_first_probe_time, ucast_solicit; arp(7)). With 1,024 peers verify is 20
// s, and the kernel trusts a neighbour that answered for 15 to 45 s (base_reachable_time).
var confirmTiming = timing{retry: time.Second, maxRetry: 4 * time.Second, verifyNew: time.Second,
	verify:  4 * time.Second,
	spacing: 20 * time.Millisecond}

// forPeers returns the timing for that many peers.
func (p timing) forPeers(peers int) timing {
	p.verify = max(p.verify, time.Duration(peers)*p.spacing)
	return p
}

// Resolver resolves the MAC addresses of a set of addresses on one link, and watches them. It is safe for concurrent
// use.
type Resolver struct {
	link       string
	index      int
	baseTiming timing // for few peers
	timing     timing // for those that are watched
	ns         *namespace.Namespace
	netlink    *netlink.Handle
	changes    chan struct{}
	wake       chan struct{} // the time to act next may have changed
	cancel     context.CancelFunc
	ended      chan struct{}

	mu           sync.Mutex
	peers        map[netip.Addr]*peer
	changedPeers map[netip.Addr]bool // peers that the next Changed returns
	closed       bool                // the watch has ended, and the sockets are closed
}

// New returns a Resolver for a link in the calling thread's network namespace.
// It works until ctx is done or Close is called. Errors: ErrNoLink, ErrNoRights.
func New(ctx context.Context, link string) (*Resolver, error) {
	return newResolver(ctx, link, defaultTiming)
}

// NewConfirming is New for neighbours that the kernel resolves by itself, and whose entries it would not confirm,
// because only eBPF programs use them: routers, and clients, of which there may be many. With few neighbours it detects
// a change of a MAC address within 8 s, which is the kernel's own best time as a forwarder.
func NewConfirming(ctx context.Context, link string) (*Resolver, error) {
	return newResolver(ctx, link, confirmTiming)
}

func newResolver(ctx context.Context, link string, p timing) (*Resolver, error) {
	r := &Resolver{
		link: link, baseTiming: p, timing: p, peers: map[netip.Addr]*peer{}, changedPeers: map[netip.Addr]bool{},
		changes: make(chan struct{}, 1), wake: make(chan struct{}, 1), ended: make(chan struct{}),
	}
	updates, stop, err := r.open()
	if err != nil {
		r.release()
		return nil, fmt.Errorf("resolve MAC addresses on %s: %w", link, err)
	}
	ctx, r.cancel = context.WithCancel(ctx)
	go r.run(ctx, updates, stop)
	return r, nil
}

func (r *Resolver) open() (updates <-chan netlink.NeighUpdate, stop func(), err error) {
	nic, err := ethernet(r.link)
	if err != nil {
		return nil, nil, err
	}
	r.index = nic.Index
	if r.ns, err = namespace.Current(); err != nil {
		return nil, nil, err
	}
	if r.netlink, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
		return nil, nil, fmt.Errorf("open a netlink socket: %w", err)
	}
	return r.subscribe()
}

// ethernet returns the interface, in the calling thread's network namespace.
func ethernet(link string) (*net.Interface, error) {
	nic, err := net.InterfaceByName(link)
	if err != nil {
		return nil, fmt.Errorf("%w: %s (%w)", ErrNoLink, link, err)
	}
	if len(nic.HardwareAddr) != 6 || nic.Flags&net.FlagLoopback != 0 {
		return nil, fmt.Errorf("%w: %s has no Ethernet address", ErrNoLink, link)
	}
	return nic, nil
}

// SetAddresses replaces the set of watched addresses and starts to resolve those that are new. Addresses that stay keep
// their entries. On an error the set stays as it was: ErrBadAddress, ErrOwnAddress, ErrNoRights.
func (r *Resolver) SetAddresses(addrs []netip.Addr) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return fmt.Errorf("resolve MAC addresses on %s: the resolver was closed", r.link)
	}
	peers, err := r.validate(addrs)
	if err == nil {
		r.timing = r.baseTiming.forPeers(len(peers))
		err = r.startPeers(peers)
	}
	if err != nil {
		return fmt.Errorf("resolve MAC addresses on %s: %w", r.link, err)
	}
	changed := len(peers) != len(r.peers)
	for addr := range peers {
		if r.peers[addr] == nil {
			changed, r.changedPeers[addr] = true, true
		}
	}
	r.peers = peers
	if changed {
		signal(r.changes)
	}
	signal(r.wake)
	return nil
}

// validate returns the peers of addrs, or why one of them cannot be watched.
func (r *Resolver) validate(addrs []netip.Addr) (map[netip.Addr]*peer, error) {
	own, err := r.ownAddresses()
	if err != nil {
		return nil, err
	}
	peers := make(map[netip.Addr]*peer, len(addrs))
	for _, given := range addrs {
		addr := key(given)
		if !addr.IsValid() || addr.IsUnspecified() || addr.IsLoopback() || addr.IsMulticast() || addr == broadcast4 {
			return nil, fmt.Errorf("%s %w", given, ErrBadAddress)
		}
		if link, mine := own[addr]; mine {
			return nil, fmt.Errorf("%s %w (on %s), and has no MAC address on the link", given, ErrOwnAddress, link)
		}
		if peers[addr] = r.peers[addr]; peers[addr] == nil {
			peers[addr] = newPeer(addr)
		}
	}
	return peers, nil
}

var broadcast4 = netip.AddrFrom4([4]byte{255, 255, 255, 255})

// key returns the form in which addresses are compared: a zone is redundant on one link.
func key(addr netip.Addr) netip.Addr { return addr.Unmap().WithZone("") }

// ownAddresses returns the host's addresses and their links. A link-local address is the host's on its own link only:
// another host may have the same one on another link, as many routers do (fe80::1).
func (r *Resolver) ownAddresses() (map[netip.Addr]string, error) {
	list, err := netdump.Consistent(func() ([]netlink.Addr, error) {
		return r.netlink.AddrList(nil,
			netlink.FAMILY_ALL)
	})
	if err != nil {
		return nil, fmt.Errorf("list this host's addresses: %w", err)
	}
	own, names := map[netip.Addr]string{}, map[int]string{}
	for _, a := range list {
		if addr, ok := netip.AddrFromSlice(a.IP); ok && (a.LinkIndex == r.index || !addr.IsLinkLocalUnicast()) {
			if names[a.LinkIndex] == "" {
				names[a.LinkIndex] = r.linkName(a.LinkIndex)
			}
			own[key(addr)] = names[a.LinkIndex]
		}
	}
	return own, nil
}

func (r *Resolver) linkName(index int) string {
	link, err := r.netlink.LinkByIndex(index)
	if err != nil {
		return fmt.Sprintf("interface %d", index)
	}
	return link.Attrs().Name
}

// startPeers reads the kernel's entries of new peers, and probes those without one at once, which shows missing rights.
func (r *Resolver) startPeers(peers map[netip.Addr]*peer) error {
	table, err := r.readTable()
	if err != nil {
		return err
	}
	now := time.Now()
	for addr, p := range peers {
		if r.peers[addr] != nil {
			continue
		}
		p.update(table[addr], now, r.timing)
		if err := r.probe(p, now); errors.Is(err, ErrNoRights) {
			return err
		}
	}
	return nil
}

// Known returns the addresses that the kernel's neighbour table has on the link, in any state.
func (r *Resolver) Known(addrs []netip.Addr) (known []netip.Addr, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, fmt.Errorf("read the neighbours on %s: the resolver was closed", r.link)
	}
	table, err := r.readTable()
	if err != nil {
		return nil, err
	}
	for _, addr := range addrs {
		if _, found := table[key(addr)]; found {
			known = append(known, addr)
		}
	}
	return known, nil
}

// Entries returns the entry of each watched address, by the address without a zone, and as IPv4 if it was one mapped
// into IPv6.
func (r *Resolver) Entries() map[netip.Addr]Entry {
	r.mu.Lock()
	defer r.mu.Unlock()
	entries := make(map[netip.Addr]Entry, len(r.peers))
	for addr, p := range r.peers {
		entries[addr] = p.entry
	}
	return entries
}

// Changed returns the entries that have changed since the last call, including those that SetAddresses has added.
func (r *Resolver) Changed() map[netip.Addr]Entry {
	r.mu.Lock()
	defer r.mu.Unlock()
	entries := make(map[netip.Addr]Entry, len(r.changedPeers))
	for addr := range r.changedPeers {
		if p := r.peers[addr]; p != nil {
			entries[addr] = p.entry
		}
	}
	clear(r.changedPeers)
	return entries
}

// markChanged records that a peer has changed; the caller holds the lock.
func (r *Resolver) markChanged(p *peer) {
	r.changedPeers[key(p.entry.Address)] = true
	signal(r.changes)
}

// Changes is signalled after a change of a watched MAC address or state, and after SetAddresses has changed the set.
// Several changes may be one signal. It is never closed.
func (r *Resolver) Changes() <-chan struct{} { return r.changes }

// Close stops the Resolver. Entries then stay as they are.
func (r *Resolver) Close() error {
	r.cancel()
	<-r.ended
	return nil
}

// signal makes c readable, if it is not yet.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (r *Resolver) release() {
	if r.netlink != nil {
		r.netlink.Close()
	}
	if r.ns != nil {
		r.ns.Close()
	}
}
