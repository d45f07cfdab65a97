// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"k8s.io/utils/cpuset"

	"github.com/jeoul/jeoul/cmd/jeoul/cmdkit"
	"github.com/jeoul/jeoul/internal/tools/tune"
	"github.com/jeoul/jeoul/internal/tools/tune/untracked"
)

// tuneCmd prepares a host.
type tuneCmd struct {
	Check  tuneCheckCmd  `cmd:"" help:"Compare this host with the profile of a role, and change nothing."`
	Apply  tuneApplyCmd  `cmd:"" help:"Change what differs, item by item, and note what was there."`
	Revert tuneRevertCmd `cmd:"" help:"Revert all changes of apply."`
	Show   tuneShowCmd   `cmd:"" help:"Show the profile: each item, its value, why, and what it costs."`
}

// tuneProfile selects items.
type tuneProfile struct {
	Role    tune.Role `enum:"balancer,web,client" required:"" placeholder:"balancer|web|client" help:"The task of this host."`
	Mode    string    `enum:"${tuneModes}" default:"l2dsr" placeholder:"MODE" help:"How its service is balanced: one of the modes of services, or proxy for a balancer that ends connections (${default})."`
	Profile string    `type:"existingfile" placeholder:"FILE" help:"A profile of your own, over the built-in one: docs/guides/tune.md."`
	Item    []string  `placeholder:"ID" help:"Only these items; may be repeated."`
}

// tuneHost selects the host's interfaces, services and CPUs.
type tuneHost struct {
	Interface  []string `placeholder:"NAME" help:"The interface that the service's traffic takes; may be repeated."`
	Service    []string `placeholder:"PROTOCOL/VIP:PORT" help:"A service whose connections need not be tracked by this host's kernel, such as tcp/192.0.2.1:80; may be repeated."`
	PacketCPUs string   `name:"packet-cpus" placeholder:"LIST" help:"The CPUs that shall take packets, such as 2-7, instead of those that the plan chooses."`
	Root       string   `type:"existingdir" placeholder:"DIR" help:"A copy of a machine's /proc, /sys and /etc to look at and change instead of this machine's."`
}

// options reads the profile and the host from the flags.
func (p tuneProfile) options(host tuneHost) (tune.Options, error) {
	profile, err := tune.Load(p.Profile)
	if err == nil {
		profile, err = profile.Only(p.Item)
	}
	if err != nil {
		return tune.Options{}, err
	}
	cpus, err := cpuset.Parse(host.PacketCPUs)
	if err != nil {
		return tune.Options{}, fmt.Errorf("--packet-cpus %s: not a list of CPUs, such as 2-7,9", host.PacketCPUs)
	}
	opt := tune.Options{Role: p.Role, Mode: p.Mode, Interfaces: host.Interface, Profile: profile, PacketCPUs: cpus,
		Root: host.Root}
	for _, text := range host.Service {
		service, err := untracked.ParseService(text)
		if err != nil {
			return tune.Options{}, fmt.Errorf("--service: %w", err)
		}
		opt.Services = append(opt.Services, service)
	}
	return opt, nil
}

// open reads the host's facts.
func (p tuneProfile) open(host tuneHost) (*tune.Tuner, error) {
	opt, err := p.options(host)
	if err != nil {
		return nil, err
	}
	return tune.New(opt)
}

// arguments returns the flags that selected the items, for a command line that is run again.
func (p tuneProfile) arguments() []string {
	var args []string
	if p.Profile != "" {
		args = append(args, "--profile", p.Profile)
	}
	for _, id := range p.Item {
		args = append(args, "--item", id)
	}
	return args
}

// Help describes the drawing and the exit status.
func (tuneCheckCmd) Help() string {
	return `Also draws which cores should do what. The exit status is 1 where something that matters differs.`
}

type tuneCheckCmd struct {
	tuneProfile
	tuneHost
	cmdkit.OutputFlag
	All bool `short:"a" help:"Also show settings that are right, or that do not apply here."`
}

// errDeviates is the error of a check that found a deviation.
type errDeviates struct{ error }

