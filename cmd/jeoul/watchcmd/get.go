// SPDX-License-Identifier: Apache-2.0

package watchcmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/jeoul/jeoul/cmd/jeoul/cmdkit"
	"github.com/jeoul/jeoul/internal/balancer/api"
	"github.com/jeoul/jeoul/internal/balancer/events"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/text/nearest"
)

// GetCmd shows parts of a running balancer, in the form of the API.
type GetCmd struct {
	Services getServicesCmd `cmd:"" aliases:"service" help:"Show services."`
	Backends getBackendsCmd `cmd:"" aliases:"backend" help:"Show backends, with their state, health and counters."`
	Checks   getChecksCmd   `cmd:"" aliases:"check" help:"Show the health checks of backends, and their latest results."`
	Flows    getFlowsCmd    `cmd:"" aliases:"flow" help:"Show flows that the data plane remembers."`
	Events   getEventsCmd   `cmd:"" aliases:"event" help:"Show events of the balancer, with the requesting client."`
	Sources  getSourcesCmd  `cmd:"" aliases:"source" help:"Show the sources of the configuration."`
	Members  getMembersCmd  `cmd:"" aliases:"member" help:"Show the other balancers that share the VIPs, and where they differ."`
}

// getOutput selects the output format.
type getOutput struct {
	Output string `name:"output" short:"o" enum:"text,wide,json,yaml,name" default:"text" placeholder:"FORMAT" help:"Output format: text, wide (with more columns), json, yaml (both as the API's schemas have it) or name (${default})."`
}

// getFlags are the flags of each kind that can be watched.
type getFlags struct {
	cmdkit.DaemonFlags
	getOutput
	Watch bool `name:"watch" short:"w" help:"Print changes as they come, until Ctrl-C: rows, JSON as a line for each object, or documents of YAML. Counters alone are no change."`
}

type getServicesCmd struct {
	getFlags
	Names []string `arg:"" optional:"" name:"service" predictor:"service" help:"Services by name or VIP; all where none is named."`
	Owner string   `name:"owner" placeholder:"SOURCE" help:"Only services of this source of the configuration, such as file or api."`
}

// Run prints services.
func (c *getServicesCmd) Run(ctx context.Context) error {
	return show(ctx, os.Stdout, c.getFlags, serviceKind, query[ops.Service]{c.Names, func(s ops.Service) bool {
		return c.Owner == "" || s.Owner == c.Owner
	}})
}

type getBackendsCmd struct {
	getFlags
	Names  []string          `arg:"" optional:"" name:"service/backend" predictor:"part" help:"Backends by name or address, such as web/web01 or web/10.0.0.1, or services for all of theirs; all where none is named."`
	States []lb.BackendState `name:"state" enum:"${backendStates}" placeholder:"STATE" help:"Only backends in these states, such as draining,unhealthy."`
}

// Run prints backends.
func (c *getBackendsCmd) Run(ctx context.Context) error {
	return show(ctx, os.Stdout, c.getFlags, backendKind,
		query[ops.ServiceBackend]{c.Names, func(b ops.ServiceBackend) bool {
			return len(c.States) == 0 || slices.Contains(c.States, b.State)
		}})
}

type getChecksCmd struct {
	getFlags
	Names  []string    `arg:"" optional:"" name:"service/backend" predictor:"part" help:"Backends, such as web/web01, or services for all of theirs; all where none is named."`
	States []lb.Health `name:"state" enum:"unknown,healthy,failing" placeholder:"STATE" help:"Only checks in these states: ${enum}."`
}

// Run prints checks.
func (c *getChecksCmd) Run(ctx context.Context) error {
	return show(ctx, os.Stdout, c.getFlags, checkKind, query[ops.BackendCheck]{c.Names, func(b ops.BackendCheck) bool {
		return len(c.States) == 0 || slices.Contains(c.States, b.State)
	}})
}

type getSourcesCmd struct {
	getFlags
	Names []string `arg:"" optional:"" name:"source" predictor:"source" help:"Sources by name; all where none is named."`
}

// Run prints sources.
func (c *getSourcesCmd) Run(ctx context.Context) error {
	return show(ctx, os.Stdout, c.getFlags, sourceKind, query[api.Source]{c.Names, func(api.Source) bool {
		return true
	}})
}

