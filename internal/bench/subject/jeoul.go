// SPDX-License-Identifier: Apache-2.0

package subject

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/jeoul/jeoul/internal/api"
	"github.com/jeoul/jeoul/internal/bench/probe"
	"github.com/jeoul/jeoul/internal/lb"
)

// jeoulL2DSR is our own balancer as a user runs it: the daemon on the balancer,
// the agent on every web server.
type jeoulL2DSR struct{ hook lb.Hook }

const paramScheduler = "scheduler"

func (s jeoulL2DSR) Name() string { return "jeoul-l2dsr-" + string(s.hook) }

func (jeoulL2DSR) Params() []Param {
	return []Param{{Name: paramScheduler, Check: oneOf(string(lb.Maglev), string(lb.RoundRobin))}}
}

// Versions is empty: the run itself is by this jeoul.
func (jeoulL2DSR) Versions(context.Context) (map[string]string, error) { return nil, nil }

// Obstacle is none: it forwards packets, and needs no descriptor a connection.
func (jeoulL2DSR) Obstacle(Params, int, probe.Limits) string { return "" }

// configFile is the part of the daemon's configuration that the laboratory
// needs (see package config).
type configFile struct {
	Interface string          `yaml:"interface"`
	Hook      lb.Hook         `yaml:"hook"`
	Socket    string          `yaml:"socket"`
	Services  []configService `yaml:"services"`
}

type configService struct {
	Name      string          `yaml:"name"`
	VIP       string          `yaml:"vip"`
	Port      uint16          `yaml:"port"`
	Protocol  string          `yaml:"protocol"`
	Mode      lb.Mode         `yaml:"mode"`
	Scheduler string          `yaml:"scheduler"`
	Backends  []configBackend `yaml:"backends"`
}

type configBackend struct {
	Name    string `yaml:"name"`
	Address string `yaml:"address"`
	Port    uint16 `yaml:"port"`
	Weight  uint16 `yaml:"weight"`
}

func (s jeoulL2DSR) config(setup Setup, params Params, socket string) configFile {
	service := configService{
		Name: "web", VIP: setup.Lab.VIP4.String(), Port: setup.Port, Protocol: lb.TCP.String(),
		Mode: lb.L2DSR, Scheduler: params[paramScheduler].(string),
	}
	for _, server := range setup.Lab.Servers {
		service.Backends = append(service.Backends, configBackend{
			Name: server.Name, Address: server.IPv4.String(), Port: setup.Port, Weight: 1})
	}
	return configFile{Interface: setup.Lab.Balancer.Interface, Hook: s.hook, Socket: socket, Services: []configService{service}}
}

func (s jeoulL2DSR) Start(ctx context.Context, setup Setup, params Params) (Running, error) {
	running := &runningJeoul{setup: setup}
	if err := s.start(ctx, running, params); err != nil {
		return nil, errors.Join(err, running.Stop(context.WithoutCancel(ctx)))
	}
	return running, nil
}

func (s jeoulL2DSR) start(ctx context.Context, running *runningJeoul, params Params) error {
	balancer := running.setup.Lab.Balancer
	socket := filepath.Join(balancer.Dir, "jeoul.sock")
	text, err := yaml.Marshal(s.config(running.setup, params, socket))
	if err != nil {
		return fmt.Errorf("writing jeoul's configuration: %w", err)
	}
	path := filepath.Join(balancer.Dir, "jeoul.yaml")
	if err := os.WriteFile(path, text, 0o644); err != nil {
		return fmt.Errorf("writing jeoul's configuration: %w", err)
	}
	if running.vips, err = holdVIP(running.setup.Lab); err != nil {
		return err
	}
	if running.xdp = s.hook == lb.HookXDP; running.xdp {
		if err := running.setup.Lab.AcceptXDP(true); err != nil {
			return err
		}
	}
	running.process, err = startProgram(ctx, balancer, running.setup.Executable, "run", "-c", path,
		"--state-dir", filepath.Join(balancer.Dir, "state"))
	if err != nil {
		return err
	}
	client := api.NewClient(socket)
	return running.process.waitUntil(ctx, func() error {
		status, err := client.Status(ctx)
		if err != nil {
			return err
		}
		running.hook = status.Hook
		return s.ready(status, len(running.setup.Lab.Servers))
	})
}

// ready returns nil if status shows the hook that was asked for and every
// backend up, with a MAC address.
func (s jeoulL2DSR) ready(status *api.Status, servers int) error {
	if status.Hook.Name != s.hook {
		return fmt.Errorf("its hook is %q, not %q", status.Hook.Name, s.hook)
	}
	if len(status.Services) != 1 || len(status.Services[0].Backends) != servers {
		return fmt.Errorf("it does not show one service with %d backends", servers)
	}
	for _, backend := range status.Services[0].Backends {
		if backend.State != api.Up || backend.MAC == "" {
			return fmt.Errorf("backend %s is %s", backend.Name, backend.State)
		}
	}
	return nil
}

type runningJeoul struct {
	setup   Setup
	process *program
	vips    vipHolders
	hook    api.Hook
	// xdp says that the laboratory was readied for frames sent by XDP_TX.
	xdp bool
}

func (r *runningJeoul) Target(int) netip.AddrPort {
	return netip.AddrPortFrom(r.setup.Lab.VIP4, r.setup.Port)
}

func (r *runningJeoul) Cores() float64 { return 0 }

func (r *runningJeoul) Notes() []string {
	hook := string(r.hook.Name)
	if r.hook.Generic {
		hook += " (generic)"
	}
	return []string{strings.TrimSpace(fmt.Sprintf("the hook in use was %s on driver %s %s", hook, r.hook.Driver, r.hook.Reason))}
}

// Quiesce has nothing to end: the connections are between clients and servers,
// and need the balancer for their last packets.
func (r *runningJeoul) Quiesce(context.Context) error { return nil }

func (r *runningJeoul) Stop(ctx context.Context) error {
	errs := []error{r.process.stop(ctx)}
	if r.xdp {
		errs = append(errs, r.setup.Lab.AcceptXDP(false))
	}
	return errors.Join(append(errs, r.vips.release())...)
}
