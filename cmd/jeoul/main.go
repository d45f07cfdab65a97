// SPDX-License-Identifier: Apache-2.0

// Command jeoul balances services by direct server return, and weighs load
// balancers in a laboratory of network namespaces. Each command is in a file of
// its own; this one lists them.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/jeoul/jeoul/internal/config"
	"github.com/jeoul/jeoul/internal/events"
	"github.com/jeoul/jeoul/internal/exporter"
	"github.com/jeoul/jeoul/internal/importer"
	"github.com/jeoul/jeoul/internal/lb"
	"github.com/jeoul/jeoul/internal/manpage"
	"github.com/jeoul/jeoul/internal/ops"
	"github.com/jeoul/jeoul/internal/sources"
	"github.com/jeoul/jeoul/internal/tune"
)

// commands are what jeoul can do.
type commands struct {
	Run        runCmd        `cmd:"" help:"Balance the services of a configuration file, until SIGINT or SIGTERM; SIGHUP reads the file again, and SIGUSR2 ends the process and leaves its work to the next."`
	Agent      agentCmd      `cmd:"" help:"Prepare this host as a backend: accept packets for a VIP without answering ARP or NDP for it."`
	Backend    backendCmd    `cmd:"" help:"Drain or disable backends of a running balancer, enable or weigh them, and undo that; until the daemon is stopped."`
	Balancer   balancerCmd   `cmd:"" help:"Take a running balancer out of every anycast, for maintenance, or bring it back; over restarts, too."`
	Members    membersCmd    `cmd:"" help:"Make the key of balancers that know each other as members; jeoul get members shows them."`
	Reload     reloadCmd     `cmd:"" help:"Have a running balancer read its configuration file again, and say whether that is in force."`
	Apply      applyCmd      `cmd:"" help:"Configure services of a running balancer beside its file; answers when the data plane has them."`
	Diff       diffCmd       `cmd:"" help:"Show what applying a file would change in a running balancer, and change nothing."`
	Detach     detachCmd     `cmd:"" help:"Take away the data plane and the network changes of a process that has left them."`
	Status     statusCmd     `cmd:"" help:"Show services, backends and counters of a running balancer."`
	Get        getCmd        `cmd:"" help:"Show services, backends, checks, events or sources of a running balancer, as a table or for a program."`
	Describe   describeCmd   `cmd:"" help:"Tell all about one service or backend of a running balancer."`
	Token      tokenCmd      `cmd:"" help:"Make a token for the API of a balancer over TCP."`
	Events     eventsCmd     `cmd:"" help:"Show what has become of a running balancer: health, operations, reloads, and who asked for them."`
	Trace      traceCmd      `cmd:"" help:"Ask a running balancer why a packet goes where it goes, or follow real ones."`
	Config     configCmd     `cmd:"" help:"Explain the keys of a configuration, and write one anew."`
	Import     importCmd     `cmd:"" help:"Make a configuration of what another balancer is configured by, and say what could not be carried over."`
	Export     exportCmd     `cmd:"" help:"Write what another balancer is configured by from a configuration, and say what it cannot express."`
	Doctor     doctorCmd     `cmd:"" help:"Look at this host while traffic runs, and say where packets are lost, why, and what cures it."`
	Try        tryCmd        `cmd:"" help:"Try a balancer on this machine: with three web servers and a client, in network namespaces, and nothing stays behind."`
	Bench      benchCmd      `cmd:"" help:"Weigh load balancers."`
	Plan       planCmd       `cmd:"" help:"Say how many balancers a load needs, and what breaks when one of them leaves."`
	Wire       wireCmd       `cmd:"" help:"Test a balancer at packet level: millions of packets and connections without sockets."`
	Report     reportCmd     `cmd:"" help:"Make tables, charts and a page from the results of a run."`
	Tune       tuneCmd       `cmd:"" help:"Hold this host's settings against a profile, change them, and take everything back."`
	Completion completionCmd `cmd:"" help:"Print what a shell needs to complete command lines of jeoul."`
	Man        manCmd        `cmd:"" help:"Write the manual pages of jeoul into a directory, a file for each command."`
	Version    versionCmd    `cmd:"" help:"Show the version of jeoul and of what it runs on."`

	// What runs inside of jeoul try.
	Sandbox sandboxCmd `cmd:"" hidden:""`
	// What jeoul run starts to speak BGP.
	Speaker speakerCmd `cmd:"" hidden:""`
}

// The exit statuses.
const (
	exitOK    = 0
	exitError = 1
	exitUsage = 2
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	// The first signal asks to clean up; with the handler gone, the next kills.
	context.AfterFunc(ctx, stop)
	code := execute(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// execute runs one command line and returns the exit status.
func execute(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	exited, code := false, exitOK
	// --help calls this and expects not to come back.
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
	command, err := parser.Parse(args)
	switch {
	case exited:
		return code
	case err != nil:
		return fail(stderr, usageError(err), exitUsage)
	}
	if err := command.Run(); err != nil {
		code := exitError
		// An error may know better, as that of an interrupted run does.
		var coder kong.ExitCoder
		if errors.As(err, &coder) {
			code = coder.ExitCode()
		}
		return fail(stderr, err, code)
	}
	return exitOK
}

// newParser returns what parses command lines.
func newParser(ctx context.Context, stdout, stderr io.Writer, options ...kong.Option) (*kong.Kong, error) {
	return kong.New(&commands{}, append(options,
		kong.Name("jeoul"),
		kong.Description("Jeoul balances services by direct server return in eBPF, and weighs load balancers."),
		kong.Writers(stdout, stderr),
		kong.Vars{"tuneState": tune.StateDir, "socket": config.DefaultSocket, "storeDir": sources.DefaultDir, "backendStates": enumeration(lb.BackendStates), "eventKinds": enumeration(events.Kinds), "memberStates": enumeration(ops.MemberStates),
			"flowStates": enumeration(lb.FlowStates), "dialects": strings.Join(importer.Dialects(), ","), "exports": strings.Join(exporter.Dialects(), ","),
			"modes": enumeration(lb.PacketModes), "rememberedFlows": strconv.Itoa(lb.DefaultFlowLimit), "flowLimit": strconv.Itoa(ops.DefaultFlows), "mostFlows": strconv.Itoa(ops.MaxFlows)},
		kong.BindTo(ctx, (*context.Context)(nil)),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
	)...)
}

// enumeration writes words as kong reads an enumeration.
func enumeration[T ~string](words []T) string {
	list := make([]string, len(words))
	for i, word := range words {
		list[i] = string(word)
	}
	return strings.Join(list, ",")
}

// usageError adds where the command line is explained.
func usageError(err error) error {
	help := "jeoul --help"
	var parse *kong.ParseError
	if errors.As(err, &parse) && parse.Context != nil {
		if node := parse.Context.Selected(); node != nil {
			help = manpage.Command(node) + " --help"
		}
	}
	return fmt.Errorf("%w\nsee `%s`", err, help)
}

// fail prints each line of an error and returns the exit status.
func fail(stderr io.Writer, err error, code int) int {
	for line := range strings.Lines(err.Error()) {
		fmt.Fprintf(stderr, "jeoul: %s\n", strings.TrimRight(line, "\n"))
	}
	return code
}
