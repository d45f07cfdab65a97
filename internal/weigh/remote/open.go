// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/jeoul/jeoul/internal/text/yamlfile"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// ownGroup protects ssh from a terminal's signals.
var ownGroup = &syscall.SysProcAttr{Setpgid: true}

// Options describe the program that the machines receive.
type Options struct {
	// Executable is the path of the jeoul binary here, Build the mark that identifies it.
	Executable, Build string
}

// beginTimeout is how long a worker may take to claim its machine.
const beginTimeout = 30 * time.Second

// atOnce is the number of machines that are reached at the same time.
const atOnce = 16

// Open reaches the machines of an inventory and makes a lab of them: all or none. Its error names every machine that
// could not be used, with the inventory's file and line; it returns in bounded time. Of several balancers the first is
// used.
func Open(ctx context.Context, inventory *Inventory, options Options) (*lab.Lab, error) {
	o := &opening{inventory: inventory, options: options, hosts: slices.Concat(inventory.Balancers[:1],
		inventory.Clients, inventory.Servers)}
	o.places, o.prefixes = make([]lab.Place, len(o.hosts)), make([]netip.Prefix, len(o.hosts))
	o.reach(ctx)
	if len(o.problems) == 0 {
		o.checkSegment()
	}
	if err := o.problems.Err(); err != nil {
		return nil, errors.Join(err, o.close())
	}
	if err := ctx.Err(); err != nil {
		return nil, errors.Join(err, o.close())
	}
	n := 1 + len(inventory.Clients)
	return lab.Assemble(lab.Places{
		Balancer: o.places[0], Clients: o.places[1:n], Servers: o.places[n:],
		VIP4: inventory.VIP, FullNAT: inventory.FullNAT, OwnPorts: o.ports(), Close: o.close, Notes: o.notes(),
	}), nil
}

// opening is a lab that is being opened.
type opening struct {
	inventory *Inventory
	options   Options
	hosts     []Host
	places    []lab.Place
	prefixes  []netip.Prefix

	mu       sync.Mutex
	sessions []*session
	problems yamlfile.Problems
}

// reach starts a worker on every machine.
func (o *opening) reach(ctx context.Context) {
	var name [4]byte
	rand.Read(name[:]) // never fails
	run := hex.EncodeToString(name[:])
	slots := make(chan struct{}, atOnce)
	var all sync.WaitGroup
	for i, h := range o.hosts {
		all.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			if err := o.place(ctx, i, h, fmt.Sprintf("%s/%s%s-%d", dirBase, dirPrefix, run, i)); err != nil {
				o.fail(h, err)
			}
		})
	}
	all.Wait()
	o.problems.SortByLine()
}

func (o *opening) fail(h Host, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.problems = append(o.problems, yamlfile.Problem{File: o.inventory.File, Line: h.Line, Field: h.Name,
		Message: err.Error()})
}

// place installs and starts a worker on a machine, which claims the machine.
func (o *opening) place(ctx context.Context, i int, h Host, dir string) error {
	if err := install(ctx, h, o.options.Executable, dir); err != nil {
		return err
	}
	s, err := open(h, dir)
	if err != nil {
		return errors.Join(err, uninstall(h, dir))
	}
	ctx, cancel := context.WithTimeout(ctx, beginTimeout)
	defer cancel()
	var reply BeginReply
	args := BeginArgs{Name: h.Name, Interface: h.Interface, IPv4: h.IPv4, Build: o.options.Build}
	if err := s.call(ctx, "Begin", args, &reply); err != nil {
		// A worker that could not begin still removes its directory, if it was started.
		if s.close() != nil {
			_ = uninstall(h, dir)
		}
		return fmt.Errorf("the machine cannot be used: %w", err)
	}
	o.places[i] = lab.Place{Name: h.Name, Interface: reply.Interface, IPv4: reply.Prefix.Addr(), MAC: reply.MAC,
		Dir: dir, Executable: dir + "/jeoul", Machine: s}
	o.prefixes[i] = reply.Prefix
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sessions = append(o.sessions, s)
	return nil
}

// checkSegment reports machines that are not on the balancer's segment: direct server return by layer 2 does not go
// beyond it, nor do routes to the VIP.
func (o *opening) checkSegment() {
	segment := o.prefixes[0].Masked()
	for i, h := range o.hosts {
		if o.prefixes[i].Masked() != segment {
			o.fail(h, fmt.Errorf(
				"its address %v is not on the balancer's segment %v; all machines must share one (jeoul_interface and jeoul_address choose it)",
				o.prefixes[i], segment))
		}
	}
	for name, address := range map[string]netip.Addr{varVIP: o.inventory.VIP, varFullNAT: o.inventory.FullNAT} {
		if address.IsValid() && !segment.Contains(address) {
			o.problems = append(o.problems, yamlfile.Problem{File: o.inventory.File, Field: name,
				Message: fmt.Sprintf("%v is not of the machines' segment %v", address, segment)})
		}
	}
}

// ports are the ports of SSH.
func (o *opening) ports() []uint16 {
	all := []uint16{22}
	for _, h := range o.hosts {
		if h.Port != 0 && !slices.Contains(all, uint16(h.Port)) {
			all = append(all, uint16(h.Port))
		}
	}
	return all
}

func (o *opening) notes() []string {
	if unused := o.inventory.Balancers[1:]; len(unused) > 0 {
		return []string{fmt.Sprintf("of the inventory's %d balancers only %s was used", len(unused)+1, o.hosts[0].Name)}
	}
	return nil
}

// close ends all workers at the same time.
func (o *opening) close() error {
	var mu sync.Mutex
	var errs []error
	var all sync.WaitGroup
	for _, s := range o.sessions {
		all.Go(func() {
			err := s.close()
			mu.Lock()
			defer mu.Unlock()
			errs = append(errs, err)
		})
	}
	all.Wait()
	return errors.Join(errs...)
}
