// SPDX-License-Identifier: Apache-2.0

// Package sandbox is a balancer to try, with three web servers and a client, in a laboratory of network namespaces, of
// which nothing is left when it is closed.
package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/balancer/api"
	"github.com/jeoul/jeoul/internal/balancer/config"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

const (
	servers = 3
	webPort = 80
	// readyTimeout is how long the parts may take to be ready, on a busy machine.
	readyTimeout = time.Minute
)

// Directory is the variable by which commands in the sandbox find its directory. The directory's bin holds the
// commands.
const Directory = "JEOUL_SANDBOX"

// Sandbox is a laboratory with a balancer, web servers and a client.
type Sandbox struct {
	lab *lab.Lab
	// executable is the jeoul binary that everything in the sandbox runs.
	executable string
	webs       *webs
	balancer   *lab.Process
	client     *api.Client
	// Answered is the time from the beginning to the first answer through the balancer.
	Answered time.Duration
}

// Open removes the remains of killed sandboxes, reports that, and builds one. The caller must call Close, except after
// an error. Errors: lab.ErrNoRights, and those of the step that failed.
func Open(ctx context.Context, says io.Writer) (*Sandbox, error) {
	began := time.Now()
	left, err := lab.CleanStale(ctx)
	if len(left) > 0 {
		fmt.Fprintf(says, "removed what killed laboratories had left: %s\n", strings.Join(left, ", "))
	}
	if err != nil {
		fmt.Fprintf(says, "a killed laboratory's remains could not be removed: %v\n", err)
	}
	l, err := lab.New(ctx, lab.Spec{Clients: 1, Servers: servers, Unmetered: true})
	if err != nil {
		return nil, err
	}
	s := &Sandbox{lab: l}
	if err := s.fill(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	s.Answered = time.Since(began)
	return s, nil
}

// Close ends all processes of the sandbox and removes it.
func (s *Sandbox) Close() error { return errors.Join(s.webs.close(), s.lab.Close()) }

func (s *Sandbox) path(parts ...string) string {
	return filepath.Join(append([]string{s.lab.Dir}, parts...)...)
}

// vip returns the address of the service.
func (s *Sandbox) vip() netip.AddrPort { return netip.AddrPortFrom(s.lab.VIP4, webPort) }

// fill starts the hosts' programs in a sandbox, and waits for an answer.
func (s *Sandbox) fill(ctx context.Context) (err error) {
	if s.executable, err = os.Executable(); err != nil {
		return err
	}
	if err := s.shareSocket(); err != nil {
		return err
	}
	if err := s.writeFiles(); err != nil {
		return err
	}
	if err := s.startServers(ctx); err != nil {
		return err
	}
	if err := s.startBalancer(ctx); err != nil {
		return err
	}
	return s.wait(ctx, "no answer came through the balancer", func() error {
		return s.lab.Clients[0].Do(func() error {
			_, err := answer(ctx, s.vip())
			return err
		})
	})
}

// shareSocket gives the balancer and the client a shared /run/jeoul in the sandbox, so that each command finds the
// balancer at the same path as without a sandbox.
func (s *Sandbox) shareSocket() error {
	if err := os.Mkdir(s.path("run"), 0o755); err != nil {
		return err
	}
	there := filepath.Dir(config.DefaultSocket)
	// The hosts of a laboratory have this machine's files, of which no daemon may have made this one yet.
	if err := os.MkdirAll(there, 0o755); err != nil {
		return fmt.Errorf("make %s, over which the sandbox mounts a directory of its own: %w", there, err)
	}
	for _, host := range []*lab.Host{s.lab.Balancer, s.lab.Clients[0]} {
		err := host.Do(func() error { return unix.Mount(s.path("run"), there, "", unix.MS_BIND, "") })
		if err != nil {
			return fmt.Errorf("show %s a directory of its own at %s: %w", host.Name, there, err)
		}
	}
	return nil
}

// writeFiles writes the configuration and the commands.
func (s *Sandbox) writeFiles() error {
	text := fmt.Sprintf(
		"interface: %s\nservices:\n  - name: web\n    vip: %s\n    port: %d\n    scheduler: wrr\n    check: {type: http, interval: 1s, fall: 2}\n    backends:\n",
		s.lab.Balancer.Interface, s.lab.VIP4, webPort)
	for _, server := range s.lab.Servers {
		text += fmt.Sprintf("      - {name: %s, address: %s}\n", server.Name, server.IPv4)
	}
	if err := os.WriteFile(s.path("jeoul.yaml"), []byte(text), 0o644); err != nil {
		return err
	}
	if err := os.Mkdir(s.path("bin"), 0o755); err != nil {
		return err
	}
	if err := os.Symlink(s.executable, s.path("bin", "jeoul")); err != nil {
		return err
	}
	for _, name := range Commands {
		script := fmt.Sprintf("#!/bin/sh\nexec jeoul sandbox %s \"$@\"\n", name)
		if err := os.WriteFile(s.path("bin", name), []byte(script), 0o755); err != nil {
			return err
		}
	}
	return nil
}

// startServers starts a web server and an agent on each.
func (s *Sandbox) startServers(ctx context.Context) (err error) {
	s.webs = &webs{sandbox: s, running: map[string]*lab.Process{}}
	for _, server := range s.lab.Servers {
		if err := s.webs.start(server.Name); err != nil {
			return err
		}
		if _, err := s.start(server, "agent", "agent", "--vip", s.lab.VIP4.String(), "--state-dir",
			filepath.Join(server.Dir, "state")); err != nil {
			return err
		}
	}
	return s.webs.listen(ctx)
}

// start starts this program on a host; its output goes to the file LOG.log in the host's directory.
func (s *Sandbox) start(host *lab.Host, log string, arguments ...string) (*lab.Process, error) {
	file, err := os.OpenFile(filepath.Join(host.Dir, log+".log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	// The lab ends it.
	return host.Start(context.Background(), lab.Command{Path: s.executable, Args: arguments, Stdout: file,
		Stderr: file})
}

// startBalancer starts the daemon, and waits until all backends serve.
func (s *Sandbox) startBalancer(ctx context.Context) (err error) {
	s.client = api.NewClient(s.path("run", filepath.Base(config.DefaultSocket)))
	s.balancer, err = s.start(s.lab.Balancer, "balancer", "run", "-c", s.path("jeoul.yaml"), "--store-dir",
		s.path("store"))
	if err != nil {
		return err
	}
	return s.waitFor(ctx, "not all web servers serve", func(status *ops.Status) bool {
		return countUp(status) == servers
	})
}

// undecided is the number of backends that take new flows while the data plane lacks a verdict.
const undecided = -1

// countUp returns the number of backends that take new flows, and pass their checks.
func countUp(status *ops.Status) (up int) {
	for _, service := range status.Services {
		for _, backend := range service.Backends {
			if backend.State != lb.Up {
				continue
			}
			// The data plane does not have the verdict of the checks yet, although the status already shows it.
			if backend.Health == nil || backend.Health.State != lb.Healthy {
				return undecided
			}
			up++
		}
	}
	return up
}

// waitFor waits until ok accepts the balancer's status.
func (s *Sandbox) waitFor(ctx context.Context, wrong string, ok func(*ops.Status) bool) error {
	return s.wait(ctx, wrong, func() error {
		status, err := s.client.Status(ctx)
		if err == nil && !ok(status) {
			err = errors.New(wrong)
		}
		return err
	})
}

// wait tries until there is no error, for at most readyTimeout.
func (s *Sandbox) wait(ctx context.Context, wrong string, try func() error) error {
	bound, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-s.balancer.Done():
			text, _ := os.ReadFile(filepath.Join(s.lab.Balancer.Dir, "balancer.log"))
			return fmt.Errorf("the balancer ended: %w\n%s", s.balancer.Wait(), strings.TrimSpace(string(text)))
		case <-bound.Done():
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return fmt.Errorf("%s after %v: %w", wrong, readyTimeout, err)
		case <-tick.C:
		}
	}
}

// proxies are the variables of an environment by which curl and others find a proxy.
var proxies = regexp.MustCompile(`(?i)^(http|https|ftp|all)_proxy=`)

// command returns a command for the client, with the sandbox's commands in its PATH. The client has no route to the
// user's proxy.
func (s *Sandbox) command(path string, arguments ...string) lab.Command {
	environment := append(slices.DeleteFunc(os.Environ(), proxies.MatchString),
		"PATH="+s.path("bin")+string(filepath.ListSeparator)+os.Getenv("PATH"),
		Directory+"="+s.lab.Dir,
		"PS1=client$ ", "HISTFILE=")
	return lab.Command{Path: path, Args: arguments, Env: environment}
}
