// SPDX-License-Identifier: Apache-2.0

package control

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/jeoul/jeoul/internal/config"
	"github.com/jeoul/jeoul/internal/datapath"
	"github.com/jeoul/jeoul/internal/hostnet"
	"github.com/jeoul/jeoul/internal/iface"
	"github.com/jeoul/jeoul/internal/lb"
	"github.com/jeoul/jeoul/internal/neigh"
)

// world stands for everything around a controller, and notes what is done to it
// in one list, so that tests can see the order.
type world struct {
	t   *testing.T
	mu  sync.Mutex
	log bytes.Buffer
	did []string

	// applyErr and addErr make the next calls fail.
	applyErr error
	addErr   map[netip.Addr]error
	watchErr error

	entries          map[netip.Addr]neigh.Entry
	neighbourChanges chan struct{}

	link        iface.State
	linkErr     error
	linkChanges chan struct{}

	counters datapath.Counters
}

func newWorld(t *testing.T) *world {
	return &world{
		t:                t,
		addErr:           map[netip.Addr]error{},
		entries:          map[netip.Addr]neigh.Entry{},
		neighbourChanges: make(chan struct{}, 1),
		linkChanges:      make(chan struct{}, 1),
		link: iface.State{
			Name: "eth9", Up: true, MAC: net.HardwareAddr{2, 0, 0, 0, 0, 0xff},
			Addresses: []netip.Prefix{netip.MustParsePrefix("192.0.2.254/24")},
			Subnets:   []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("2001:db8::/64")},
		},
	}
}

func (w *world) note(format string, args ...any) {
	w.did = append(w.did, fmt.Sprintf(format, args...))
}

// done returns what was done since the last call.
func (w *world) done() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	did := w.did
	w.did = nil
	return did
}

// expect waits until nothing more happens now, and compares.
func (w *world) expect(want ...string) {
	w.t.Helper()
	synctest.Wait()
	if diff := cmp.Diff(want, w.done()); diff != "" {
		w.t.Errorf("done (-want +got):\n%s", diff)
	}
}

// logged says whether a line of the log holds all of the words.
func (w *world) logged(words ...string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for line := range strings.Lines(w.log.String()) {
		if !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(line, word) }) {
			return true
		}
	}
	return false
}

func (w *world) expectLog(words ...string) {
	w.t.Helper()
	synctest.Wait()
	if !w.logged(words...) {
		w.t.Errorf("no line of the log has %q:\n%s", words, w.log.String())
	}
}

// Write takes the log.
func (w *world) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.log.Write(p)
}

// Apply notes the state as "apply 2: web01=1 web02=-".
func (w *world) Apply(state datapath.State) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	var b strings.Builder
	for _, s := range state.Services {
		fmt.Fprintf(&b, " %s:", s.Name)
		for i, backend := range s.Backends {
			mac := "-"
			if len(s.Paths[i].MAC) > 0 {
				mac = fmt.Sprint(s.Paths[i].MAC[5])
			}
			fmt.Fprintf(&b, " %s=%s", backend.Name, mac)
		}
	}
	if w.applyErr != nil {
		w.note("fail to apply%s", b.String())
		return w.applyErr
	}
	w.note("apply%s", b.String())
	return nil
}

func (w *world) Attachments() []datapath.Attachment {
	return []datapath.Attachment{{Interface: "eth9", Hook: lb.HookTC, Driver: "veth", Reason: "the configuration asks for it"}}
}

func (w *world) Counters() (datapath.Counters, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.counters, nil
}

// neighbours and the others below split the world into the parts that a
// controller knows, whose methods have the same names.
type neighbours struct{ *world }

func (n neighbours) Watch(addrs []netip.Addr) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.note("watch %s", list(addrs))
	return n.watchErr
}

func (n neighbours) Entries() map[netip.Addr]neigh.Entry {
	n.mu.Lock()
	defer n.mu.Unlock()
	entries := map[netip.Addr]neigh.Entry{}
	for addr, e := range n.entries {
		entries[addr] = e
	}
	return entries
}

func (n neighbours) Changes() <-chan struct{} { return n.neighbourChanges }

type host struct{ *world }

func (h host) AddAddress(link string, addr netip.Addr, opt hostnet.AddressOptions) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.addErr[addr]; err != nil {
		h.note("fail to add %s", addr)
		return err
	}
	h.note("add %s", addr)
	h.link.Addresses = append(slices.Clone(h.link.Addresses), netip.PrefixFrom(addr, addr.BitLen()))
	return nil
}

func (h host) RemoveAddress(link string, addr netip.Addr) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.note("remove %s", addr)
	h.drop(addr)
	return nil
}

func (h host) Events() []hostnet.Event { return nil }

type link struct{ *world }

func (l link) State() (iface.State, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.link, l.linkErr
}

func (l link) Changes() <-chan struct{} { return l.linkChanges }

// drop takes an address off the interface.
func (w *world) drop(addr netip.Addr) {
	w.link.Addresses = slices.DeleteFunc(slices.Clone(w.link.Addresses), func(p netip.Prefix) bool { return p.Addr() == addr })
}

func list(addrs []netip.Addr) string {
	var all []string
	for _, a := range addrs {
		all = append(all, a.String())
	}
	return strings.Join(all, " ")
}

// found makes a backend answer with a MAC that ends in last; 0 makes it fail.
func (w *world) found(addr string, last byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := neigh.Entry{Address: netip.MustParseAddr(addr), State: neigh.Failed, Reason: "it does not answer"}
	if last > 0 {
		e = neigh.Entry{Address: e.Address, State: neigh.Reachable, MAC: net.HardwareAddr{2, 0, 0, 0, 0, last}}
	}
	w.entries[e.Address] = e
	signal(w.neighbourChanges)
}

// changeLink changes the interface.
func (w *world) changeLink(change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change()
	signal(w.linkChanges)
}

func (w *world) failApply(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.applyErr = err
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// parse returns a checked configuration.
func parse(t *testing.T, file string) *config.Config {
	t.Helper()
	cfg, err := config.Parse("f", []byte(file))
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// controller returns one that acts on the world.
func (w *world) controller(file string) *Controller {
	return New(Options{
		DataPlane: w, Neighbours: neighbours{w}, Host: host{w}, Link: link{w},
		Announce: func(link string, vip netip.Addr) error {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.note("announce %s on %s", vip, link)
			return nil
		},
		Log: slog.New(slog.NewTextHandler(w, nil)), Version: "v0",
	}, parse(w.t, file))
}

// run starts a controller and runs it; stop ends it and returns Run's error.
func (w *world) run(c *Controller) (stop func() error) {
	w.t.Helper()
	if err := c.Start(); err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(w.t.Context())
	result := make(chan error, 1)
	go func() { result <- c.Run(ctx) }()
	return func() error {
		cancel()
		return <-result
	}
}
