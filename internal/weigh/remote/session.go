// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/rpc"
	"os/exec"
	"sync"
	"time"

	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// ErrLost means that the connection to a machine is lost, and with it everything that ran there.
var ErrLost = errors.New("the connection to the machine is lost")

// session is a worker on a machine, from the bench's side. It is a lab.Machine.
type session struct {
	host   Host
	dir    string
	ssh    *exec.Cmd
	rpc    *rpc.Client
	stderr capped
	// ended is closed when ssh has ended; stop ends the pings.
	ended chan struct{}
	stop  context.CancelFunc
	pings sync.WaitGroup
}

// open starts the worker that was installed in dir on the host.
func open(h Host, dir string) (*session, error) {
	line := sshCommand(h, dir+"/jeoul bench worker --dir "+dir)
	s := &session{host: h, dir: dir, ssh: exec.Command(line[0], line[1:]...), ended: make(chan struct{})}
	// Ctrl-C at a terminal is for the bench alone: workers end in an orderly way.
	s.ssh.SysProcAttr = ownGroup
	s.ssh.Stderr = &s.stderr
	in, err := s.ssh.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := s.ssh.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := s.ssh.Start(); err != nil {
		return nil, fmt.Errorf("starting ssh: %w", err)
	}
	go func() {
		defer close(s.ended)
		_ = s.ssh.Wait() // its output has the details
	}()
	s.rpc = rpc.NewClient(pipe{out, in, in.Close})
	ctx, cancel := context.WithCancel(context.Background())
	s.stop = cancel
	s.pings.Go(func() { s.ping(ctx) })
	return s, nil
}

// ping shows the worker that the bench is alive.
func (s *session) ping(ctx context.Context) {
	tick := time.NewTicker(pingInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.ended:
			return
		case <-tick.C:
			if s.call(ctx, "Ping", None{}, &None{}) != nil {
				return // the next call to the machine fails
			}
		}
	}
}

// call calls a worker's method.
func (s *session) call(ctx context.Context, method string, args, reply any) error {
	call := s.rpc.Go(service+"."+method, args, reply, make(chan *rpc.Call, 1))
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-call.Done:
	}
	var far rpc.ServerError
	switch {
	case call.Error == nil:
		return nil
	case errors.As(call.Error, &far):
		return errors.New(string(far))
	}
	// The end of the connection is noticed before that of ssh, which has the reason.
	select {
	case <-s.ended:
	case <-time.After(time.Second):
	}
	return fmt.Errorf("%w%s", ErrLost, behind(": ", lastOutput(s.stderr.String())))
}

// Call implements lab.Machine.
func (s *session) Call(ctx context.Context, task string, args []byte) ([]byte, error) {
	var reply []byte
	err := s.call(ctx, "Call", CallArgs{task, args}, &reply)
	return reply, err
}

// Start implements lab.Machine.
func (s *session) Start(ctx context.Context, c lab.Command) (lab.RemoteProcess, error) {
	args := StartArgs{Path: c.Path, Args: c.Args, Env: c.Env, Dir: c.Dir, CPUs: c.CPUs, Session: c.Session,
		Out: c.Stdout != nil, Err: c.Stderr != nil}
	var reply StartReply
	if err := s.call(ctx, "Start", args, &reply); err != nil {
		return nil, err
	}
	p := &remoteProcess{session: s, id: reply.ID, pid: reply.PID, done: make(chan struct{})}
	go p.follow(c)
	return p, nil
}

// endTimeout is how long a worker may take to end the processes that it started.
const endTimeout = 30 * time.Second

// close makes the worker end, and waits until it has.
func (s *session) close() error {
	s.stop()
	s.pings.Wait()
	_ = s.rpc.Close() // closes the worker's standard input; closing again does nothing
	timer := time.NewTimer(endTimeout)
	defer timer.Stop()
	select {
	case <-s.ended:
	case <-timer.C:
		_ = s.ssh.Process.Kill()
		<-s.ended
		return fmt.Errorf("%s: its worker did not end within %v; it will when it notices that it is alone",
			s.host.Name, endTimeout)
	}
	if code := s.ssh.ProcessState.ExitCode(); code != 0 {
		return fmt.Errorf("%s: its worker ended badly%s", s.host.Name, behind(": ", lastOutput(s.stderr.String())))
	}
	return nil
}

// remoteProcess is a process on a machine. It is a lab.RemoteProcess.
type remoteProcess struct {
	session *session
	id, pid int
	done    chan struct{}
	err     error
}

// follow copies the process's output to its writers until the process ends.
func (p *remoteProcess) follow(c lab.Command) {
	defer close(p.done)
	for {
		var reply ReadReply
		if err := p.session.call(context.Background(), "Read", p.id, &reply); err != nil {
			p.err = err
			return
		}
		if c.Stdout != nil {
			_, _ = c.Stdout.Write(reply.Out) // a caller's buffer
		}
		if c.Stderr != nil {
			_, _ = c.Stderr.Write(reply.Err)
		}
		if reply.Ended {
			if reply.Failed != "" {
				p.err = errors.New(reply.Failed)
			}
			return
		}
	}
}

func (p *remoteProcess) PID() int              { return p.pid }
func (p *remoteProcess) Done() <-chan struct{} { return p.done }

func (p *remoteProcess) Wait() error {
	<-p.done
	return p.err
}

func (p *remoteProcess) Signal(number int) error {
	return p.session.call(context.Background(), "Signal", SignalArgs{p.id, number}, &None{})
}

// Stop does not end with ctx before the far end has tried to stop the process: a process that stayed there would
// disturb the next one.
func (p *remoteProcess) Stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	err := p.session.call(ctx, "Stop", p.id, &None{})
	if errors.Is(err, ErrLost) {
		return nil // its worker ends the processes that it started
	}
	if err == nil {
		select {
		case <-p.done:
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	return err
}

// capped keeps the end of the text that is written to it.
type capped struct {
	mu   sync.Mutex
	kept bytes.Buffer
}

const maxSaid = 4 << 10

func (c *capped) Write(data []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.kept.Write(data)
	if extra := c.kept.Len() - maxSaid; extra > 0 {
		c.kept.Next(extra)
	}
	return len(data), nil
}

func (c *capped) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.kept.String()
}
