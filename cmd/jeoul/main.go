// SPDX-License-Identifier: Apache-2.0

// Command jeoul is a load balancer for Linux that also benchmarks load balancers. Each command is in its own file; this
// file lists them. The rules for all of them are in CONTRIBUTING.md.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/jeoul/jeoul/cmd/jeoul/advisecmd"
	"github.com/jeoul/jeoul/cmd/jeoul/operatecmd"
	"github.com/jeoul/jeoul/cmd/jeoul/watchcmd"
	"github.com/jeoul/jeoul/cmd/jeoul/weighcmd"
	"github.com/jeoul/jeoul/internal/balancer/config"
	"github.com/jeoul/jeoul/internal/balancer/events"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/balancer/sources"
	"github.com/jeoul/jeoul/internal/balancer/top"
	"github.com/jeoul/jeoul/internal/move/exporter"
	"github.com/jeoul/jeoul/internal/move/importer"
	"github.com/jeoul/jeoul/internal/text/cli"
	"github.com/jeoul/jeoul/internal/tools/tune"
	"github.com/jeoul/jeoul/internal/weigh/sizing"
)

// The tasks by which help groups commands, the most common first.
const (
	taskWatch     = "watch"
	taskOperate   = "operate"
	taskConfigure = "configure"
	taskHosts     = "hosts"
	taskWeigh     = "weigh"
	taskProgram   = "program"
)

var tasks = []kong.Group{
	{Key: taskWatch, Title: "Look at a running balancer:"},
	{Key: taskOperate, Title: "Operate it:"},
	{Key: taskConfigure, Title: "Configure it:"},
	{Key: taskHosts, Title: "Run it, and prepare hosts:"},
	{Key: taskWeigh, Title: "Try and weigh balancers:"},
	{Key: taskProgram, Title: "This program:"},
}

// commands are the commands of jeoul, in the order of help. The Help of a command holds the text for which its line of
// help has no room.
type commands struct {
	Status    watchcmd.StatusCmd    `cmd:"" group:"watch" help:"Show services, backends and counters, and what is wrong."`
	Get       watchcmd.GetCmd       `cmd:"" group:"watch" help:"List services, backends, checks, flows, events, sources, members."`
	Describe  watchcmd.DescribeCmd  `cmd:"" group:"watch" help:"Show all details of a service or backend."`
	Top       watchcmd.TopCmd       `cmd:"" group:"watch" help:"Watch services, backends and drops live; drain and weigh by keys."`
	Trace     watchcmd.TraceCmd     `cmd:"" group:"watch" help:"Explain the path of a packet, or follow real ones."`
	Capture   watchcmd.CaptureCmd   `cmd:"" group:"watch" help:"Capture real packets with the outcome of each; write pcapng."`
	Doctor    doctorCmd             `cmd:"" group:"watch" help:"Find where this host loses packets, with causes and remedies."`
	Dashboard watchcmd.DashboardCmd `cmd:"" group:"watch" help:"Show a balancer live in a browser of this host."`

	Backend  operatecmd.BackendCmd  `cmd:"" group:"operate" help:"Drain, disable, enable, weigh or check a backend; undo that."`
	Balancer operatecmd.BalancerCmd `cmd:"" group:"operate" help:"Leave the VIPs to other balancers, for maintenance; come back."`
	Reload   operatecmd.ReloadCmd   `cmd:"" group:"operate" help:"Read the configuration file again."`

	Apply   operatecmd.ApplyCmd `cmd:"" group:"configure" help:"Configure services of a running balancer beside its file."`
	Diff    operatecmd.DiffCmd  `cmd:"" group:"configure" help:"Show what apply would change, and change nothing."`
	Config  configCmd           `cmd:"" group:"configure" help:"Explain the keys of a configuration, and rewrite one."`
	Import  importCmd           `cmd:"" group:"configure" help:"Convert another balancer's configuration."`
	Export  exportCmd           `cmd:"" group:"configure" help:"Write another balancer's configuration."`
	Token   tokenCmd            `cmd:"" group:"configure" help:"Generate a token for the API over TCP."`
	Members membersCmd          `cmd:"" group:"configure" help:"Generate the key of members."`

	Run        runCmd        `cmd:"" group:"hosts" help:"Balance the services of a configuration file."`
	Detach     detachCmd     `cmd:"" group:"hosts" help:"Remove the data plane that a process has left."`
	Agent      agentCmd      `cmd:"" group:"hosts" help:"Prepare this host as a backend."`
	Kubernetes kubernetesCmd `cmd:"" group:"hosts" passthrough:"" help:"Serve Services of a Kubernetes cluster by this host's balancer."`
	Tune       tuneCmd       `cmd:"" group:"hosts" help:"Compare this host's settings with a profile; change, revert them."`

	Try    weighcmd.TryCmd    `cmd:"" group:"weigh" help:"Try a balancer on this machine; nothing stays behind."`
	Bench  weighcmd.BenchCmd  `cmd:"" group:"weigh" help:"Weigh load balancers in a laboratory."`
	Report weighcmd.ReportCmd `cmd:"" group:"weigh" help:"Make tables, charts and a page from the results of a run."`
	Plan   planCmd            `cmd:"" group:"weigh" help:"Compute how many balancers a load needs."`
	Advise advisecmd.Cmd      `cmd:"" group:"weigh" help:"Recommend mode, scheduler and number of balancers for a service."`
	Wire   weighcmd.WireCmd   `cmd:"" group:"weigh" help:"Test a balancer at packet level, without sockets."`

	Completion completionCmd `cmd:"" group:"program" help:"Print what a shell needs to complete command lines."`
	Man        manCmd        `cmd:"" group:"program" help:"Write the manual pages into a directory."`
	Version    versionCmd    `cmd:"" group:"program" help:"Show the version of jeoul and of what it runs on."`

	// The old spelling of get events.
	Events watchcmd.EventsCmd `cmd:"" group:"program" hidden:"" help:"Show events; the old spelling of jeoul get events."`
	// The programs that `jeoul try` runs in its sandbox.
	Sandbox weighcmd.SandboxCmd `cmd:"" group:"program" hidden:""`
	// The BGP speaker that `jeoul run` starts.
}

