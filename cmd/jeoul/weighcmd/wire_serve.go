// SPDX-License-Identifier: Apache-2.0

package weighcmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/jeoul/jeoul/cmd/jeoul/cmdkit"
	"github.com/jeoul/jeoul/internal/weigh/wire"
)

// wireServeCmd runs server ports only.
type wireServeCmd struct {
	wireServerFlags `embed:""`
	Protocol        string `enum:"tcp,udp,dns" default:"tcp" placeholder:"tcp|udp|dns" help:"The service: ${enum} (${default}). udp only counts; dns answers every query with the VIP's address."`
}

// Validate rejects a command line that serves nothing.
func (c *wireServeCmd) Validate() error {
	switch {
	case len(c.Server) == 0:
		return errors.New("no server port: say --server-interface IF")
	case !c.VIP.IsValid():
		return errors.New("--vip ADDRESS:PORT is missing: name the address to answer at")
	}
	return nil
}

// Run serves until ctx ends, and prints the counts.
func (c *wireServeCmd) Run(ctx context.Context) (err error) {
	spec, done, err := c.spec()
	defer done()
	if err != nil {
		return err
	}
	tester, err := wire.New(ctx, spec)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, tester.Close()) }()
	kind := map[string]wire.Kind{"tcp": wire.Session, "udp": wire.UDP, "dns": wire.DNS}[c.Protocol]
	if err := tester.Serve(wire.Load{Kind: kind, Request: 1, Response: c.Response}); err != nil {
		return err
	}
	fmt.Println("ready; Ctrl-C or SIGTERM takes the ports' programs off again")
	<-ctx.Done()
	step, err := tester.Served()
	if err != nil {
		return err
	}
	writeServed(os.Stdout, spec, step)
	return nil
}

func writeServed(w io.Writer, spec wire.Spec, s wire.Step) {
	t := cmdkit.NewTable(w, "port", "accepted")
	cmdkit.RightAlign(t, "accepted")
	for i, n := range s.PerServer {
		t.AppendRow(table.Row{spec.Servers[i].Name, cmdkit.Count(n)})
	}
	t.Render()
	fmt.Fprintf(w, "%s packets received, %s sent\n", cmdkit.Count(s.Servers.Received), cmdkit.Count(s.Servers.Sent))
	for _, strange := range []struct {
		name string
		n    uint64
	}{
		{"duplicates", s.Unexpected.Duplicate}, {"with a wrong checksum", s.Unexpected.Checksum},
		{"malformed", s.Unexpected.Malformed},
		{"of no known connection", s.Unexpected.Unacknowledgeable},
		{"of another server port's connection", s.Unexpected.WrongBackend},
		{"of no load of ours", s.Unexpected.UnknownPeer},
	} {
		if strange.n > 0 {
			fmt.Fprintf(w, "%s %s\n", cmdkit.Count(strange.n), strange.name)
		}
	}
}
