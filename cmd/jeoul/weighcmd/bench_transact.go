// SPDX-License-Identifier: Apache-2.0

package weighcmd

import (
	"context"
	"net/netip"

	"github.com/jeoul/jeoul/internal/weigh/bench/load/transact"
)

// benchTransactServerCmd is the program that `bench run` starts on servers that answer bytes.
type benchTransactServerCmd struct {
	Closing netip.AddrPort `required:"" help:"Where a connection is closed behind the first answer."`
	Keeping netip.AddrPort `required:"" help:"Where it is kept."`
}

// Run serves until ctx ends.
func (c *benchTransactServerCmd) Run(ctx context.Context) error {
	return transact.Server{Closing: c.Closing, Keeping: c.Keeping}.Serve(ctx)
}