// The exit statuses.
const (
	exitOK    = 0
	exitError = 1
	exitUsage = 2
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	// The first signal starts the cleanup; with the handler gone, the next one kills.
	context.AfterFunc(ctx, stop)
	code := execute(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// execute runs one command line and returns the exit status.
func execute(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if command := parseOne(ctx, args, stdout, stderr); command != nil {
		return runCommand(command, stderr)
	}
	exited, code := false, exitOK
	// --help calls this and expects that it does not return.
	parser, err := newParser(ctx, stdout, stderr, kong.Exit(func(c int) { exited, code = true, c }))
	if err != nil {
		return fail(stderr, err, exitError)
	}
	if completeLine(parser); exited {
		return code
	}
	if len(args) == 0 {
		args = []string{"--help"}
	}
	args = replaceDeprecated(parser, args, stderr)
	command, err := parser.Parse(args)
	switch {
	case exited:
		return code
	case err != nil:
		return fail(stderr, cli.Explain(parser.Model, args, err), exitUsage)
	}
	return runCommand(command, stderr)
}

// runCommand runs a command that was parsed, and returns the exit status.
func runCommand(command *kong.Context, stderr io.Writer) int {
	if err := command.Run(); err != nil {
		code := exitError
		// An error may have its own exit status, such as that of an interrupted run.
		var coder kong.ExitCoder
		if errors.As(err, &coder) {
			code = coder.ExitCode()
		}
		return fail(stderr, err, code)
	}
	return exitOK
}

// newParser returns the parser of all command lines.
func newParser(ctx context.Context, stdout, stderr io.Writer, options ...kong.Option) (*kong.Kong, error) {
	return newParserOf(ctx, &commands{}, stdout, stderr, options...)
}

// newParserOf returns the parser of a grammar: all commands, or one of them.
func newParserOf(ctx context.Context, grammar any, stdout, stderr io.Writer, options ...kong.Option) (
	*kong.Kong, error,
) {
	return kong.New(grammar, append(options,
		kong.Name("jeoul"),
		kong.Description("Jeoul is a load balancer for Linux that also weighs load balancers."),
		kong.Writers(stdout, stderr),
		kong.Vars{"tuneState": tune.StateDir, "socket": config.DefaultSocket, "storeDir": sources.DefaultDir,
			"backendStates": enumTag(lb.BackendStates), "eventKinds": enumTag(events.Kinds),
			"memberStates": enumTag(ops.MemberStates),
			"topViews":     enumTag(top.Views), "topInterval": top.DefaultInterval.String(),
			"flowStates": enumTag(lb.FlowStates), "dialects": strings.Join(importer.Dialects(), ","),
			"exports": strings.Join(exporter.Dialects(), ","),
			"modes":   enumTag(lb.PacketModes), "schedulers": enumTag(lb.Schedulers),
			"tuneModes": strings.Join(tune.Modes(), ","), "besideNs": strconv.Itoa(sizing.UsualBesideNs),
			"rememberedFlows": strconv.Itoa(lb.DefaultFlowLimit), "flowLimit": strconv.Itoa(ops.DefaultFlows),
			"mostFlows": strconv.Itoa(ops.MaxFlows)},
		kong.BindTo(ctx, (*context.Context)(nil)),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
		kong.Help(cli.PrintHelp),
		cli.Groups(tasks),
	)...)
}

// enumTag joins words in kong's form of an enumeration.
func enumTag[T ~string](words []T) string {
	list := make([]string, len(words))
	for i, word := range words {
		list[i] = string(word)
	}
	return strings.Join(list, ",")
}

// replaceDeprecated replaces deprecated spellings in a command line, with a warning for each.
func replaceDeprecated(parser *kong.Kong, args []string, stderr io.Writer) []string {
	args = cli.Help(parser.Model, args)
	if name, old := deprecatedCommands[args[0]]; old {
		fmt.Fprintf(stderr, "jeoul: warning: `jeoul %s` is deprecated, and works until %s: use `jeoul %s`\n", args[0],
			deprecatedUntil, name)
	}
	args, notices := cli.Modernise(parser.Model, args, deprecations(), deprecatedUntil)
	for _, notice := range notices {
		fmt.Fprintf(stderr, "jeoul: warning: %s\n", notice)
	}
	return args
}

// fail prints each line of an error and returns the exit status.
func fail(stderr io.Writer, err error, code int) int {
	for line := range strings.Lines(err.Error()) {
		fmt.Fprintf(stderr, "jeoul: %s\n", strings.TrimRight(line, "\n"))
	}
	return code
}

// wholeCommands are the commands that read the model of all commands when they run.
var wholeCommands = []string{"completion", "man"}

// parseOne parses a command line with the grammar of only the command that the line names, because building the grammar
// of all commands takes longer than most commands take to answer. It returns nil, and writes nothing, if the line names
// no command, asks for help, is to be completed, or is wrong: only the grammar of all commands explains an error.
func parseOne(ctx context.Context, args []string, stdout, stderr io.Writer) *kong.Context {
	if len(args) == 0 || os.Getenv("COMP_LINE") != "" || asksForHelp(args) || slices.Contains(wholeCommands, args[0]) {
		return nil
	}
	if _, deprecated := deprecatedCommands[args[0]]; deprecated {
		return nil
	}
	grammar := grammarOf(args[0])
	if grammar == nil {
		return nil
	}
	exited := false
	parser, err := newParserOf(ctx, grammar, stdout, stderr, kong.Exit(func(int) { exited = true }))
	if err != nil {
		return nil
	}
	var warnings bytes.Buffer
	command, err := parser.Parse(replaceDeprecated(parser, args, &warnings))
	if err != nil || exited {
		return nil
	}
	_, _ = stderr.Write(warnings.Bytes()) // like everything that is written there
	return command
}

// asksForHelp reports whether a word of a command line may ask for help.
func asksForHelp(args []string) bool {
	return slices.ContainsFunc(args, func(word string) bool {
		return word == "help" || word == "--help" || (strings.HasPrefix(word, "-") && strings.Contains(word, "h"))
	})
}

// grammarOf returns the grammar of only the command of this name, with the tags that it has among all commands; nil if
// there is no such command.
func grammarOf(name string) any {
	all := reflect.TypeFor[commands]()
	for i := range all.NumField() {
		if field := all.Field(i); strings.ToLower(field.Name) == name {
			return reflect.New(reflect.StructOf([]reflect.StructField{field})).Interface()
		}
	}
	return nil
}
