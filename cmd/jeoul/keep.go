// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/jeoul/jeoul/internal/balancer/config"
	"github.com/jeoul/jeoul/internal/balancer/datapath"
	"github.com/jeoul/jeoul/internal/balancer/datapath/pins"
	"github.com/jeoul/jeoul/internal/host/durable"
	"github.com/jeoul/jeoul/internal/host/hostnet"
	"github.com/jeoul/jeoul/internal/host/namespace"
)

// instance is a balancer's name among those of a host, and where it keeps what is to outlive
// its process.
type instance struct {
	stateDir string
	// journal is the name of its network changes, and name of everything else: of the
	// interface that carried its VIPs when it was first started, and of its network namespace.
	journal, name string
	cookie, inode uint64
	// files write what is kept; nil before it is known where else its content can be.
	files *durable.Files
}

// instanceOn returns the one whose first interface that is: by the name of another interface,
// if it was started on that and a reload has changed it.
func instanceOn(link, stateDir string) (instance, error) {
	ns, err := namespace.Current()
	if err != nil {
		return instance{}, err
	}
	defer ns.Close()
	cookie, err := ns.Cookie()
	if err != nil {
		return instance{}, err
	}
	i := instance{stateDir: stateDir, cookie: cookie, inode: ns.Inode()}
	journal, err := i.alias(link).read()
	if err != nil {
		return instance{}, err
	}
	return i.named(cmp.Or(journal, journalName(link))), nil
}

// named returns the instance of a name in the same network namespace.
func (i instance) named(journal string) instance {
	i.journal, i.name = journal, fmt.Sprintf("%s-%d", journal, i.inode)
	return i
}

func (i instance) file(kind string) string { return filepath.Join(i.stateDir, i.name+"."+kind) }

// formerSources is where earlier versions kept the configuration that is not in the file: a
// reboot took it away.
func (i instance) formerSources() string { return i.file(fmt.Sprintf("%d.sources", i.cookie)) }

// The kinds of an instance's files, besides the journal of network changes; there are several snapshots.
const kindSnapshot, kindOperations, kindHealth, kindEjections = "snapshot", "operations", "health", "ejections"

// kindDiscovered is that of a file which outlives a balancer that has ended, too: the next one serves
// what was discovered before while the origins are away.
const kindDiscovered = "discovered"

// forgetFiles removes those files, also what a process has left of them that was killed while it wrote
// one, and those of another boot.
func (i instance) forgetFiles() error {
	entries, err := os.ReadDir(i.stateDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		kind, ours := strings.CutPrefix(e.Name(), i.name+".")
		kind, _, _ = strings.Cut(kind, ".")
		if ours && slices.Contains([]string{kindSnapshot, kindOperations, kindHealth, kindEjections}, kind) {
			err = errors.Join(err, forgetFile(filepath.Join(i.stateDir, e.Name())))
		}
	}
	return err
}

// keep says where the data plane is kept in a store.
func (i instance) keep(store *pins.Store) *datapath.Keep {
	return &datapath.Keep{Store: store, Snapshot: i.file(kindSnapshot), Cookie: i.cookie, Files: i.files}
}

// open opens the store; nil where there is none and the configuration does not demand it, with
// a warning then.
func (i instance) open(cfg *config.Config) (store *pins.Store, warning string, err error) {
	i.sweep()
	if err := i.renamed(cfg.Interfaces[0]); err != nil {
		return nil, "", err
	}
	if cfg.Survive == config.SurviveNever {
		return nil, "", i.refuseLeft()
	}
	store, err = pins.Open(i.stateDir, i.name)
	if errors.Is(err, pins.ErrBusy) {
		return nil, "", fmt.Errorf("balance on %s: %v: stop the balancer that runs on it first", cfg.Interfaces[0], hostnet.ErrBusy)
	}
	if errors.Is(err, pins.ErrUnavailable) {
		err = fmt.Errorf("%w: mount one on /sys/fs/bpf (`mount -t bpf bpf /sys/fs/bpf`)", err)
		if cfg.Survive != config.SurviveAlways {
			return nil, fmt.Sprintf("connections end with this process, however it ends: %v", err), nil
		}
		return nil, "", cfg.At("survive", "%v", err)
	}
	if err == nil && store.Private() {
		warning = fmt.Sprintf("connections end with this process: %s is in a mount namespace that was made for it alone: enter the network namespace only (`nsenter --net=/run/netns/NAME` in the place of `ip netns exec NAME`)", store.Dir())
	}
	return store, warning, err
}

// sweep removes what killed balancers have left whose interfaces, or network namespaces, are gone. What
// cannot be removed is tried again with the next start; it costs memory, and harms nothing.
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
		if swept, _ := datapath.Sweep(other.keep(store)); swept {
			_ = other.forgetFiles()
			_ = forgetFile(other.file(kindDiscovered))
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
		// What cannot be read is not of this network namespace, or of no use to anyone.
		if index, former, err := datapath.FirstInterface(other.keep(nil)); err == nil && index == nic.Index && former != link {
			return fmt.Errorf("%s had the name %s when the balancer was started whose data plane is attached to it: rename it back, or stop that one, or take it away with `jeoul detach --interface %s`, with which its connections end", link, former, former)
		}
	}
	return nil
}

// refuseLeft says that there is a data plane that outlived its process, where none is to.
func (i instance) refuseLeft() error {
	store, err := pins.Find(i.stateDir, i.name)
	if errors.Is(err, pins.ErrNothing) {
		return nil
	}
	if err != nil {
		return err
	}
	defer store.Close()
	return fmt.Errorf("a data plane is kept in %s, which the configuration (survive: %s) does not go on with: take it away with `jeoul detach`", store.Dir(), config.SurviveNever)
}

// noted is a file that keeps what operations have changed, what health checks have found, or which
// backends are ejected.
type noted struct{ content *durable.Content }

// whatNoted says what is in the files, for a fault.
var whatNoted = map[string]string{
	kindOperations: "the drains and weights of backends",
	kindHealth:     "the verdicts of health checks",
	kindEjections:  "the ejected backends",
	kindDiscovered: "the discovered backends",
	kindDrained:    "the drain of this balancer",
}

// noted returns the file of a kind.
func (i instance) noted(kind string) noted {
	return noted{i.files.Content(whatNoted[kind], i.file(kind), kind, 0o600)}
}

func (n noted) Load() ([]byte, error) {
	data, err := n.content.Load(os.ReadFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return data, err
}

// Save puts other content into the file, whole or not at all. Where there is none, no file is left. The daemon
// reports an error that wraps durable.ErrNotWritten in its status, and retries the write.
func (n noted) Save(data []byte) error {
	if len(data) == 0 {
		data = nil
	}
	return n.content.Save(data)
}

// forgetFile removes a file, if it is there.
func forgetFile(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
