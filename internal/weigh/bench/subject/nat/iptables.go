// SPDX-License-Identifier: Apache-2.0

package nat

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"strings"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/weigh/bench/probe"
	"github.com/jeoul/jeoul/internal/weigh/bench/subject"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// iptablesNth is the kernel's own NAT with DNAT rules. Each new connection takes the next rule (iptables-extensions(8):
// statistic, mode nth).
type iptablesNth struct{}

// iptablesProgram is the iptables on nf_tables. The settings of the older one would stay in a namespace for as long as
// it lives, and would slow down the subjects that follow.
const iptablesProgram = "iptables-nft"

func (iptablesNth) Name() string            { return "iptables-nth" }
func (iptablesNth) Params() []subject.Param { return nil }

func (iptablesNth) Can() subject.Abilities {
	return subject.Abilities{UDP: true, Packets: true, Changes: true, Machines: subject.Anywhere[*lab.Lab],
		Containers: subject.Anywhere[bool]}
}

func (iptablesNth) Versions(ctx context.Context) (map[string]string, error) {
	return iptablesVersion(ctx)
}

func iptablesVersion(ctx context.Context) (map[string]string, error) {
	version, err := probe.Version(ctx, iptablesProgram, "--version")
	return map[string]string{iptablesProgram: version}, err
}

// SkipReason returns none: the rules need no file descriptors for connections.
func (iptablesNth) SkipReason(subject.Params, int, probe.Limits) string { return "" }

func (iptablesNth) Start(ctx context.Context, setup subject.Setup, _ subject.Params) (subject.Running, error) {
	return startKernelNAT(ctx, setup, iptablesRules{to: toServer})
}

// iptablesRules forward packets for the VIP.
type iptablesRules struct {
	// to returns the destination of the connections of server number j (from 0) of service number i.
	to func(setup subject.Setup, i, j int, server *lab.Host) netip.AddrPort
}

// toServer returns the address of the server itself.
func toServer(setup subject.Setup, i, _ int, server *lab.Host) netip.AddrPort {
	return netip.AddrPortFrom(server.IPv4, setup.Services[i].Port)
}

// The table, in the form of iptables-restore(8), which passes it to the kernel as a whole, and its chains: for packets
// of other hosts, for those of the host itself, and the last chain of both.
const (
	iptablesTable = "*nat\n"
	prerouting    = "PREROUTING"
	output        = "OUTPUT"
	postrouting   = "POSTROUTING"
)

// chains returns the chains that have the rules for a set-up. Packets of the host's own programs pass OUTPUT and not
// PREROUTING. If a container connects to the VIP and gets a neighbour as its server, the answers must pass the host, so
// the connection must have the host's source address.
func (iptablesRules) chains(setup subject.Setup) []string {
	chains := []string{prerouting}
	if setup.Local {
		chains = append(chains, output)
	}
	if setup.Lab.Containers() {
		chains = append(chains, postrouting)
	}
	return chains
}

// each writes options for each of the chains: -F empties a chain, -X deletes it.
func (r iptablesRules) each(setup subject.Setup, options ...string) string {
	var text strings.Builder
	for _, chain := range r.chains(setup) {
		for _, option := range options {
			fmt.Fprintf(&text, "%s %s\n", option, chain)
		}
	}
	return text.String()
}

// text returns the rules for a set-up; with anew, they replace existing rules.
func (r iptablesRules) text(setup subject.Setup, anew bool) []byte {
	text := bytes.NewBufferString(iptablesTable)
	if anew {
		text.WriteString(r.each(setup, "-F"))
	}
	for _, chain := range r.chains(setup) {
		if chain == postrouting {
			within := setup.Lab.ContainerRange()
			fmt.Fprintf(text, "-A %s -s %s -d %s -m conntrack --ctstate DNAT -j MASQUERADE\n", chain, within, within)
			continue
		}
		for i, service := range setup.Services {
			for _, protocol := range service.Protocols() {
				r.writeNth(text, setup, i, protocol, chain)
			}
		}
	}
	text.WriteString("COMMIT\n")
	return text.Bytes()
}

// writeNth writes a rule to a chain for each server of service number i that gets new connections.
func (r iptablesRules) writeNth(text *bytes.Buffer, setup subject.Setup, i int, protocol lb.Protocol, chain string) {
	service, vip := setup.Services[i], setup.VIP(i)
	var taking []netip.AddrPort
	for j, server := range service.Servers {
		if service.Weight(server) > 0 {
			taking = append(taking, r.to(setup, i, j, server))
		}
	}
	for n, to := range taking {
		fmt.Fprintf(text, "-A %s -d %s -p %s -m %s --dport %d", chain, vip.Addr(), protocol, protocol, vip.Port())
		// One in that many of the connections that the rules before left over.
		if left := len(taking) - n; left > 1 {
			fmt.Fprintf(text, " -m statistic --mode nth --every %d --packet 0", left)
		}
		fmt.Fprintf(text, " -j DNAT --to-destination %s\n", to)
	}
}

func (r iptablesRules) set(ctx context.Context, setup subject.Setup, anew bool) error {
	return restoreIPTables(ctx, setup.Lab.Balancer, r.text(setup, anew))
}

func (r iptablesRules) clear(ctx context.Context, setup subject.Setup) error {
	if setup.Lab.Remote() {
		return r.clearRemote(ctx, setup)
	}
	return restoreIPTables(ctx, setup.Lab.Balancer, []byte(iptablesTable+r.each(setup, "-F", "-X")+"COMMIT\n"))
}

// can reports that only equal weights are possible.
func (iptablesRules) can(services []subject.Service) error {
	for _, service := range services {
		for _, server := range service.Servers {
			if weight := service.Weight(server); weight > 1 {
				return fmt.Errorf("%w: a rule of mode nth takes its share of connections, each server the same; "+
					"for a weight of %d one would write %s into %d rules", subject.ErrCannot, weight, server.Name, weight)
			}
		}
	}
	return nil
}

func (iptablesRules) note() string {
	return "DNAT by iptables on nf_tables; the kernel forwards both ways and tracks connections"
}

func (iptablesRules) changeMethod() string {
	return "each change rewrites all rules in one transaction (iptables-restore); tracked connections are left alone, " +
		"so a server that is removed or drains keeps those that it has"
}

// restoreIPTables adds or removes rules, all of them or none.
func restoreIPTables(ctx context.Context, host *lab.Host, rules []byte) error {
	// -n: keep existing rules.
	return applyRules(ctx, host, "iptables.rules", rules, iptablesProgram+"-restore", "-n")
}

// deleting returns the text that removes exactly the rules of a set-up.
func (r iptablesRules) deleting(setup subject.Setup) []byte {
	return []byte(strings.ReplaceAll(string(r.text(setup, false)), "-A PREROUTING", "-D PREROUTING"))
}

// clearRemote removes exactly the rules that were set, and also the chain, unless it contains rules of another program:
// on a machine, other rules belong to other programs.
func (r iptablesRules) clearRemote(ctx context.Context, setup subject.Setup) error {
	err := restoreIPTables(ctx, setup.Lab.Balancer, r.deleting(setup))
	// An error is expected here if the chain has rules of other programs.
	_ = restoreIPTables(ctx, setup.Lab.Balancer, []byte("*nat\n-X PREROUTING\nCOMMIT\n"))
	return err
}

func (r iptablesRules) removal(setup subject.Setup) remoteRules {
	return remoteRules{Program: iptablesProgram + "-restore", Args: []string{"-n"}, Text: r.deleting(setup)}
}