type getEventsCmd struct {
	getFlags
	Names []string      `arg:"" optional:"" name:"service/backend" predictor:"part" help:"Services or backends that events are about, such as web or web/web01; all where none is named."`
	Kinds []events.Kind `name:"kind" enum:"${eventKinds}" placeholder:"KIND" help:"Only events of these kinds: ${enum}."`
	After string        `name:"after" placeholder:"ID" help:"Only events after that of this id, which -o wide and json show."`
}

// Run prints events.
func (c *getEventsCmd) Run(ctx context.Context) error {
	q := query[events.Event]{c.Names, func(e events.Event) bool {
		return len(c.Kinds) == 0 || slices.Contains(c.Kinds, e.Kind)
	}}
	if !c.Watch {
		after := eventKind
		after.list = eventsAfter(c.After)
		return show(ctx, os.Stdout, c.getFlags, after, q)
	}
	client, err := c.NewClient()
	if err != nil {
		return err
	}
	return watchEvents(ctx, client, &getWriter[events.Event]{to: os.Stdout, kind: eventKind, format: c.Output}, q,
		c.After, os.Stderr)
}

// kind is a kind of object that the API lists.
type kind[T any] struct {
	noun string
	// list requests objects of the kind, of these services or of all.
	list func(client *api.Client, ctx context.Context, services ...string) ([]T, error)
	// name is the name by which a person refers to an object, and matches reports whether an argument refers to it.
	name    func(T) string
	matches func(one T, argument string) bool
	columns []getColumn[T]
	// stable returns an object without the fields that change all the time, such as counters: watching prints it again
	// when the other fields change.
	stable func(T) T
	// absent: a name that matches nothing is no error.
	absent bool
}

// getColumn is a column of a table of objects.
type getColumn[T any] struct {
	name  string
	value func(T) any
	// right aligns the column to the right, and wide leaves it out of a table that is not wide.
	right, wide bool
	// showsRemoval: the column shows "removed" for an object that no longer exists.
	showsRemoval bool
}

// query selects objects of a kind.
type query[T any] struct {
	names []string
	// fits reports whether an object with a matching name is shown.
	fits func(T) bool
}

// matches reports whether the query selects an object of a kind.
func (q query[T]) matches(k kind[T], one T) bool {
	return q.fits(one) && (len(q.names) == 0 || slices.ContainsFunc(q.names, func(name string) bool {
		return k.matches(one, name)
	}))
}

// selectItems returns the objects that a query selects. The error names those that do not exist; the others are
// returned with it.
func selectItems[T any](ctx context.Context, client *api.Client, k kind[T], q query[T]) ([]T, error) {
	all, err := k.list(client, ctx, servicesIn(q.names)...)
	if err != nil {
		return nil, err
	}
	found := []T{}
	for _, one := range all {
		if q.matches(k, one) {
			found = append(found, one)
		}
	}
	for _, name := range q.names {
		if !k.absent && !slices.ContainsFunc(all, func(one T) bool { return k.matches(one, name) }) {
			err = errors.Join(err, notFoundError(k, name, all))
		}
	}
	return found, err
}

// notFoundError returns the error for a name that no object of a kind has; it names the nearest one.
func notFoundError[T any](k kind[T], name string, all []T) error {
	var names []string
	for _, one := range all {
		names = append(names, k.name(one))
	}
	if near := nearest.Word(name, names); near != "" {
		return fmt.Errorf("there is no %s %s; did you mean %s? `jeoul get %[1]ss -o name` lists those there are",
			k.noun, name, near)
	}
	return fmt.Errorf("there is no %s %s; `jeoul get %[1]ss -o name` lists those there are", k.noun, name)
}

// servicesIn returns the services that arguments name; none if an argument may refer to any.
func servicesIn(arguments []string) (names []string) {
	for _, argument := range arguments {
		name, _, _ := strings.Cut(argument, "/")
		if _, err := netip.ParseAddr(name); err == nil {
			return nil
		}
		names = append(names, name)
	}
	return names
}

// show prints the objects that a query selects.
func show[T any](ctx context.Context, to io.Writer, flags getFlags, k kind[T], q query[T]) error {
	client, err := flags.NewClient()
	if err != nil {
		return err
	}
	out := &getWriter[T]{to: to, kind: k, format: flags.Output}
	if flags.Watch {
		w := &follower[T]{client: client, query: q, out: out, notices: os.Stderr, retry: watchRetry,
			retryLimit: watchRetryLimit}
		return w.watch(ctx)
	}
	found, missing := selectItems(ctx, client, k, q)
	if missing != nil && len(found) == 0 {
		return missing
	}
	return errors.Join(out.list(found, q.names), missing)
}
