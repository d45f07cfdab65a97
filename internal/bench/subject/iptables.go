// SPDX-License-Identifier: Apache-2.0

package subject

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/vishvananda/netlink"

	"github.com/jeoul/jeoul/internal/bench/probe"
	"github.com/jeoul/jeoul/internal/lab"
	"github.com/jeoul/jeoul/internal/lb"
)

// iptablesNth is the kernel's own NAT: DNAT rules, of which each new connection
// takes the next (iptables-extensions(8): statistic, mode nth).
type iptablesNth struct{}

// iptablesProgram is the one on nf_tables: what the older one sets up stays in a
// namespace as long as that lives, and would slow down the subjects that follow.
const iptablesProgram = "iptables-nft"

func (iptablesNth) Name() string    { return "iptables-nth" }
func (iptablesNth) Params() []Param { return nil }
func (iptablesNth) HTTPOnly() bool  { return false }

func (iptablesNth) Versions(ctx context.Context) (map[string]string, error) {
	version, err := probe.Version(ctx, iptablesProgram, "--version")
	return map[string]string{iptablesProgram: version}, err
}

// Obstacle is none: it needs no descriptor a connection.
func (iptablesNth) Obstacle(Params, int, probe.Limits) string { return "" }

// iptablesClear takes back the one chain that the rules are in, which ends the
// tracking of connections too.
const iptablesClear = "*nat\n-F PREROUTING\n-X PREROUTING\nCOMMIT\n"

// iptablesRules are in the form of iptables-restore(8).
func iptablesRules(setup Setup) []byte {
	var text bytes.Buffer
	text.WriteString("*nat\n")
	for i, service := range setup.Services {
		vip := setup.vip(i)
		for _, protocol := range service.protocols() {
			writeNth(&text, vip, protocol, service)
		}
	}
	text.WriteString("COMMIT\n")
	return text.Bytes()
}

// writeNth writes a rule for each server that takes new connections.
func writeNth(text *bytes.Buffer, vip netip.AddrPort, protocol lb.Protocol, service Service) {
	var taking []*lab.Host
	for _, server := range service.Servers {
		if service.Weight(server) > 0 {
			taking = append(taking, server)
		}
	}
	for i, server := range taking {
		fmt.Fprintf(text, "-A PREROUTING -d %s -p %s -m %s --dport %d", vip.Addr(), protocol, protocol, vip.Port())
		// Of those that the rules before left over, one in so many.
		if left := len(taking) - i; left > 1 {
			fmt.Fprintf(text, " -m statistic --mode nth --every %d --packet 0", left)
		}
		fmt.Fprintf(text, " -j DNAT --to-destination %s\n", netip.AddrPortFrom(server.IPv4, service.Port))
	}
}

func (iptablesNth) Start(ctx context.Context, setup Setup, _ Params) (Running, error) {
	running := &runningIPTables{setup: setup}
	err := errors.Join(
		running.undo.on(setup.Lab.Forward),
		running.undo.on(setup.Lab.DetourReplies),
		running.undo.on(func(on bool) error { return ownVIP(setup.Lab, on) }),
	)
	if err == nil {
		err = restoreIPTables(ctx, setup.Lab.Balancer, iptablesRules(setup))
		running.ruled = err == nil
	}
	if err != nil {
		return nil, errors.Join(err, running.Stop(context.WithoutCancel(ctx)))
	}
	return running, nil
}

// restoreIPTables adds rules, or takes them away, all of them or none.
func restoreIPTables(ctx context.Context, host *lab.Host, rules []byte) error {
	path := filepath.Join(host.Dir, "iptables.rules")
	if err := os.WriteFile(path, rules, 0o644); err != nil {
		return fmt.Errorf("writing rules for iptables: %w", err)
	}
	// -n: keep what is there.
	p, err := startProgram(ctx, host, iptablesProgram+"-restore", "-n", path)
	if err != nil {
		return err
	}
	if err := p.process.Wait(); err != nil {
		return fmt.Errorf("setting rules with iptables: %w%s", err, p.output.words())
	}
	return nil
}

type runningIPTables struct {
	setup Setup
	undo  undo
	// ruled says that the rules were set.
	ruled bool
}

func (r *runningIPTables) Target(i int) netip.AddrPort { return r.setup.vip(i) }

func (*runningIPTables) Cores() float64                { return 0 }
func (*runningIPTables) Quiesce(context.Context) error { return nil }

func (*runningIPTables) Notes() []string {
	return []string{"DNAT by iptables on nf_tables; the kernel forwards both ways and tracks connections"}
}

// Stop forgets tracked connections as well: they would outlive the rules by
// minutes.
func (r *runningIPTables) Stop(ctx context.Context) error {
	var errs []error
	if r.ruled {
		errs = append(errs, restoreIPTables(ctx, r.setup.Lab.Balancer, []byte(iptablesClear)),
			r.setup.Lab.Balancer.Do(func() error { return netlink.ConntrackTableFlush(netlink.ConntrackTable) }))
		r.ruled = false
	}
	err := errors.Join(errs...)
	if errors.Is(err, lab.ErrClosed) {
		err = nil
	}
	return errors.Join(err, r.undo.all())
}
