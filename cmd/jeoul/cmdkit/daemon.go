// SPDX-License-Identifier: Apache-2.0

package cmdkit

import (
	"fmt"
	"os"
	"strings"

	"github.com/jeoul/jeoul/internal/balancer/api"
	"github.com/jeoul/jeoul/internal/balancer/config"
)

// tokenVariable is the environment variable that holds a token: on a command line, every user of the host could read
// it.
const tokenVariable = "JEOUL_TOKEN"

// DaemonFlags are the flags of cli.Connection. They select the balancer: on a unix socket of this host, or over TCP.
type DaemonFlags struct {
	Socket      string `name:"socket" type:"path" group:"connection" placeholder:"PATH" help:"Unix socket of the daemon (${socket})."`
	Server      string `name:"server" group:"connection" env:"JEOUL_SERVER" placeholder:"URL" help:"A balancer over TCP, as https://HOST:PORT, in place of the socket; JEOUL_TOKEN may have the token."`
	TokenFile   string `name:"token-file" group:"connection" env:"JEOUL_TOKEN_FILE" type:"path" placeholder:"FILE" help:"With --server: a file that holds the token."`
	CA          string `name:"ca" group:"connection" env:"JEOUL_CA" type:"path" placeholder:"FILE" help:"With --server: authorities that vouch for the balancer, as PEM, in place of this host's."`
	Certificate string `name:"certificate" group:"connection" env:"JEOUL_CERTIFICATE" type:"path" placeholder:"FILE" help:"With --server: a client certificate, as PEM."`
	Key         string `name:"key" group:"connection" env:"JEOUL_KEY" type:"path" placeholder:"FILE" help:"With --server: the key of the client certificate, as PEM."`
}

// Remote reports whether the balancer is reached over TCP: a socket that a flag names has precedence over the
// environment.
func (f DaemonFlags) Remote() bool { return f.Server != "" && f.Socket == "" }

// NewClient returns a client of the balancer's API.
func (f DaemonFlags) NewClient() (*api.Client, error) {
	if !f.Remote() {
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
