// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/jeoul/jeoul/internal/balancer/api"
	"github.com/jeoul/jeoul/internal/balancer/config"
	"github.com/jeoul/jeoul/internal/balancer/datapath"
	"github.com/jeoul/jeoul/internal/balancer/handover"
	"github.com/jeoul/jeoul/internal/balancer/members"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/balancer/sources"
)

// membersCmd is about the balancers that share VIPs.
type membersCmd struct {
	Key membersKeyCmd `cmd:"" help:"Print a new key for the file that members.key_file names."`
}

type membersKeyCmd struct{}

// Run prints a key.
func (membersKeyCmd) Run() error {
	fmt.Println(members.NewKey())
	return nil
}

// memberOf is this balancer among those that it shares VIPs with; nil where the configuration has no others.
type memberOf struct {
	*members.Members
	drained atomic.Pointer[func() bool]
	// exchange hands flows over; nil where it is not wanted. joined has a value once all is known that others remember.
	exchange *handover.Exchange
	joined   chan struct{}
	log      *slog.Logger
}

// awaited is what has a value when this balancer may take VIPs; nil where there is nothing to wait for.
func (m *memberOf) awaited() <-chan struct{} {
	if m == nil {
		return nil
	}
	return m.joined
}

// newMember reads what a member needs, and tells nothing yet.
func newMember(ctx context.Context, cfg *config.Config, configured func() *config.Config, plane *datapath.Datapath, version string, log *slog.Logger) (*memberOf, error) {
	if !cfg.Members.Listen.IsValid() {
		return nil, nil
	}
	keys, err := members.ReadKeys(cfg.Members.KeyFile)
	if err != nil {
		return nil, cfg.At("members.key_file", "%v", err)
	}
	m := &memberOf{}
	settings := cfg.Members
	if settings.Name == "" {
		if settings.Name, err = os.Hostname(); err != nil {
			return nil, cfg.At("members", "the host's name cannot be read: %v; write name", err)
		}
	}
	digests := configurationDigests{}
	m.Members = members.New(members.Options{Members: settings, Keys: keys, Version: version, Log: log, Local: func() members.Local {
		local := members.Local{Configuration: digests.of(configured()), Tables: plane.ServiceTables()}
		if drained := m.drained.Load(); drained != nil {
			local.Ready, local.Drained = true, (*drained)()
		}
		return local
	}})
	return m, m.handOver(ctx, cfg, settings.Name, plane, log)
}

// run is a member until the context ends; drained says whether the balancer is taken out of every anycast.
func (m *memberOf) run(ctx context.Context, drained func() bool) error {
	if m != nil {
		m.drained.Store(&drained)
		var group sync.WaitGroup
		defer group.Wait()
		if m.exchange != nil {
			group.Go(func() { m.exchange.Run(ctx) })
			group.Go(func() { m.tellJoined(ctx) })
		}
		m.Run(ctx)
	}
	return nil
}

// close ends the member; leave says that no other process has its place soon.
func (m *memberOf) close(leave bool) error {
	if m == nil {
		return nil
	}
	return m.Close(leave)
}

// reloading has a reload change the peers and the keys, too, once all else of it is in force; keys that cannot be used refuse it.
func (m *memberOf) reloading(reload sources.Apply) sources.Apply {
	if m == nil {
		return reload
	}
	return func(ctx context.Context, load func() (*config.Config, error)) error {
		var next *config.Config
		var keys members.Keys
		err := reload(ctx, func() (_ *config.Config, err error) {
			if next, err = load(); err != nil || !next.Members.Listen.IsValid() {
				return next, err
			}
			keys, err = m.readKeys(next)
			return next, err
		})
		if err != nil {
			return err
		}
		m.SetPeers(next.Members.Peers)
		return m.useKeys(keys)
	}
}

// readKeys reads the keys that a reload brings, and refuses those by which members that go on would be cut off. Error:
// yamlfile.Problem.
func (m *memberOf) readKeys(cfg *config.Config) (members.Keys, error) {
	keys, err := members.ReadKeys(cfg.Members.KeyFile)
	if err == nil {
		err = m.CheckKeys(keys, cfg.Members.Peers)
	}
	if err != nil {
		return nil, cfg.At("members.key_file", "%v; nothing of the file was applied", err)
	}
	return keys, nil
}

// useKeys has members know each other, and hand flows over, by other keys.
func (m *memberOf) useKeys(keys members.Keys) error {
	if err := m.SetKeys(keys); err != nil || m.exchange == nil {
		return err
	}
	derived, err := flowKeys(keys)
	if err != nil {
		return err
	}
	return m.exchange.SetKeys(derived)
}

// status adds the members to a status.
func (m *memberOf) status(status func() (ops.Status, error)) func() (ops.Status, error) {
	if m == nil {
		return status
	}
	return func() (ops.Status, error) {
		s, err := status()
		if err == nil {
			all := m.Status()
			m.showFlows(all.Members)
			s.Members = &all
			s.Problems = append(s.Problems[:len(s.Problems):len(s.Problems)], members.Problems(all)...)
		}
		return s, err
	}
}

// configurationDigests are of the services as they are configured, made anew where the configuration is another.
type configurationDigests struct {
	last   *config.Config
	digest string
}

func (d *configurationDigests) of(cfg *config.Config) string {
	if cfg != d.last {
		text, _ := json.Marshal(cfg.Services)
		d.last, d.digest = cfg, fmt.Sprintf("%016x", xxhash.Sum64(text))
	}
	return d.digest
}

