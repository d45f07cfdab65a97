// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/jeoul/jeoul/internal/weigh/lab"

	"github.com/jeoul/jeoul/internal/weigh/bench/subject"
)

// changingHAProxy is HAProxy in TCP mode with servers that change.
type changingHAProxy struct {
	*runningProxy
	// path is the path of its configuration, and write writes the configuration for services.
	path   string
	socket string
	write  func([]subject.Service) error
}

// Change sets weights by the Runtime API if nothing else changed (management guide, section 9.3: set server), and
// starts a new process with a new file if servers are added or removed. The file also has weights that were set, so
// that a later process starts with them.
func (r *changingHAProxy) Change(ctx context.Context, services []subject.Service) error {
	before := r.setup.Services
	if err := r.write(services); err != nil {
		return err
	}
	r.setup = r.setup.With(services)
	if !subject.SameServers(services, before) {
		return r.Reload(ctx)
	}
	for i, service := range services {
		for _, server := range service.Servers {
			weight := service.Weight(server)
			if weight == before[i].Weight(server) {
				continue
			}
			if err := r.setWeight(ctx, fmt.Sprintf("service%d/%s", i, server.Name), weight); err != nil {
				return err
			}
		}
	}
	return nil
}

// setWeight sets a server's weight, or drains the server.
func (r *changingHAProxy) setWeight(ctx context.Context, server string, weight int) error {
	commands := []string{"set server " + server + " state drain"}
	if weight > 0 {
		commands = []string{"set server " + server + " state ready",
			fmt.Sprintf("set server %s weight %d", server, weight)}
	}
	for _, command := range commands {
		reply, err := r.ask(ctx, command)
		if err != nil {
			return err
		}
		// HAProxy answers such a command with an empty line, or with an error.
		if reply = strings.TrimSpace(reply); reply != "" {
			return fmt.Errorf("HAProxy refused %q: %s", command, reply)
		}
	}
	return nil
}

// Reload starts a new process that takes the listening sockets from the old one (-x, "expose-fd listeners"), and tells
// the old one to finish (-sf): section 4 of the management guide.
func (r *changingHAProxy) Reload(ctx context.Context) error {
	next, err := subject.StartProgram(ctx, r.setup.Lab.Balancer, "haproxy", "-db", "-f", r.path,
		"-x", r.socket, "-sf", strconv.Itoa(r.process.Process.PID()))
	if err != nil {
		return err
	}
	r.retired, r.process = append(r.alive(), r.process), next
	return next.WaitUntil(ctx, func() error { return r.serves(ctx, next.Process.PID()) })
}

// serves returns nil if the process that answers at the socket has the given PID.
func (r *changingHAProxy) serves(ctx context.Context, pid int) error {
	reply, err := r.ask(ctx, "show info")
	if err != nil {
		return err
	}
	if !strings.Contains(reply, fmt.Sprintf("\nPid: %d\n", pid)) {
		return errors.New("the old process still answers")
	}
	return nil
}

// Serves asks the Runtime API for the servers' state (management guide, section 9.3: show servers state). Without
// checks, HAProxy has no state of them.
func (r *changingHAProxy) Serves(ctx context.Context, server *lab.Host) (bool, error) {
	reply, err := r.ask(ctx, "show servers state")
	if err != nil {
		return false, err
	}
	return haproxyRuns(reply, server.Name)
}

// haproxyRunning is the operational state (srv_op_state) of a server that gets traffic.
const haproxyRunning = "2"

// haproxyRuns reads a server's operational state, the sixth field of its lines, and reports whether the server runs in
// all services. It returns an error if the server runs only in some, or is in none.
func haproxyRuns(reply, server string) (bool, error) {
	runs, not := 0, 0
	for line := range strings.Lines(reply) {
		fields := strings.Fields(line)
		switch {
		case len(fields) < 6 || fields[3] != server:
		case fields[5] == haproxyRunning:
			runs++
		default:
			not++
		}
	}
	if (runs == 0) == (not == 0) {
		return false, fmt.Errorf("%s runs in %d services of HAProxy's and does not in %d", server, runs, not)
	}
	return runs > 0, nil
}

// runtimeTimeout is how long HAProxy may take to answer a command.
const runtimeTimeout = 5 * time.Second

// ask sends a command to the Runtime API and returns the answer.
func (r *changingHAProxy) ask(ctx context.Context, command string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, runtimeTimeout)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "unix", r.socket)
	if err != nil {
		return "", fmt.Errorf("asking HAProxy %q: %w", command, err)
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	err = conn.SetDeadline(deadline)
	if err == nil {
		_, err = io.WriteString(conn, command+"\n")
	}
	if err != nil {
		return "", fmt.Errorf("asking HAProxy %q: %w", command, err)
	}
	reply, err := io.ReadAll(bufio.NewReader(conn))
	if err != nil {
		return "", fmt.Errorf("asking HAProxy %q: %w", command, err)
	}
	return string(reply), nil
}

func (*changingHAProxy) ChangeMethod() string {
	return "servers come and go by a new process that takes over the listening sockets (-x, expose-fd listeners) and tells the old one to finish (-sf); " +
		"weights and draining are set by the Runtime API; an old process lives until its last connection ends (no hard-stop-after), with what it was configured with"
}

// PIDs returns the process and the processes that it has replaced.
func (r *changingHAProxy) PIDs() []int {
	r.retired = r.alive()
	pids := []int{r.process.Process.PID()}
	for _, p := range r.retired {
		pids = append(pids, p.Process.PID())
	}
	return pids
}