// Run checks and prints.
func (c *tuneCheckCmd) Run() error {
	t, err := c.open(c.tuneHost)
	if err != nil {
		return err
	}
	defer t.Close()
	r := t.Check()
	if c.JSON() {
		err = writeJSON(os.Stdout, r)
	} else {
		writeTune(os.Stdout, r, c.All)
	}
	if err != nil {
		return err
	}
	if bad := r.Deviations(); len(bad) > 0 {
		var ids []string
		for _, f := range bad {
			ids = append(ids, f.Item)
		}
		return errDeviates{fmt.Errorf("settings that matter for a %s differ from the profile: %s", r.Role,
			strings.Join(ids, ", "))}
	}
	return nil
}

type tuneApplyCmd struct {
	tuneProfile
	tuneHost
	cmdkit.OutputFlag
	tuneState
	DryRun   bool `help:"Change nothing; print the commands that an engineer would type."`
	Persist  bool `help:"Have it made again at every boot: files of ours for systemd-sysctl, and a systemd unit."`
	EditGrub bool `help:"Write the advised kernel parameters into a file of ours that update-grub reads."`
}

// tuneState is the directory of the journal.
type tuneState struct {
	StateDir string `type:"path" placeholder:"DIR" help:"Directory of the journal, which has the values of before (${tuneState})."`
}

// Run applies the profile and prints the changes.
func (c *tuneApplyCmd) Run() error {
	t, err := c.open(c.tuneHost)
	if err != nil {
		return err
	}
	defer t.Close()
	opt := tune.ApplyOptions{State: c.StateDir, Persist: c.Persist, EditGrub: c.EditGrub}
	if opt.Executable, err = os.Executable(); err != nil {
		return fmt.Errorf("find out where this program is: %w", err)
	}
	opt.Arguments = c.arguments()
	if c.DryRun {
		for _, line := range t.Commands(opt) {
			fmt.Println(line)
		}
		return nil
	}
	r, err := t.Apply(opt)
	if r == nil {
		return err
	}
	if c.JSON() {
		return errors.Join(err, writeJSON(os.Stdout, r))
	}
	writeApplied(os.Stdout, r)
	return err
}

type tuneRevertCmd struct {
	cmdkit.OutputFlag
	tuneState
	Root   string `type:"existingdir" placeholder:"DIR" help:"As of apply."`
	Force  bool   `xor:"foreign" help:"Put back also what was changed since by other means."`
	Forget bool   `xor:"foreign" help:"Keep what was changed since by other means, and forget what was before."`
	DryRun bool   `help:"Change nothing; print the commands that an engineer would type."`
}

// Run reverts all changes.
func (c *tuneRevertCmd) Run() error {
	events, err := tune.Revert(tune.RevertOptions{
		State: c.StateDir, Root: c.Root, Force: c.Force, Forget: c.Forget, DryRun: c.DryRun})
	switch {
	case c.JSON():
		return errors.Join(err, writeJSON(os.Stdout, events))
	case c.DryRun:
		for _, e := range events {
			fmt.Println(revertCommand(e))
		}
	default:
		writeReverted(os.Stdout, events)
	}
	return err
}

type tuneShowCmd struct {
	Role    tune.Role `enum:"balancer,web,client,all" default:"all" placeholder:"balancer|web|client|all" help:"Only the items of a role (${default})."`
	Profile string    `type:"existingfile" placeholder:"FILE" help:"A profile of your own, over the built-in one."`
	Item    []string  `placeholder:"ID" help:"Only these items; may be repeated."`
	Output  string    `short:"o" enum:"text,json,yaml" default:"text" placeholder:"FORMAT" help:"Output format: text, json, or yaml: the built-in profile, to begin one of your own (${default})."`
}

// Run prints the profile.
func (c *tuneShowCmd) Run() error {
	if c.Output == "yaml" {
		fmt.Print(tune.BuiltInYAML())
		return nil
	}
	profile, err := tune.Load(c.Profile)
	if err == nil {
		profile, err = profile.Only(c.Item)
	}
	if err != nil {
		return err
	}
	if c.Role != "all" {
		profile = profile.Of(c.Role)
	}
	if c.Output == "json" {
		return writeJSON(os.Stdout, profile)
	}
	writeProfile(os.Stdout, profile)
	return nil
}
