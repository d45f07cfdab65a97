// SPDX-License-Identifier: Apache-2.0

package watchcmd

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/jeoul/jeoul/cmd/jeoul/cmdkit"
	"github.com/jeoul/jeoul/internal/balancer/events"
)

// EventsCmd is the old spelling of getEventsCmd. It prints the old format, for scripts that read it.
type EventsCmd struct {
	cmdkit.DaemonFlags
	Follow bool   `name:"follow" short:"f" help:"Go on with events as they come, until Ctrl-C."`
	After  string `name:"after" placeholder:"ID" help:"Only events after that of this id, which -o json shows."`
	Output string `name:"output" short:"o" enum:"text,json" default:"text" placeholder:"FORMAT" help:"Output format: text, or json, a line for each event (${default})."`
}

// Run prints the events that are kept, and new ones.
func (c *EventsCmd) Run(ctx context.Context) error {
	client, err := c.NewClient()
	if err != nil {
		return err
	}
	return client.Events(ctx, c.After, c.Follow, func(event *events.Event, lost *events.Lost) error {
		switch {
		case c.Output != "json":
			return writeEvent(os.Stdout, event, lost)
		case event == nil:
			return json.NewEncoder(os.Stdout).Encode(map[string]*events.Lost{"lost": lost})
		}
		return json.NewEncoder(os.Stdout).Encode(event)
	})
}

// writeEvent prints an event for a person.
func writeEvent(w io.Writer, event *events.Event, lost *events.Lost) (err error) {
	switch {
	case event != nil:
		_, err = fmt.Fprintf(w, "%s  %-7s  %-13s  %s\n", event.At.Local().Format(time.DateTime), event.Level,
			event.Kind, event.Message)
	case lost.Events > 0:
		_, err = fmt.Fprintf(w, "! %d events are lost: %s\n", lost.Events, lost.Why)
	default:
		_, err = fmt.Fprintf(w, "! events are lost: %s\n", lost.Why)
	}
	return err
}
