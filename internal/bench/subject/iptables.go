// SPDX-License-Identifier: Apache-2.0

package subject

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"path/filepath"

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
	return iptablesVersion(ctx)
}

func iptablesVersion(ctx context.Context) (map[string]string, error) {
	version, err := probe.Version(ctx, iptablesProgram, "--version")
	return map[string]string{iptablesProgram: version}, err
}

// Obstacle is none: it needs no descriptor a connection.
func (iptablesNth) Obstacle(Params, int, probe.Limits) string { return "" }

func (iptablesNth) Start(ctx context.Context, setup Setup, _ Params) (Running, error) {
	return startKernelNAT(ctx, setup, iptablesRules{to: toServer})
}

// iptablesRules send what is for the VIP on.
type iptablesRules struct {
	// to is where the connections of a server's share go: server number j (from 0) of
	// service number i.
	to func(setup Setup, i, j int, server *lab.Host) netip.AddrPort
}

// toServer is the server itself.
func toServer(setup Setup, i, _ int, server *lab.Host) netip.AddrPort {
	return netip.AddrPortFrom(server.IPv4, setup.Services[i].Port)
}

// What stands before the rules in the form of iptables-restore(8), which hands a
// table to the kernel whole, and what takes the one chain back that they are in.
const (
	iptablesFirst = "*nat\n"
	iptablesAnew  = "*nat\n-F PREROUTING\n"
	iptablesClear = "*nat\n-F PREROUTING\n-X PREROUTING\nCOMMIT\n"
)

// text are the rules for a set-up, behind their first lines.
func (r iptablesRules) text(setup Setup, first string) []byte {
	text := bytes.NewBufferString(first)
	for i, service := range setup.Services {
		for _, protocol := range service.protocols() {
			r.writeNth(text, setup, i, protocol)
		}
	}
	text.WriteString("COMMIT\n")
	return text.Bytes()
}

// writeNth writes a rule for each server of service number i that takes new
// connections.
func (r iptablesRules) writeNth(text *bytes.Buffer, setup Setup, i int, protocol lb.Protocol) {
	service, vip := setup.Services[i], setup.vip(i)
	var taking []netip.AddrPort
	for j, server := range service.Servers {
		if service.Weight(server) > 0 {
			taking = append(taking, r.to(setup, i, j, server))
		}
	}
	for n, to := range taking {
		fmt.Fprintf(text, "-A PREROUTING -d %s -p %s -m %s --dport %d", vip.Addr(), protocol, protocol, vip.Port())
		// Of those that the rules before left over, one in so many.
		if left := len(taking) - n; left > 1 {
			fmt.Fprintf(text, " -m statistic --mode nth --every %d --packet 0", left)
		}
		fmt.Fprintf(text, " -j DNAT --to-destination %s\n", to)
	}
}

func (r iptablesRules) set(ctx context.Context, setup Setup, anew bool) error {
	first := iptablesFirst
	if anew {
		first = iptablesAnew
	}
	return restoreIPTables(ctx, setup.Lab.Balancer, r.text(setup, first))
}

func (r iptablesRules) clear(ctx context.Context, setup Setup) error {
	if setup.Lab.Far() {
		return r.clearFar(ctx, setup)
	}
	return restoreIPTables(ctx, setup.Lab.Balancer, []byte(iptablesClear))
}

// can says that shares other than equal ones cannot be had.
func (iptablesRules) can(services []Service) error {
	for _, service := range services {
		for _, server := range service.Servers {
			if weight := service.Weight(server); weight > 1 {
				return fmt.Errorf("%w: a rule of mode nth takes its share of connections, each server the same; "+
					"for a weight of %d one would write %s into %d rules", ErrCannot, weight, server.Name, weight)
			}
		}
	}
	return nil
}

func (iptablesRules) note() string {
	return "DNAT by iptables on nf_tables; the kernel forwards both ways and tracks connections"
}

func (iptablesRules) ways() string {
	return "each change rewrites all rules in one transaction (iptables-restore); tracked connections are left alone, " +
		"so a server that is removed or drains keeps those that it has"
}

// restoreIPTables adds rules, or takes them away, all of them or none.
func restoreIPTables(ctx context.Context, host *lab.Host, rules []byte) error {
	// -n: keep what is there.
	return applyRules(ctx, host, "iptables.rules", rules, iptablesProgram+"-restore", "-n")
}

// applyRules writes rules to a file and has a program hand them to the kernel.
func applyRules(ctx context.Context, host *lab.Host, name string, rules []byte, program string, args ...string) error {
	path := filepath.Join(host.Dir, name)
	if err := host.WriteFile(path, rules); err != nil {
		return fmt.Errorf("writing rules for %s: %w", program, err)
	}
	p, err := startProgram(ctx, host, program, append(args, path)...)
	if err != nil {
		return err
	}
	if err := p.process.Wait(); err != nil {
		return fmt.Errorf("setting rules with %s: %w%s", program, err, p.output.words())
	}
	return nil
}
