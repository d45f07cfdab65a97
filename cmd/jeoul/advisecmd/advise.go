// SPDX-License-Identifier: Apache-2.0

// Package advisecmd is the command jeoul advise: its flags, its questions, and its output.
package advisecmd

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"

	"go.yaml.in/yaml/v3"

	"github.com/jeoul/jeoul/internal/weigh/advise"
	"github.com/jeoul/jeoul/internal/weigh/bench"
	_ "github.com/jeoul/jeoul/internal/weigh/bench/kind" // for suites
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// Cmd advises. It asks at the terminal for answers that no flag gives.
type Cmd struct {
	Speaks        string   `enum:",http,https,tcp,udp,dns" default:"" placeholder:"PROTOCOL" help:"The protocol of clients: http, https, tcp, udp or dns."`
	Layer7        bool     `name:"layer7" help:"The balancer must end TLS, choose by host or path, or write headers."`
	Requests      float64  `default:"0" placeholder:"N" help:"Requests a second, of all clients."`
	Size          float64  `default:"0" placeholder:"BYTES" help:"Bytes of a reply."`
	Lifetime      string   `enum:",short,long" default:"" placeholder:"short|long" help:"A connection for each request, or for many."`
	Open          float64  `default:"0" placeholder:"N" help:"Connections that are open at once, where that is much."`
	ClientAddress string   `name:"client-address" enum:",none,header,packet" default:"" placeholder:"WHERE" help:"Where backends must find the client's address: none, header or packet."`
	Network       string   `enum:",segment,routed" default:"" placeholder:"segment|routed" help:"Whether backends are on the balancer's segment."`
	Permits       []string `placeholder:"WHAT,…" help:"Permissions of the network: tunnels, backends (may be changed), bypass (of the balancer by replies), or none."`
	Failures      int      `default:"-1" placeholder:"N" help:"How many balancers may fail at once."`

	Cores float64 `default:"1" placeholder:"N" help:"Cores of a balancer that packets are spread over (${default})."`
	Usage float64 `default:"0.6" placeholder:"SHARE" help:"Which share of a core, a link or a table may be used, of 1 (${default})."`
	Link  float64 `default:"0" placeholder:"BITS" help:"A balancer's link, in bits/s; 0: not asked."`

	Results   []string     `name:"results" placeholder:"FILE,…" help:"Results of jeoul bench, looked through before those that this program has in it."`
	Interface string       `name:"interface" placeholder:"NAME" help:"The interface that the configuration names (eth0)."`
	VIP       netip.Addr   `name:"vip" placeholder:"ADDRESS" help:"The VIP that the configuration names (192.0.2.100)."`
	Backend   []netip.Addr `name:"backend-address" placeholder:"ADDRESS,…" help:"The backends that the configuration names."`
	Pool      netip.Addr   `name:"pool" placeholder:"ADDRESS" help:"The address that full NAT sends from (192.0.2.99)."`
	To        string       `name:"to" placeholder:"PATH" help:"Write jeoul.yaml and suite.yaml into this directory."`
	Output    string       `name:"output" short:"o" enum:"text,json,yaml" default:"text" placeholder:"FORMAT" help:"Output format: text, json or yaml (${default})."`
}

// Help lists the output of the command.
func (Cmd) Help() string {
	return `Goes from six answers to the mode, the scheduler, the number of balancers and what one of them runs out of first, with the
measured figure that each statement rests on, a configuration, and the suite that would prove it. What no flag answers is asked for at a terminal.`
}

// output is the advice in the form for programs, with the configuration and the suite.
type output struct {
	*advise.Advice `yaml:",inline"`
	Configuration  string `json:"configuration,omitempty" yaml:"configuration,omitempty"`
	Suite          string `json:"suite,omitempty" yaml:"suite,omitempty"`
}

// Run asks, advises, and prints or writes.
func (c *Cmd) Run(context.Context) error {
	answers, err := c.answers(os.Stdin, os.Stderr)
	if err != nil {
		return err
	}
	out, err := c.advise(answers)
	if err != nil {
		return err
	}
	if c.To != "" {
		if err := out.save(c.To); err != nil {
			return err
		}
	}
	return out.print(os.Stdout, c.Output, c.To)
}

// advise decides, and checks its output as the commands that read it do.
func (c *Cmd) advise(answers advise.Answers) (*output, error) {
	evidence, err := c.evidence()
	if err != nil {
		return nil, err
	}
	advice, err := advise.Decide(evidence, answers)
	if err != nil {
		return nil, fmt.Errorf("advise: %w", err)
	}
	configuration, err := advice.Configuration(c.place(answers.Network))
	if err != nil {
		return nil, fmt.Errorf("advise: %w", err)
	}
	suite, err := advice.Suite()
	if err == nil && len(suite) > 0 {
		_, err = bench.ParseSuite("suite.yaml", suite)
	}
	if err != nil {
		return nil, fmt.Errorf("advise: the suite: %w", err)
	}
	return &output{advice, string(configuration), string(suite)}, nil
}

// evidence returns the evidence: the results that flags name, then the embedded ones.
func (c *Cmd) evidence() (*advise.Evidence, error) {
	evidence, err := advise.Embedded()
	if err != nil {
		return nil, err
	}
	var sources []advise.Source
	for _, path := range c.Results {
		run, err := results.Load(path)
		if err != nil {
			return nil, fmt.Errorf("advise: %w", err)
		}
		source := advise.SourceOf(path, run, nil)
		if len(source.Points) == 0 {
			return nil, fmt.Errorf("advise: %s has no valid trial; repeat the run, or leave --results out", path)
		}
		sources = append(sources, source)
	}
	return evidence.Before(sources...), nil
}

// place returns the interface and the addresses of the configuration, by flags or by default.
func (c *Cmd) place(n advise.Network) advise.Place {
	p := advise.DefaultPlace(n)
	if c.Interface != "" {
		p.Interface = c.Interface
	}
	if c.VIP.IsValid() {
		p.VIP = c.VIP
	}
	if c.Pool.IsValid() {
		p.Pool = c.Pool
	}
	if len(c.Backend) > 0 {
		p.Backends = c.Backend
	}
	return p
}

// save writes the configuration and the suite into a directory.
func (o *output) save(dir string) error {
	if o.Configuration == "" {
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("advise: %w", err)
	}
	for name, text := range map[string]string{"jeoul.yaml": o.Configuration, "suite.yaml": o.Suite} {
		if err := results.WriteFile(filepath.Join(dir, name), []byte(text)); err != nil {
			return fmt.Errorf("advise: writing %s: %w", filepath.Join(dir, name), err)
		}
	}
	return nil
}

// print writes the advice in a format. For a person, it leaves out the files that were written into a directory.
func (o *output) print(to io.Writer, format, dir string) error {
	switch format {
	case "json":
		encoder := json.NewEncoder(to)
		encoder.SetIndent("", "  ")
		return encoder.Encode(o)
	case "yaml":
		data, err := yaml.Marshal(o)
		if err != nil {
			return fmt.Errorf("advise: %w", err)
		}
		_, err = to.Write(data)
		return err
	}
	if err := o.Write(to); err != nil || o.Configuration == "" {
		return err
	}
	if dir != "" {
		_, err := fmt.Fprintf(to, "\n%s and %s are written.\n", filepath.Join(dir, "jeoul.yaml"), filepath.Join(dir,
			"suite.yaml"))
		return err
	}
	_, err := fmt.Fprintf(to,
		"\nThe configuration (jeoul.yaml):\n\n%s\nThe suite that proves it (suite.yaml):\n\n%s",
		o.Configuration, o.Suite)
	return err
}
