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

// Change writes the configuration again and has the daemon read it where servers come or go, and changes weights of the
// running daemon, as `jeoul backend` does. The file keeps the weights that it began with.
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

// rewrite writes the servers into the configuration and has it read again.
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

// weigh changes a server's weight in every service that it has.
func (r *runningJeoul) weigh(ctx context.Context, service, server string, was, weight int) error {
	for _, order := range weightOrders(was, weight) {
		order.Service, order.Backend, order.AllServices = service, server, true
		if _, err := r.client.Operate(ctx, order); err != nil {
			return fmt.Errorf("jeoul backend %s %s/%s: %w", order.Verb, service, server, err)
		}
	}
	return nil
}

// Reload sends SIGHUP and waits until the daemon says what came of it.
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

// PIDs are the daemon's.
func (r *runningJeoul) PIDs() []int { return []int{r.process.Process.PID()} }

func (*runningJeoul) ChangeMethod() string {
	return "servers come and go by a new configuration that the daemon reads again (SIGHUP); weights and draining are set by `jeoul backend`"
}

// weightOrders lead from one weight to another, of a server that the file gives
// the weight 1 and that was weighed or drained, but not both.
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

// Tracked asks the daemon. Its janitor may have counted some seconds ago.
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

// Reaches asks the daemon whether it has a way to the server in every service.
func (r *runningJeoul) Reaches(ctx context.Context, server *lab.Host) (bool, error) {
	status, err := r.client.Status(ctx)
	if err != nil {
		return false, err
	}
	return reaches(status.Services, server)
}

// Serves is the same: a server that fails its checks is not up.
func (r *runningJeoul) Serves(ctx context.Context, server *lab.Host) (bool, error) {
	return r.Reaches(ctx, server)
}

// Passes asks the daemon whether the server's checks have found it healthy.
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

// reaches reports whether every service has the server up, with a MAC address; an error where some have it and others
// have not, or none has it at all: then it is to be asked again.
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

// Restart ends the daemon by the signal that leaves its work to the next (SIGUSR2), and starts
// that, as `systemctl restart` does with the unit of docs/guides/restart.md.
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

// Upgrade restarts the daemon as the other build, or, where that runs, as the first one.
func (r *runningJeoul) Upgrade(ctx context.Context) error {
	if r.setup.Other == "" || r.setup.Balancer().Far() {
		return fmt.Errorf("%w: upgrades need another build here: `make other`, and `--other bin/jeoul-other`",
			subject.ErrCannot)
	}
	r.upgraded = !r.upgraded
	return r.Restart(ctx)
}

// End ends the daemon, which takes everything back (SIGTERM).
func (r *runningJeoul) End(ctx context.Context) error { return r.process.Stop(ctx) }

// Kill ends the daemon.
func (r *runningJeoul) Kill(ctx context.Context) error { return r.process.Process.Kill(ctx) }

// Begin starts the daemon, and returns when it shows every backend up.
func (r *runningJeoul) Begin(ctx context.Context) error { return r.subject.begin(ctx, r) }
