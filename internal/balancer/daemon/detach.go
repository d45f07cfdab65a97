// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/datapath/keeper"
	"github.com/jeoul/jeoul/internal/balancer/datapath/pins"
	"github.com/jeoul/jeoul/internal/host/durable"
	"github.com/jeoul/jeoul/internal/host/hostnet"
	"github.com/jeoul/jeoul/internal/host/namespace"
)

// Detach removes the programs, pins and network changes that the process of a balancer has left whose interfaces are
// links, its first one first. It writes a line about each to out.
func Detach(out io.Writer, links []string, stateDir string) error {
	at, err := instanceOn(links[0], stateDir)
	if err != nil {
		return err
	}
	return at.detach(out, links)
}

// DetachAll does as Detach for each process of this network namespace.
func DetachAll(out io.Writer, stateDir string) error {
	all, err := findLeftovers(stateDir)
	if err == nil && len(all) == 0 {
		fmt.Fprintln(out, "no data plane was left")
	}
	for _, at := range all {
		// The journal's name has the interface's name at that time, but for characters that no usual name has.
		err = errors.Join(err, at.detach(out, []string{strings.TrimPrefix(at.journal, journalPrefix)}))
	}
	return err
}

// findLeftovers lists the instances of this network namespace that have something pinned, or
// changes of the network noted.
func findLeftovers(stateDir string) (all []instance, err error) {
	ns, err := namespace.Current()
	if err != nil {
		return nil, err
	}
	defer ns.Close()
	cookie, err := ns.Cookie()
	if err != nil {
		return nil, err
	}
	names := pins.Instances(stateDir)
	journals, _ := filepath.Glob(filepath.Join(stateDir, journalPrefix+"*"+hostnet.JournalSuffix))
	for _, path := range journals {
		names = append(names, strings.TrimSuffix(filepath.Base(path), hostnet.JournalSuffix))
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		if journal, of := strings.CutSuffix(name, fmt.Sprintf("-%d", ns.Inode())); of {
			all = append(all, instance{stateDir: stateDir, cookie: cookie, inode: ns.Inode()}.named(journal))
		}
	}
	return all, nil
}

// detach removes the programs and addresses that an instance's process has left on these interfaces. The VIPs go before
// the data plane, as in a stop.
func (i instance) detach(out io.Writer, links []string) error {
	store, err := pins.Find(i.stateDir, i.name)
	if err != nil && !errors.Is(err, pins.ErrNothing) {
		return err
	}
	var kept durable.Options
	if store != nil {
		kept.Fallback = store
	}
	i.files = durable.New(kept)
	changes, err := hostnet.Open(i.stateDir, i.journal, hostnet.Files(i.files))
	if err != nil {
		return err
	}
	events := changes.Events()
	// Before anything else: routers are to send nothing here.
	err = errors.Join(i.endSpeaker(), i.endProxy(), changes.Close())
	for _, event := range append(events, changes.Events()...) {
		fmt.Fprintln(out, event)
	}
	done := "no data plane was left pinned on " + links[0]
	if store != nil {
		done = "detached: " + store.Dir()
	}
	err = errors.Join(err, keeper.Detach(i.keeperLocation(store), links), pins.RemoveEmptyRoots(i.stateDir))
	// Last: until then they lead the next start, or `jeoul detach`, to the rest.
	if err = errors.Join(err, i.removeFiles(), i.removeAliases("")); err == nil {
		fmt.Fprintln(out, done)
	}
	return err
}

// Kept describes the data planes that are attached in this network namespace and have no
// process, a line each; empty where there are none.
func Kept(stateDir string) (lines []string) {
	ns, err := namespace.Current()
	if err != nil {
		return nil
	}
	defer ns.Close()
	here := fmt.Sprintf("-%d", ns.Inode())
	for _, name := range instancesWithFiles(stateDir, here) {
		store, err := pins.Find(stateDir, name)
		if errors.Is(err, pins.ErrNothing) {
			link := strings.TrimPrefix(strings.TrimSuffix(name, here), journalPrefix)
			lines = append(lines,
				fmt.Sprintf("of a data plane that a process has left on %s nothing is pinned any more: start the daemon, or take away what else was left with `jeoul detach --interface %s`", link, link))
			continue
		}
		if err != nil {
			continue // it has a process
		}
		at := instance{stateDir: stateDir, name: name}
		lines = append(lines, describeKept(at.keeperLocation(store)))
		store.Close()
	}
	return lines
}

// instancesWithFiles lists the instances whose names end so and that have something pinned or a snapshot.
func instancesWithFiles(stateDir, end string) []string {
	names := pins.Instances(stateDir)
	files, _ := filepath.Glob(filepath.Join(stateDir, journalPrefix+"*"+end+"."+kindSnapshot+".*"))
	for _, path := range files {
		name, _, _ := strings.Cut(filepath.Base(path), "."+kindSnapshot+".")
		names = append(names, name)
	}
	slices.Sort(names)
	return slices.DeleteFunc(slices.Compact(names), func(name string) bool { return !strings.HasSuffix(name, end) })
}

func describeKept(keep *keeper.Location) string {
	k, err := keeper.Read(keep)
	if err != nil {
		return fmt.Sprintf("a data plane without a process is kept in %s: %v", k.Dir, err)
	}
	return fmt.Sprintf(
		"a data plane without a process is on %s: services: %d, last changed at %s; %s; start the daemon to go on with it, or take it away with `jeoul detach --interface %s`",
		strings.Join(k.Interfaces, ", "), k.Services, k.Changed.Format(time.DateTime), forwardsUntil(k, time.Now()),
		k.Interfaces[0])
}

// forwardsUntil says for how long a data plane without a process forwards, or since when it does
// not.
func forwardsUntil(k keeper.Kept, now time.Time) string {
	switch at := k.FailOpen.Format(time.DateTime); {
	case k.IsFailOpen:
		return fmt.Sprintf("it has left packets for its VIPs to the kernel since %s (for %s)", at,
			max(now.Sub(k.FailOpen), 0).Round(time.Second))
	case k.FailOpen.IsZero():
		return "it forwards for ever"
	default:
		return fmt.Sprintf("it forwards until %s (for %s)", at, max(k.FailOpen.Sub(now), 0).Round(time.Second))
	}
}