type getMembersCmd struct {
	getFlags
	Names  []string          `arg:"" optional:"" name:"member" help:"Members by name or address; all where none is named."`
	States []ops.MemberState `name:"state" enum:"${memberStates}" placeholder:"STATE" help:"Only members in these states: ${enum}."`
}

// Run prints them.
func (c *getMembersCmd) Run(ctx context.Context) error {
	return show(ctx, os.Stdout, c.getFlags, memberKind, query[ops.Member]{c.Names, func(m ops.Member) bool { return len(c.States) == 0 || slices.Contains(c.States, m.State) }})
}

var memberKind = kind[ops.Member]{
	noun: "member", list: func(client *api.Client, ctx context.Context, _ ...string) ([]ops.Member, error) {
		all, err := client.Members(ctx)
		return all.Members, err
	},
	name:    func(m ops.Member) string { return cmp.Or(m.Name, m.Address) },
	settled: settledMember,
	matches: ops.Member.Is,
	columns: []getColumn[ops.Member]{
		{name: "name", value: func(m ops.Member) any { return orDash(m.Name) }},
		{name: "address", value: func(m ops.Member) any { return m.Address }},
		{name: "state", fate: true, value: func(m ops.Member) any { return m.State }},
		{name: "since", value: func(m ops.Member) any { return timeText(m.Since) }},
		{name: "version", value: func(m ops.Member) any { return orDash(m.Version) }},
		{name: "differs", value: func(m ops.Member) any { return orDash(differsText(m)) }},
		{name: "configuration", wide: true, value: func(m ops.Member) any { return orDash(m.Configuration) }},
		{name: "keys", wide: true, value: func(m ops.Member) any { return orDash(strings.Join(m.Keys, ",")) }},
		{name: "drained", wide: true, value: func(m ops.Member) any { return m.Drained }},
		{name: "told", wide: true, value: func(m ops.Member) any { return ofFlows(m, func(f *ops.MemberFlows) uint64 { return f.Told }) }},
		{name: "taken", wide: true, value: func(m ops.Member) any { return ofFlows(m, func(f *ops.MemberFlows) uint64 { return f.Taken }) }},
		{name: "refused", wide: true, value: func(m ops.Member) any { return orDash(refusedText(m)) }},
		{name: "whole", wide: true, value: func(m ops.Member) any { return orDash(wholeText(m)) }},
		{name: "behind", wide: true, value: func(m ops.Member) any { return ofFlows(m, func(f *ops.MemberFlows) uint64 { return f.Behind }) }},
		{name: "reason", value: func(m ops.Member) any { return orDash(m.Reason) }},
	},
}

// settledMember leaves out what changes with each flow.
func settledMember(m ops.Member) ops.Member {
	if f := m.Flows; f != nil {
		m.Flows = &ops.MemberFlows{Telling: f.Telling, Reason: f.Reason, Heard: f.Heard, Whole: f.Whole}
	}
	return m
}

// differsText names the services that a member balances in another way.
func differsText(m ops.Member) string {
	switch len(m.Differs) {
	case 0:
		return ""
	case 1:
		return m.Differs[0].Service
	}
	return fmt.Sprintf("%s and %d more", m.Differs[0].Service, len(m.Differs)-1)
}

// ofFlows is a count of what is handed over; a dash where nothing is.
func ofFlows(m ops.Member, count func(*ops.MemberFlows) uint64) any {
	if m.Flows == nil {
		return "-"
	}
	return count(m.Flows)
}

// refusedText counts the flows of a member that were refused, by the reason.
func refusedText(m ops.Member) string {
	if m.Flows == nil {
		return ""
	}
	var counts []string
	for _, reason := range slices.Sorted(maps.Keys(m.Flows.Refused)) {
		counts = append(counts, fmt.Sprintf("%s: %d", reason, m.Flows.Refused[reason]))
	}
	return strings.Join(counts, ", ")
}

// wholeText says whether a member has told all that it knew when it connected.
func wholeText(m ops.Member) string {
	switch {
	case m.Flows == nil:
		return ""
	case m.Flows.Heard && m.Flows.Whole:
		return "yes"
	}
	return "no"
}

// handedText says what is handed over.
func handedText(f *ops.MemberFlows) string {
	switch {
	case f == nil:
		return ""
	case !f.Telling:
		return "is told of no flows: " + cmp.Or(f.Reason, "it is being connected to")
	case f.Behind > 0:
		return fmt.Sprintf("%d flows behind", f.Behind)
	}
	return ""
}

// writeMembers says who the other balancers are, and what they balance in another way.
func writeMembers(w io.Writer, all *ops.Members) {
	if all == nil {
		return
	}
	fmt.Fprintf(w, "\nMember %s, listening on %s\n", all.Name, all.Address)
	for _, m := range all.Members {
		fmt.Fprintf(w, "  %s %s: %s since %s", orDash(m.Name), m.Address, m.State, m.Since.Local().Format(time.DateTime))
		for _, part := range []string{m.Reason, differing(m), handedText(m.Flows)} {
			if part != "" {
				fmt.Fprintf(w, ", %s", part)
			}
		}
		fmt.Fprintln(w)
	}
}

func differing(m ops.Member) string {
	if len(m.Differs) == 0 {
		return ""
	}
	return "sends new flows elsewhere: " + differsText(m)
}
