// SPDX-License-Identifier: Apache-2.0

// Package router knows the programs that can be the router in front of several balancers, and how each is configured
// and run. It starts none of them.
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

// Kind is a router program.
type Kind string

// The supported programs.
const (
	BIRD Kind = "bird"
	FRR  Kind = "frr"
)

// Kinds lists the kinds of routers, the default first.
var Kinds = []Kind{BIRD, FRR}

// Multiplier is the detection multiplier of BFD: the number of missing packets in a row after which a session is down.
const Multiplier = 3

// Plan is the task of a router: to receive each balancer's routes over BGP, and to install equal routes as one route
// with several next hops. It does not keep the routes of a dead balancer (no graceful restart), and prefers all other
// routes to those of a draining balancer (GRACEFUL_SHUTDOWN, RFC 8326).
type Plan struct {
	// Dir is the directory of the router's files.
	Dir string
	// ID is the router ID, AS the router's AS number, and BalancersAS that of the balancers.
	ID              netip.Addr
	AS, BalancersAS uint32
	// HoldTime is the hold time of BGP, after which the session of a silent balancer ends, in whole seconds.
	HoldTime time.Duration
	// BFD is the interval at which BFD packets are sent and expected (RFC 5880); 0 means no BFD.
	BFD time.Duration
	// Balancers are the BGP sessions.
	Balancers []Session
}

// Session is a BGP session with a balancer. The balancer opens it.
type Session struct {
	// Local is the router's address, Balancer the balancer's.
	Local, Balancer netip.Addr
}

// Keepalive returns the interval of the router's keepalives, in seconds.
func (p Plan) Keepalive() int { return max(int(p.HoldTime.Seconds())/3, 1) }

// Hold returns the hold time in seconds.
func (p Plan) Hold() int { return int(p.HoldTime.Seconds()) }

// Milliseconds returns the interval of BFD in milliseconds.
func (p Plan) Milliseconds() int { return int(p.BFD.Milliseconds()) }

// Multiplier returns [Multiplier].
func (p Plan) Multiplier() int { return Multiplier }

// Daemon is a process of a router. The daemons of a plan are started in order, each when the one before is ready.
type Daemon struct {
	Path string
	Args []string
	// File is the path for Text, the daemon's configuration.
	File, Text string
	// Ready is a file that exists once the process is ready.
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

// frrPrograms is the directory of FRR's daemons on Debian.
const frrPrograms = "/usr/lib/frr/"

// Daemons returns the processes of a plan.
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
		// As root and in the group of FRR's shell, because FRR checks both; without a port for the shell (-P 0).
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

// Name returns the name of the program, as people write it.
func (k Kind) Name() string { return strings.ToUpper(string(k)) }

// Program returns the program that prints the installed version with the flag --version.
func (k Kind) Program() string {
	if k == FRR {
		return frrPrograms + "zebra"
	}
	return string(k)
}

// SkipReason returns the reason why this router cannot run on this host; empty if it can.
func (k Kind) SkipReason() string {
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
