// SPDX-License-Identifier: Apache-2.0

package subject

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"text/template"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/bench/probe"
	"github.com/jeoul/jeoul/internal/lab"
)

// haproxyHTTP is HAProxy in HTTP mode, as the first document configured it.
type haproxyHTTP struct{}

const paramThreads = "threads"

// Bounds of HAProxy.
const (
	// haproxyMaxThreads is MAX_THREADS of a 64-bit build.
	haproxyMaxThreads = 64
	// haproxySpareFiles is what it opens besides connections: listeners, a health
	// check per server, event polls and wake-up pipes of every thread.
	haproxySpareFiles = 500
	// haproxyDocumentMaxConn is what the document allows a frontend.
	haproxyDocumentMaxConn = 10_000
)

func (haproxyHTTP) Name() string { return "haproxy-http" }

func (haproxyHTTP) Params() []Param {
	return []Param{{Name: paramThreads, Check: positive(haproxyMaxThreads)}}
}

func (haproxyHTTP) Versions(ctx context.Context) (map[string]string, error) {
	version, err := probe.Version(ctx, "haproxy", "-v")
	return map[string]string{"haproxy": version}, err
}

// haproxyMaxConn is how many clients' connections HAProxy can carry: each needs
// a descriptor of its own and one towards a server.
func haproxyMaxConn(limits probe.Limits) int {
	if limits.OpenFiles < haproxySpareFiles+2 {
		return 0
	}
	return int(min((limits.OpenFiles-haproxySpareFiles)/2, haproxyDocumentMaxConn))
}

func (haproxyHTTP) Obstacle(params Params, concurrency int, limits probe.Limits) string {
	threads := params[paramThreads].(int)
	if threads > limits.Cores {
		return fmt.Sprintf("%d threads: this machine has %d cores, and HAProxy's threads are no use beyond them", threads, limits.Cores)
	}
	if most := haproxyMaxConn(limits); concurrency > most {
		return fmt.Sprintf("%d connections at once: HAProxy needs two open files for each, and with the limit of %d open files here it can carry %d",
			concurrency, limits.OpenFiles, most)
	}
	return ""
}

//go:embed haproxy.cfg.tmpl
var haproxyTemplate string

var haproxyConfig = template.Must(template.New("haproxy.cfg").Parse(haproxyTemplate))

// haproxyValues are what the template needs.
type haproxyValues struct {
	MaxConn, Threads, LastCore int
	VIP                        netip.AddrPort
	Servers                    []haproxyServer
}

type haproxyServer struct {
	Name    string
	Address netip.AddrPort
}

func haproxyValuesOf(setup Setup, threads, maxConn, cores int) haproxyValues {
	values := haproxyValues{
		MaxConn: maxConn, Threads: threads, LastCore: cores - 1,
		VIP: netip.AddrPortFrom(setup.Lab.VIP4, setup.Port),
	}
	for _, server := range setup.Lab.Servers {
		values.Servers = append(values.Servers, haproxyServer{server.Name, netip.AddrPortFrom(server.IPv4, setup.Port)})
	}
	return values
}

// render returns the configuration file.
func (v haproxyValues) render() ([]byte, error) {
	var text bytes.Buffer
	err := haproxyConfig.Execute(&text, v)
	return text.Bytes(), err
}

func (s haproxyHTTP) Start(ctx context.Context, setup Setup, params Params) (Running, error) {
	limits, err := probe.ReadLimits()
	if err != nil {
		return nil, err
	}
	values := haproxyValuesOf(setup, params[paramThreads].(int), haproxyMaxConn(limits), limits.Cores)
	text, err := values.render()
	if err != nil {
		return nil, fmt.Errorf("writing HAProxy's configuration: %w", err)
	}
	balancer := setup.Lab.Balancer
	path := filepath.Join(balancer.Dir, "haproxy.cfg")
	if err := os.WriteFile(path, text, 0o644); err != nil {
		return nil, fmt.Errorf("writing HAProxy's configuration: %w", err)
	}
	if err := changeAddress(balancer, setup.Lab.VIP4, netlink.AddrReplace); err != nil {
		return nil, err
	}
	running := &runningHAProxy{setup: setup, values: values}
	// -db: in the foreground, as one process.
	running.process, err = startProgram(ctx, balancer, "haproxy", "-db", "-f", path)
	if err != nil {
		return nil, errors.Join(err, running.Stop(context.WithoutCancel(ctx)))
	}
	if err := running.process.waitUntil(ctx, func() error { return probe.Listening(ctx, balancer, values.VIP) }); err != nil {
		return nil, errors.Join(err, running.Stop(context.WithoutCancel(ctx)))
	}
	return running, nil
}

// changeAddress applies change to addr as a host address of the host's device.
func changeAddress(host *lab.Host, addr netip.Addr, change func(netlink.Link, *netlink.Addr) error) error {
	err := host.Do(func() error {
		link, err := netlink.LinkByName(host.Interface)
		if err != nil {
			return err
		}
		return change(link, &netlink.Addr{IPNet: &net.IPNet{IP: addr.AsSlice(), Mask: net.CIDRMask(addr.BitLen(), addr.BitLen())}})
	})
	if err != nil {
		return fmt.Errorf("changing the VIP %s on %s of %s: %w", addr, host.Interface, host.Name, err)
	}
	return nil
}

type runningHAProxy struct {
	setup   Setup
	values  haproxyValues
	process *program
}

func (r *runningHAProxy) Target(int) netip.AddrPort { return r.values.VIP }
func (r *runningHAProxy) Cores() float64            { return float64(r.values.Threads) }

func (r *runningHAProxy) Notes() []string {
	return []string{strings.Join([]string{
		fmt.Sprintf("HAProxy as in the document, but maxconn %d (document: 500000 in all, 10000 a frontend) for the limit of open files", r.values.MaxConn),
		fmt.Sprintf("cpu-map to cores 0-%d (document: 0-23)", r.values.LastCore),
		"no TLS listener, in the foreground; it logs to a port where nobody listens",
		"its health checks, one a server every 2 s, are among the backends' connections",
	}, "; ")}
}

// Quiesce ends the process; the VIP goes on answering for what it left.
func (r *runningHAProxy) Quiesce(ctx context.Context) error { return r.process.stop(ctx) }

func (r *runningHAProxy) Stop(ctx context.Context) error {
	stopped := r.process.stop(ctx)
	err := changeAddress(r.setup.Lab.Balancer, r.setup.Lab.VIP4, netlink.AddrDel)
	if errors.Is(err, unix.EADDRNOTAVAIL) || errors.Is(err, lab.ErrClosed) {
		err = nil // gone already
	}
	return errors.Join(stopped, err)
}
