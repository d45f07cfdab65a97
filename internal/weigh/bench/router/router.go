// SPDX-License-Identifier: Apache-2.0

// Package router knows the programs that can be the router before several balancers: how each is configured and run. It
// starts none of them.
package router

import (
	"bytes"
	_ "embed"
	"fmt"
	"net/netip"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"text/template"
	"time"
)

// Kind is a program.
type Kind string

// The programs that there are.
const (
	BIRD Kind = "bird"
	FRR  Kind = "frr"
)

// Kinds lists the kinds of routers, the usual one first.
var Kinds = []Kind{BIRD, FRR}

// Multiplier is how many packets of BFD in a row may be missing.
const Multiplier = 3

// Plan is a router's task: to take each balancer's routes over BGP, and to have equal ones as one route with several
// next hops. The routes of a balancer that is dead are not kept (no graceful restart), and those of one that is drained
// (GRACEFUL_SHUTDOWN, RFC 8326) are the last choice.
type Plan struct {
	// Dir is where the router's files are.
	Dir string
	// ID is the router's, AS its number, and BalancersAS that of the balancers.
	ID              netip.Addr
	AS, BalancersAS uint32
	// HoldTime is after how long a silence of a balancer its session ends, in whole seconds.
	HoldTime time.Duration
	// BFD is how often packets of BFD are sent and taken (RFC 5880); 0: there is none.
	BFD time.Duration
	// Balancers are the sessions.
	Balancers []Session
}

// Session is a BGP session with a balancer, which opens it.
type Session struct {
	// Local is the router's address, Balancer the balancer's.
	Local, Balancer netip.Addr
}

// Keepalive is how often the router shows that it lives, in seconds.
func (p Plan) Keepalive() int { return max(int(p.HoldTime.Seconds())/3, 1) }

// Hold is the hold time in seconds.
func (p Plan) Hold() int { return int(p.HoldTime.Seconds()) }

// Milliseconds is BFD's interval.
func (p Plan) Milliseconds() int { return int(p.BFD.Milliseconds()) }

// Multiplier is [Multiplier].
func (p Plan) Multiplier() int { return Multiplier }

// Daemon is a process of a router. Those of a plan are started in their order, each when the one before is ready.
type Daemon struct {
	Path string
	Args []string
	// File is where Text, its configuration, is to be.
	File, Text string
	// Ready is a file that is there once the process is ready.
	Ready string
}

var (
	//go:embed bird.conf.tmpl
	birdText string
	//go:embed zebra.conf.tmpl
	zebraText string
	//go:embed bfdd.conf.tmpl
	bfddText string
	//go:embed bgpd.conf.tmpl
	bgpdText string
)

// frrPrograms is where Debian has FRR's daemons.
const frrPrograms = "/usr/lib/frr/"

// Daemons are the processes of a plan.
func (k Kind) Daemons(p Plan) ([]Daemon, error) {
	if k == BIRD {
		d := Daemon{Path: "bird", File: filepath.Join(p.Dir, "bird.conf"), Ready: filepath.Join(p.Dir, "bird.ctl")}
		d.Args = []string{"-f", "-c", d.File, "-s", d.Ready, "-P", filepath.Join(p.Dir, "bird.pid")}
		var err error
		d.Text, err = render(d.Path, birdText, p)
		return []Daemon{d}, err
	}
	texts := []struct{ name, text string }{{"zebra", zebraText}, {"bfdd", bfddText}, {"bgpd", bgpdText}}
	if p.BFD == 0 {
		texts = slices.Delete(texts, 1, 2)
	}
	var all []Daemon
	for _, t := range texts {
		in := func(suffix string) string { return filepath.Join(p.Dir, t.name+suffix) }
		text, err := render(t.name, t.text, p)
		if err != nil {
			return nil, err
		}
		d := Daemon{Path: frrPrograms + t.name, File: in(".conf"), Text: text, Ready: in(".vty")}
		// As root and in the group of FRR's shell, as it checks; without a port for it (-P 0).
		d.Args = []string{"-f", d.File, "-i", in(".pid"), "--vty_socket", p.Dir, "-z",
			filepath.Join(p.Dir, "zserv.api"),
			"-u", "root", "-g", "frrvty", "--log", "stdout", "-P", "0"}
		if t.name == "bfdd" {
			d.Args = append(d.Args, "--bfdctl", filepath.Join(p.Dir, "bfdd.sock"))
		}
		all = append(all, d)
	}
	return all, nil
}

func render(name, text string, p Plan) (string, error) {
	var b bytes.Buffer
	parsed, err := template.New(name).Parse(text)
	if err == nil {
		err = parsed.Execute(&b, p)
	}
	if err != nil {
		return "", fmt.Errorf("writing the configuration of %s: %w", name, err)
	}
	return b.String(), nil
}

// Name is the program's, as people write it.
func (k Kind) Name() string { return strings.ToUpper(string(k)) }

// Program is the program that tells the installed version, by the flag --version.
func (k Kind) Program() string {
	if k == FRR {
		return frrPrograms + "zebra"
	}
	return string(k)
}

// Obstacle returns the reason why there is no such router on this host; empty if there can be.
func (k Kind) Obstacle() string {
	programs := []string{k.Program()}
	if k == FRR {
		programs = append(programs, frrPrograms+"bgpd", frrPrograms+"bfdd")
	}
	for _, program := range programs {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Sprintf("%s, the router, is not installed (there is no %s): %s", k.Name(), program, hints[k])
		}
	}
	return ""
}

var hints = map[Kind]string{
	BIRD: "run `make deps`, or install it from your distribution",
	FRR:  "run `scripts/deps.sh bgp`, or install it from your distribution",
}
