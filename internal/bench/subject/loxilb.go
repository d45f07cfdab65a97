// SPDX-License-Identifier: Apache-2.0

package subject

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"

	"github.com/vishvananda/netlink"

	"github.com/jeoul/jeoul/internal/bench/probe"
	"github.com/jeoul/jeoul/internal/lab"
)

// loxilb is LoxiLB, an eBPF balancer in TC, in its default mode: destinations are
// rewritten, and the servers' replies come back through it. It is set up through
// its REST API (/netlox/v1), as loxicmd does.
type loxilb struct{}

const loxilbProgram = "loxilb"

// loxilbAPI is where its API listens, in the balancer's namespace.
var loxilbAPI = netip.MustParseAddrPort("127.0.0.1:11111")

// loxilbDevice is one that LoxiLB makes for itself.
const loxilbDevice = "llb0"

func (loxilb) Name() string    { return loxilbProgram }
func (loxilb) Params() []Param { return nil }
func (loxilb) HTTPOnly() bool  { return false }

func (loxilb) Versions(ctx context.Context) (map[string]string, error) {
	version, err := probe.VersionOf(ctx, loxilbProgram, "--version", "put its binary into a directory of PATH (no distribution has it: docs.loxilb.io)")
	return map[string]string{loxilbProgram: version}, err
}

// Obstacle is none: it needs no descriptor a connection.
func (loxilb) Obstacle(Params, int, probe.Limits) string { return "" }

// loxilbRule is a port of the VIP, as the API takes it.
type loxilbRule struct {
	Service struct {
		ExternalIP netip.Addr `json:"externalIP"`
		Port       uint16     `json:"port"`
		Protocol   string     `json:"protocol"`
		// Select is 0, round robin, and Mode 0, the default one.
		Select int `json:"sel"`
		Mode   int `json:"mode"`
	} `json:"serviceArguments"`
	Endpoints []loxilbEndpoint `json:"endpoints"`
}

type loxilbEndpoint struct {
	IP     netip.Addr `json:"endpointIP"`
	Port   uint16     `json:"targetPort"`
	Weight int        `json:"weight"`
}

func loxilbRules(setup Setup) []loxilbRule {
	var rules []loxilbRule
	for i, service := range setup.Services {
		for _, protocol := range service.protocols() {
			var rule loxilbRule
			rule.Service.ExternalIP, rule.Service.Port, rule.Service.Protocol = setup.vip(i).Addr(), service.Port, protocol.String()
			for _, server := range service.Servers {
				rule.Endpoints = append(rule.Endpoints, loxilbEndpoint{server.IPv4, service.Port, service.Weight(server)})
			}
			rules = append(rules, rule)
		}
	}
	return rules
}

func (loxilb) Start(ctx context.Context, setup Setup, _ Params) (Running, error) {
	running := &runningLoxiLB{setup: setup}
	err := running.undo.rewriting(setup.Lab)
	if err == nil {
		err = running.start(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, running.Stop(context.WithoutCancel(ctx)))
	}
	return running, nil
}

type runningLoxiLB struct {
	setup   Setup
	process *program
	undo    undo
}

func (r *runningLoxiLB) start(ctx context.Context) (err error) {
	balancer := r.setup.Lab.Balancer
	if err := r.undo.on(func(on bool) error { return clearLoxiLB(balancer, on) }); err != nil {
		return err
	}
	r.process, err = startProgram(ctx, balancer, loxilbProgram, "--host", loxilbAPI.Addr().String(),
		"--port", fmt.Sprint(loxilbAPI.Port()), "--loglevel", "error")
	if err != nil {
		return err
	}
	const rules = "/netlox/v1/config/loadbalancer"
	err = r.process.waitUntil(ctx, func() error { return r.ask(ctx, http.MethodGet, rules+"/all", nil) })
	for _, rule := range loxilbRules(r.setup) {
		if err == nil {
			err = r.ask(ctx, http.MethodPost, rules, rule)
		}
	}
	if err != nil {
		return fmt.Errorf("setting the rules of LoxiLB: %w%s", err, r.process.output.words())
	}
	return nil
}

// ask makes a request of the API, whose answer must be a success.
func (r *runningLoxiLB) ask(ctx context.Context, method, path string, body any) error {
	var text io.Reader
	if body != nil {
		encoded, err := json.Marshal(body)
		if err != nil {
			return err
		}
		text = bytes.NewReader(encoded)
	}
	request, err := http.NewRequestWithContext(ctx, method, "http://"+loxilbAPI.String()+path, text)
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return probe.Dial(ctx, r.setup.Lab.Balancer, loxilbAPI)
	}}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode/100 != 2 {
		said, _ := io.ReadAll(io.LimitReader(response.Body, tailBytes)) // what cannot be read is not told
		return fmt.Errorf("%s %s: %s %q", method, path, response.Status, said)
	}
	return nil
}

// clearLoxiLB takes off the balancer what LoxiLB may leave there: its device, and
// its programs on the link. It does nothing when LoxiLB is about to start.
func clearLoxiLB(balancer *lab.Host, on bool) error {
	if on {
		return nil
	}
	err := balancer.Do(func() error {
		link, err := netlink.LinkByName(balancer.Interface)
		if err != nil {
			return err
		}
		errs := []error{netlink.LinkSetXdpFd(link, -1)}
		qdiscs, err := netlink.QdiscList(link)
		errs = append(errs, err)
		for _, qdisc := range qdiscs {
			if qdisc.Attrs().Parent == netlink.HANDLE_CLSACT {
				errs = append(errs, netlink.QdiscDel(qdisc))
			}
		}
		if own, err := netlink.LinkByName(loxilbDevice); err == nil {
			errs = append(errs, netlink.LinkDel(own))
		}
		return errors.Join(errs...)
	})
	if err != nil {
		return fmt.Errorf("clearing what LoxiLB left: %w", err)
	}
	return nil
}

func (r *runningLoxiLB) Target(i int) netip.AddrPort { return r.setup.vip(i) }

func (*runningLoxiLB) Cores() float64                { return 0 }
func (*runningLoxiLB) Quiesce(context.Context) error { return nil }

func (*runningLoxiLB) Notes() []string {
	return []string{"LoxiLB in its default mode, round robin; the servers' way to the clients is through the balancer"}
}

func (r *runningLoxiLB) Stop(ctx context.Context) error {
	return errors.Join(r.process.stop(ctx), r.undo.all())
}
