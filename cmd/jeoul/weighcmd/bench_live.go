// SPDX-License-Identifier: Apache-2.0

package weighcmd

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/jeoul/jeoul/internal/weigh/bench/load/live"
)

// benchLiveServerCmd is the program that `bench run` starts on servers that answer with their name.
type benchLiveServerCmd struct {
	Name string `required:"" help:"Name to answer with."`
	Port uint16 `required:"" help:"The TCP and UDP port."`
	// Health is 0 for no port.
	Health uint16 `help:"The TCP port for health checks over HTTP."`
	// Proxy maps the addresses of proxies to their names.
	Proxy map[string]string `help:"A proxy, as ADDRESS=NAME, whose connections are answered under its name; may be repeated."`
}

// Run serves until ctx ends.
func (c *benchLiveServerCmd) Run(ctx context.Context) error {
	server := live.Server{Name: c.Name, Port: c.Port, Health: c.Health, Proxies: map[netip.Addr]string{}}
	for text, name := range c.Proxy {
		addr, err := netip.ParseAddr(text)
		if err != nil {
			return fmt.Errorf("proxy %s: %w", name, err)
		}
		server.Proxies[addr] = name
	}
	return server.Serve(ctx)
}

// benchLiveClientCmd is the program that `bench run` starts on clients that hold connections.
type benchLiveClientCmd struct {
	Socket string `required:"" type:"path" help:"Where the bench listens."`
}

// Run follows the bench's orders until they end.
func (c *benchLiveClientCmd) Run(ctx context.Context) error {
	return live.Hold(ctx, c.Socket)
}
