// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/jeoul/jeoul/internal/balancer/api"
	"github.com/jeoul/jeoul/internal/balancer/config"
	"github.com/jeoul/jeoul/internal/balancer/dashboard"
)

// tokenVariable is the environment variable that has a token: on a command line, every user of the
// host could read it.
const tokenVariable = "JEOUL_TOKEN"

// daemonFlags are what cli.Connection groups; they say where the balancer is: on a unix socket of this host, or
// over TCP.
type daemonFlags struct {
	Socket      string `name:"socket" type:"path" group:"connection" placeholder:"PATH" help:"Unix socket of the daemon (${socket})."`
	Server      string `name:"server" group:"connection" env:"JEOUL_SERVER" placeholder:"URL" help:"A balancer over TCP, as https://HOST:PORT, in place of the socket; JEOUL_TOKEN may have the token."`
	TokenFile   string `name:"token-file" group:"connection" env:"JEOUL_TOKEN_FILE" type:"path" placeholder:"FILE" help:"With --server: a file that holds the token."`
	CA          string `name:"ca" group:"connection" env:"JEOUL_CA" type:"path" placeholder:"FILE" help:"With --server: authorities that vouch for the balancer, as PEM, in place of this host's."`
	Certificate string `name:"certificate" group:"connection" env:"JEOUL_CERTIFICATE" type:"path" placeholder:"FILE" help:"With --server: a client certificate, as PEM."`
	Key         string `name:"key" group:"connection" env:"JEOUL_KEY" type:"path" placeholder:"FILE" help:"With --server: the key of the client certificate, as PEM."`
}

// remote says whether the balancer is reached over TCP: a socket that is named goes before the
// environment.
func (f daemonFlags) remote() bool { return f.Server != "" && f.Socket == "" }

// client returns what talks to the balancer.
func (f daemonFlags) client() (*api.Client, error) {
	if !f.remote() {
		if f.Socket == "" {
			return api.NewClient(config.DefaultSocket), nil
		}
		return api.NewClient(f.Socket), nil
	}
	if (f.Certificate == "") != (f.Key == "") {
		return nil, fmt.Errorf("a client certificate needs both --certificate and --key")
	}
	token := os.Getenv(tokenVariable)
	if f.TokenFile != "" {
		text, err := os.ReadFile(f.TokenFile)
		if err != nil {
			return nil, fmt.Errorf("read the token: %w", err)
		}
		token = strings.TrimSpace(string(text))
	}
	return api.NewRemoteClient(api.Remote{Server: f.Server, Token: token, CA: f.CA, Certificate: f.Certificate,
		Key: f.Key})
}

// dashboardCmd shows a balancer in a browser of this host.
type dashboardCmd struct {
	daemonFlags
	Port uint16 `name:"port" placeholder:"PORT" help:"Port of 127.0.0.1 that the page is served on; without it, a free one."`
}

// Help says who may use it.
func (dashboardCmd) Help() string {
	return `The command prints a link and serves the dashboard on the loopback address until you interrupt it. The link
contains a random token: anyone with the link has your rights. From another machine: ssh -L PORT:127.0.0.1:PORT HOST.
With api.listen set, the balancer serves the dashboard itself.`
}

// Run serves the page until the context ends.
func (c *dashboardCmd) Run(ctx context.Context) error { return c.serve(ctx, os.Stdout) }

func (c *dashboardCmd) serve(ctx context.Context, out io.Writer) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	proxy, err := client.Proxy()
	if err != nil {
		return err
	}
	return dashboard.ServeLocal(ctx, c.Port, out, proxy)
}
