// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"

	"github.com/cespare/xxhash/v2"

	"github.com/jeoul/jeoul/internal/balancer/config"
	"github.com/jeoul/jeoul/internal/balancer/datapath"
	"github.com/jeoul/jeoul/internal/balancer/handover"
	"github.com/jeoul/jeoul/internal/balancer/members"
	"github.com/jeoul/jeoul/internal/balancer/ops"
)

// member is this balancer among those that it shares VIPs with; nil where the configuration has no others.
type member struct {
	*members.Membership
	drained atomic.Pointer[func() bool]
	// exchange hands flows over; nil where it is not wanted. joined has a value once all is known that others
	// remember.
	exchange *handover.Exchange
	joined   chan struct{}
	log      *slog.Logger
}

// ready returns a channel that receives a value when this balancer may take VIPs; nil where it may at once.
func (m *member) ready() <-chan struct{} {
	if m == nil {
		return nil
	}
	return m.joined
}

// newMember reads the keys and settings of a member, and sends nothing yet.
func newMember(ctx context.Context, cfg *config.Config, configured func() *config.Config, plane *datapath.Datapath,
	version string, log *slog.Logger) (*member, error) {
	if !cfg.Members.Listen.IsValid() {
		return nil, nil
	}
	keys, err := members.ReadKeys(cfg.Members.KeyFile)
	if err != nil {
		return nil, cfg.At("members.key_file", "%v", err)
	}
	m := &member{}
	settings := cfg.Members
	if settings.Name == "" {
		if settings.Name, err = os.Hostname(); err != nil {
			return nil, cfg.At("members", "the host's name cannot be read: %v; write name", err)
		}
	}
	digests := configurationDigests{}
	local := func() members.Local {
		local := members.Local{Configuration: digests.of(configured()), Tables: plane.ServiceTables()}
		if drained := m.drained.Load(); drained != nil {
			local.Ready, local.Drained = true, (*drained)()
		}
		return local
	}
	m.Membership = members.New(members.Options{MembersConfig: settings, Keys: keys, Version: version, Log: log,
		Local: local})
	return m, m.startHandover(ctx, cfg, settings.Name, plane, log)
}

// run is a member until the context ends; drained reports whether the balancer is taken out of every anycast.
func (m *member) run(ctx context.Context, drained func() bool) error {
	if m != nil {
		m.drained.Store(&drained)
		var group sync.WaitGroup
		defer group.Wait()
		if m.exchange != nil {
			group.Go(func() { m.exchange.Run(ctx) })
			group.Go(func() { m.notifyJoined(ctx) })
		}
		m.Run(ctx)
	}
	return nil
}

// close ends the member; leave says that no other process has its place soon.
func (m *member) close(leave bool) error {
	if m == nil {
		return nil
	}
	return m.Close(leave)
}

// Prepare reads the peers and the keys, and refuses keys that cannot be used, or by which members that go on would be
// cut off.
func (m *member) Prepare(cfg *config.Config) (commit func(), err error) {
	if !cfg.Members.Listen.IsValid() {
		return func() {}, nil // the controller refuses that: the port is chosen at the start
	}
	refuse := func(err error) (func(), error) {
		return nil, cfg.At("members.key_file", "%v; nothing of the file was applied", err)
	}
	keys, err := members.ReadKeys(cfg.Members.KeyFile)
	if err != nil {
		return refuse(err)
	}
	useKeys, err := m.PrepareKeys(keys, cfg.Members.Peers)
	if err != nil {
		return refuse(err)
	}
	useFlowKeys := func() {}
	if m.exchange != nil {
		derived, err := flowKeys(keys)
		if err == nil {
			useFlowKeys, err = m.exchange.PrepareKeys(derived)
		}
		if err != nil {
			return refuse(err)
		}
	}
	return func() {
		m.SetPeers(cfg.Members.Peers)
		useKeys()
		useFlowKeys()
	}, nil
}

// FillStatus adds the members to a status.
func (m *member) FillStatus(to *ops.Status) {
	all := m.Status()
	m.addFlows(all.Members)
	to.Members = &all
	to.Problems = append(to.Problems, members.Problems(all)...)
}

// configurationDigests are the digests of the services as they are configured, recreated when the configuration
// changes.
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
