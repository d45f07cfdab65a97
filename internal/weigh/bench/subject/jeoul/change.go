// SPDX-License-Identifier: Apache-2.0

package jeoul

import (
	"context"
	"fmt"
	"syscall"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/weigh/bench/subject"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// Change writes the configuration again and makes the daemon read it if servers are added or removed. It changes
// weights in the running daemon, as `jeoul backend` does. The file keeps its original weights.
func (r *runningJeoul) Change(ctx context.Context, services []subject.Service) error {
	before := r.setup
	r.setup = before.With(services)
	if !subject.SameServers(before.Services, services) {
		if err := r.rewrite(ctx); err != nil {
			r.setup = before
			return err
		}
	}
	for i, service := range services {
		for _, server := range service.Servers {
			was, weight := before.Services[i].Weight(server), service.Weight(server)
			if was == weight {
				continue
			}
			if err := r.weigh(ctx, serviceName(i, lb.TCP), server.Name, was, weight); err != nil {
				return err
			}
		}
	}
	return nil
}

// rewrite writes the servers to the configuration and makes the daemon read it again.
func (r *runningJeoul) rewrite(ctx context.Context) error {
	file := r.setup.With(r.setup.Services)
	for i := range file.Services {
		file.Services[i].Weights = r.weights
	}
	if err := r.configure(file); err != nil {
		return err
	}
	return r.Reload(ctx)
}

// weigh changes a server's weight in every service that has the server.
func (r *runningJeoul) weigh(ctx context.Context, service, server string, was, weight int) error {
	for _, order := range weightOrders(was, weight) {
		order.Service, order.Backend, order.AllServices = service, server, true
		if _, err := r.client.Operate(ctx, order); err != nil {
			return fmt.Errorf("jeoul backend %s %s/%s: %w", order.Verb, service, server, err)
		}
	}
	return nil
}

// Reload sends SIGHUP and waits until the daemon reports the result.
func (r *runningJeoul) Reload(ctx context.Context) error {
	r.reloads.forget()
	if err := r.process.Process.Signal(syscall.SIGHUP); err != nil {
		return fmt.Errorf("reloading jeoul: %w", err)
	}
	if err := r.process.WaitUntil(ctx, r.reloads.done); err != nil {
		return err
	}
	return r.reloads.refusal()
}

// PIDs returns the daemon's process.
func (r *runningJeoul) PIDs() []int { return []int{r.process.Process.PID()} }

func (*runningJeoul) ChangeMethod() string {
	return "servers come and go by a new configuration that the daemon reads again (SIGHUP); weights and draining are set by `jeoul backend`"
}

// weightOrders returns the orders that lead from one weight to another, for a server that has the weight 1 in the file
// and was reweighted or drained, but not both.
func weightOrders(was, weight int) []ops.Order {
	var orders []ops.Order
	if was == 0 {
		orders, was = append(orders, ops.Order{Verb: ops.Enable}), 1
	}
	switch {
	case weight == 0:
		orders = append(orders, ops.Order{Verb: ops.Drain})
	case weight != was:
		orders = append(orders, ops.Order{Verb: ops.Weight, Weight: int64(weight)})
	}
	return orders
}

// Tracked asks the daemon. Its janitor may have counted the flows some seconds ago.
func (r *runningJeoul) Tracked(ctx context.Context) (subject.Tracked, error) {
	status, err := r.client.Status(ctx)
	if err != nil {
		return subject.Tracked{}, err
	}
	var t subject.Tracked
	if flows := status.Flows; flows != nil {
		t = subject.Tracked{Flows: flows.Proven + flows.Unproven, Bytes: flows.Bytes}
	}
	return t, nil
}

// Reaches asks the daemon whether it has a path to the server in every service.
func (r *runningJeoul) Reaches(ctx context.Context, server *lab.Host) (bool, error) {
	status, err := r.client.Status(ctx)
	if err != nil {
		return false, err
	}
	return reaches(status.Services, server)
}

// Serves is the same as Reaches: a server that fails its checks is not up.
func (r *runningJeoul) Serves(ctx context.Context, server *lab.Host) (bool, error) {
	return r.Reaches(ctx, server)
}

// Passes asks the daemon whether the server's checks report it healthy.
func (r *runningJeoul) Passes(ctx context.Context, server *lab.Host) (bool, error) {
	status, err := r.client.Status(ctx)
	if err != nil {
		return false, err
	}
	return passes(status.Services, server), nil
}

// passes reports whether the server is healthy in every service that has it.
func passes(services []ops.Service, server *lab.Host) bool {
	healthy := 0
	for _, service := range services {
		for _, backend := range service.Backends {
			switch {
			case backend.Address != server.IPv4:
			case backend.Health == nil || backend.Health.State != lb.Healthy:
				return false
			default:
				healthy++
			}
		}
	}
	return healthy > 0
}

// reaches reports whether the server is up in every service, with a MAC address. It returns an error if the services
// differ, or if none has the server: then the caller must ask again.
func reaches(services []ops.Service, server *lab.Host) (bool, error) {
	up, down := 0, 0
	for _, service := range services {
		for _, backend := range service.Backends {
			switch {
			case backend.Address != server.IPv4:
			case backend.State == lb.Up && backend.MAC != "":
				up++
			default:
				down++
			}
		}
	}
	if (up == 0) == (down == 0) {
		return false, fmt.Errorf("%s is up in %d services and not up in %d", server.Name, up, down)
	}
	return up > 0, nil
}

// Restart ends the daemon by the signal that hands its work over to the next one (SIGUSR2), and starts the next one, as
// `systemctl restart` does with the unit of docs/guides/restart.md.
func (r *runningJeoul) Restart(ctx context.Context) error {
	if err := r.process.Process.Signal(syscall.SIGUSR2); err != nil {
		return fmt.Errorf("restarting jeoul: %w", err)
	}
	select {
	case <-r.process.Process.Done():
	case <-ctx.Done():
		return ctx.Err()
	}
	return r.Begin(ctx)
}

// Upgrade restarts the daemon as the other build, or as the first one if the other one runs.
func (r *runningJeoul) Upgrade(ctx context.Context) error {
	if r.setup.Other == "" || r.setup.Balancer().Remote() {
		return fmt.Errorf("%w: upgrades need another build here: `make other`, and `--other bin/jeoul-other`",
			subject.ErrCannot)
	}
	r.upgraded = !r.upgraded
	return r.Restart(ctx)
}

// End ends the daemon, which undoes all its changes (SIGTERM).
func (r *runningJeoul) End(ctx context.Context) error { return r.process.Stop(ctx) }

// Kill kills the daemon.
func (r *runningJeoul) Kill(ctx context.Context) error { return r.process.Process.Kill(ctx) }

// Begin starts the daemon, and returns when all backends are up.
func (r *runningJeoul) Begin(ctx context.Context) error { return r.subject.begin(ctx, r) }
