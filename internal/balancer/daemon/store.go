// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"errors"
	"fmt"
	"net"

	"github.com/jeoul/jeoul/internal/balancer/config"
	"github.com/jeoul/jeoul/internal/balancer/datapath/keeper"
	"github.com/jeoul/jeoul/internal/balancer/datapath/pins"
	"github.com/jeoul/jeoul/internal/host/hostnet"
)

// open opens the store; nil where there is none and the configuration does not demand it, with
// a warning then.
func (i instance) open(cfg *config.Config) (store *pins.Store, warning string, err error) {
	i.sweep()
	if err := i.renamed(cfg.Interfaces[0]); err != nil {
		return nil, "", err
	}
	if cfg.Survive == config.SurviveNever {
		return nil, "", i.refuseLeftover()
	}
	store, err = pins.Open(i.stateDir, i.name)
	if errors.Is(err, pins.ErrBusy) {
		return nil, "", fmt.Errorf("balance on %s: %v: stop the balancer that runs on it first", cfg.Interfaces[0],
			hostnet.ErrBusy)
	}
	if errors.Is(err, pins.ErrUnavailable) {
		err = fmt.Errorf("%w: mount one on /sys/fs/bpf (`mount -t bpf bpf /sys/fs/bpf`)", err)
		if cfg.Survive != config.SurviveAlways {
			return nil, fmt.Sprintf("connections end with this process, however it ends: %v", err), nil
		}
		return nil, "", cfg.At("survive", "%v", err)
	}
	if err == nil && store.Private() {
		warning = fmt.Sprintf(
			"connections end with this process: %s is in a mount namespace that was made for it alone: enter the network namespace only (`nsenter --net=/run/netns/NAME` in the place of `ip netns exec NAME`)", store.Dir())
	}
	return store, warning, err
}

// sweep removes the pins and files that killed balancers have left whose interfaces, or network namespaces, are gone.
// Those that cannot be removed are tried again with the next start; they cost memory, and harm nothing.
func (i instance) sweep() {
	for _, name := range pins.Instances(i.stateDir) {
		if name == i.name {
			continue
		}
		store, err := pins.Find(i.stateDir, name)
		if err != nil {
			continue // it has a process
		}
		other := instance{stateDir: i.stateDir, name: name}
		if swept, _ := keeper.Sweep(other.keeperLocation(store)); swept {
			_ = other.removeFiles()
			_ = removeFile(other.file(kindDiscovered))
		} else {
			store.Close()
		}
	}
}

// renamed says that the first interface is that of another balancer of this network namespace, with a
// process or without one, and had another name then: two of them would take the same packets.
func (i instance) renamed(link string) error {
	nic, err := net.InterfaceByName(link)
	if err != nil {
		return nil // the code that needs the interface reports it
	}
	for _, name := range pins.Instances(i.stateDir) {
		if name == i.name {
			continue
		}
		other := instance{stateDir: i.stateDir, name: name, cookie: i.cookie}
		// An unreadable one is not of this network namespace, or of no use to anyone.
		if index, previous, err := keeper.FirstInterface(other.keeperLocation(nil)); err == nil && index == nic.Index &&
			previous != link {
			return fmt.Errorf(
				"%s had the name %s when the balancer was started whose data plane is attached to it: rename it back, or stop that one, or take it away with `jeoul detach --interface %s`, with which its connections end", link, previous, previous)
		}
	}
	return nil
}

// refuseLeftover returns an error where a data plane outlived its process although the configuration has it end.
func (i instance) refuseLeftover() error {
	store, err := pins.Find(i.stateDir, i.name)
	if errors.Is(err, pins.ErrNothing) {
		return nil
	}
	if err != nil {
		return err
	}
	defer store.Close()
	return fmt.Errorf(
		"a data plane is kept in %s, which the configuration (survive: %s) does not go on with: take it away with `jeoul detach`", store.Dir(), config.SurviveNever)
}
