// SPDX-License-Identifier: Apache-2.0

package nat

import (
	"bytes"
	"context"
	"fmt"
	"strings"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/weigh/bench/probe"
	"github.com/jeoul/jeoul/internal/weigh/bench/subject"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// nftables is the kernel's own NAT with one rule per port, which numbers new connections and looks up their server in a
// map (nftables' wiki, "Load balancing"; nft(8), NUMGEN EXPRESSION). The rules are set by nft and not by a library: the
// measured rules are those that nft makes from text as users write it.
type nftables struct{}

// nftProgram, and the one table of the bench.
const (
	nftProgram = "nft"
	nftTable   = "ip jeoul_bench"
)

func (nftables) Name() string            { return "nftables" }
func (nftables) Params() []subject.Param { return nil }

func (nftables) Can() subject.Abilities {
	return subject.Abilities{UDP: true, Packets: true, Changes: true, Machines: subject.Anywhere[*lab.Lab]}
}

func (nftables) Versions(ctx context.Context) (map[string]string, error) {
	version, err := probe.Version(ctx, nftProgram, "--version")
	return map[string]string{nftProgram: version}, err
}

// SkipReason returns none: the rules need no file descriptors for connections.
func (nftables) SkipReason(subject.Params, int, probe.Limits) string { return "" }

func (nftables) Start(ctx context.Context, setup subject.Setup, _ subject.Params) (subject.Running, error) {
	return startKernelNAT(ctx, setup, nftRules{})
}

type nftRules struct{}

// nftClear creates the table, if it does not exist, and removes it. It precedes the rules in the same file, so that
// these replace all earlier ones: nft passes a file to the kernel as one transaction.
const nftClear = "table " + nftTable + "\ndelete table " + nftTable + "\n"

// text returns the rules for a set-up.
func (nftRules) text(setup subject.Setup) []byte {
	text := bytes.NewBufferString(nftClear)
	fmt.Fprintf(text,
		"table %s {\n\tchain prerouting {\n\t\ttype nat hook prerouting priority dstnat; policy accept;\n", nftTable)
	for i, service := range setup.Services {
		for _, protocol := range service.Protocols() {
			writeNumgen(text, setup, i, protocol)
		}
	}
	text.WriteString("\t}\n}\n")
	return text.Bytes()
}

// writeNumgen writes the rule of service number i, if any of its servers gets new connections. The rule counts modulo
// the sum of all weights, and each server gets as many numbers as its weight.
func writeNumgen(text *bytes.Buffer, setup subject.Setup, i int, protocol lb.Protocol) {
	service, vip := setup.Services[i], setup.VIP(i)
	var entries []string
	modulus := 0
	var last *lab.Host
	for _, server := range service.Servers {
		weight := service.Weight(server)
		if weight == 0 {
			continue
		}
		numbers := fmt.Sprint(modulus)
		if weight > 1 {
			numbers = fmt.Sprintf("%d-%d", modulus, modulus+weight-1)
		}
		entries = append(entries, fmt.Sprintf("%s : %s", numbers, server.IPv4))
		modulus += weight
		last = server
	}
	if len(entries) == 0 {
		return
	}
	fmt.Fprintf(text, "\t\tip daddr %s %s dport %d dnat to ", vip.Addr(), protocol, vip.Port())
	if len(entries) == 1 {
		fmt.Fprintf(text, "%s\n", last.IPv4)
		return
	}
	fmt.Fprintf(text, "numgen inc mod %d map { %s }\n", modulus, strings.Join(entries, ", "))
}

// set does not depend on whether rules exist: the text removes them first.
func (r nftRules) set(ctx context.Context, setup subject.Setup, _ bool) error {
	return applyNFT(ctx, setup.Lab.Balancer, r.text(setup))
}

func (nftRules) clear(ctx context.Context, setup subject.Setup) error {
	return applyNFT(ctx, setup.Lab.Balancer, []byte(nftClear))
}

func (nftRules) can([]subject.Service) error { return nil }

func (nftRules) note() string {
	return "DNAT by nftables (numgen inc, a map of servers); the kernel forwards both ways and tracks connections"
}

func (nftRules) changeMethod() string {
	return "each change replaces the table in one transaction (nft -f), weights are shares of the numbers; tracked connections are " +
		"left alone, so a server that is removed or drains keeps those that it has"
}

func applyNFT(ctx context.Context, host *lab.Host, rules []byte) error {
	return applyRules(ctx, host, "nftables.nft", rules, nftProgram, "-f")
}

func (nftRules) removal(subject.Setup) remoteRules {
	return remoteRules{Program: nftProgram, Args: []string{"-f"}, Text: []byte(nftClear)}
}
