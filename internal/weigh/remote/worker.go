// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/rpc"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jeoul/jeoul/internal/host/openfiles"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// Worker executes the calls of a bench on another machine of its lab. Its exported methods are those of net/rpc.
type Worker struct {
	dir, build string
	ctx        context.Context
	// called has a value after each call.
	called chan struct{}

	mu        sync.Mutex
	local     *lab.LocalMachine
	processes map[int]*process
}

// process is a process that a worker has started.
type process struct {
	*lab.Process
	out, err unread
}

// Serve serves on a connection until that is closed, ctx ends, or no call has come for a minute. Then it ends its
// processes, undoes its changes, and removes dir, which belongs to it. build is the build of this jeoul.
func Serve(ctx context.Context, dir, build string, in io.Reader, out io.WriteCloser) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w := &Worker{dir: dir, build: build, ctx: ctx, called: make(chan struct{}, 1), processes: map[int]*process{}}
	lock, err := lockDir(dir)
	if err != nil {
		return err
	}
	defer lock.Close()
	server := rpc.NewServer()
	if err := server.RegisterName(service, w); err != nil {
		return fmt.Errorf("becoming a worker: %w", err)
	}
	// The server itself returns only when all calls have returned, and some wait for processes.
	requests := &eofReader{Reader: in, ended: make(chan struct{})}
	go server.ServeConn(pipe{requests, out, out.Close})
	w.wait(ctx, requests.ended)
	cancel()
	return errors.Join(w.close(), os.RemoveAll(dir))
}

// eofReader closes ended when there is nothing more to read.
type eofReader struct {
	io.Reader
	once  sync.Once
	ended chan struct{}
}

func (h *eofReader) Read(into []byte) (int, error) {
	n, err := h.Reader.Read(into)
	if err != nil {
		h.once.Do(func() { close(h.ended) })
	}
	return n, err
}

// wait returns when the connection, the context or the timeout ends.
func (w *Worker) wait(ctx context.Context, ended <-chan struct{}) {
	timer := time.NewTimer(silence)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ended:
			return
		case <-timer.C:
			return
		case <-w.called:
			timer.Reset(silence)
		}
	}
}

// noteCall records a call, which restarts the timeout.
func (w *Worker) noteCall() {
	select {
	case w.called <- struct{}{}:
	default:
	}
}

// close releases the machine.
func (w *Worker) close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.local == nil {
		return nil
	}
	return w.local.Close()
}

// host returns the machine as a host, after Begin was called.
func (w *Worker) host() (*lab.Host, error) {
	w.noteCall()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.local == nil {
		return nil, errors.New("the worker was not told to begin")
	}
	return w.local.Host, nil
}

// Begin claims the machine.
func (w *Worker) Begin(args BeginArgs, reply *BeginReply) error {
	w.noteCall()
	w.mu.Lock()
	defer w.mu.Unlock()
	if args.Build != w.build {
		return fmt.Errorf("the worker is jeoul %s, and the bench is %s", w.build, args.Build)
	}
	if w.local != nil {
		return errors.New("the worker has begun already")
	}
	if err := errors.Join(systemPath(), openfiles.Raise()); err != nil {
		return err
	}
	local, err := lab.NewLocalMachine(args.Name, w.dir, lab.Location{Interface: args.Interface, Address: args.IPv4})
	if err != nil {
		return err
	}
	w.local = local
	*reply = BeginReply{Interface: local.Interface, Prefix: local.Prefix, MAC: local.MAC, PATH: os.Getenv("PATH")}
	return nil
}

// systemPath adds the directories of administrators' programs to PATH: the PATH that sshd gives to a command often
// lacks them, and nginx and iptables are there.
func systemPath() error {
	path := os.Getenv("PATH")
	for _, dir := range []string{"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"} {
		if !strings.Contains(":"+path+":", ":"+dir+":") {
			path = strings.TrimPrefix(path+":"+dir, ":")
		}
	}
	return os.Setenv("PATH", path)
}

// Ping shows that both ends are alive.
func (w *Worker) Ping(None, *None) error {
	w.noteCall()
	return nil
}

// Call performs a task.
func (w *Worker) Call(args CallArgs, reply *[]byte) error {
	host, err := w.host()
	if err != nil {
		return err
	}
	*reply, err = lab.Perform(w.ctx, host, args.Task, args.Args)
	return err
}

// Start starts a process.
func (w *Worker) Start(args StartArgs, reply *StartReply) error {
	host, err := w.host()
	if err != nil {
		return err
	}
	p := &process{}
	p.out.changed, p.err.changed = make(chan struct{}, 1), make(chan struct{}, 1)
	command := lab.Command{Path: args.Path, Args: args.Args, Env: args.Env, Dir: args.Dir, CPUs: args.CPUs,
		Session: args.Session}
	if args.Out {
		command.Stdout = &p.out
	}
	if args.Err {
		command.Stderr = &p.err
	}
	// Not bound to the worker's context: the end of the worker stops the remaining processes, in an orderly way.
	if p.Process, err = host.Start(context.Background(), command); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.processes[p.PID()] = p
	*reply = StartReply{ID: p.PID(), PID: p.PID()}
	return nil
}

func (w *Worker) process(id int) (*process, error) {
	w.noteCall()
	w.mu.Lock()
	defer w.mu.Unlock()
	if p := w.processes[id]; p != nil {
		return p, nil
	}
	return nil, fmt.Errorf("the worker has no process %d", id)
}

// Read waits until a process has written something, or ended, and returns that. After the end of the process, the
// worker forgets it.
func (w *Worker) Read(id int, reply *ReadReply) error {
	p, err := w.process(id)
	if err != nil {
		return err
	}
	select {
	case <-p.Done():
		reply.Ended = true
		if err := p.Wait(); err != nil {
			reply.Failed = err.Error()
		}
		w.mu.Lock()
		delete(w.processes, id)
		w.mu.Unlock()
	case <-p.out.changed:
	case <-p.err.changed:
	case <-w.ctx.Done():
		return w.ctx.Err()
	}
	reply.Out, reply.Err = p.out.take(), p.err.take()
	return nil
}

// Signal sends a signal to a process.
func (w *Worker) Signal(args SignalArgs, _ *None) error {
	p, err := w.process(args.ID)
	if err != nil {
		return err
	}
	return p.Process.Signal(syscall.Signal(args.Number))
}

// Stop ends a process, by force if necessary. A process that the worker has forgotten has ended.
func (w *Worker) Stop(id int, _ *None) error {
	p, err := w.process(id)
	if err != nil {
		return nil
	}
	return p.Process.Stop(w.ctx)
}

// unread is a process's output that has not been read yet.
type unread struct {
	mu      sync.Mutex
	kept    []byte
	changed chan struct{}
}

// Write keeps data, as far as there is room.
func (u *unread) Write(data []byte) (int, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.kept = append(u.kept, data[:min(len(data), maxUnread-len(u.kept))]...)
	select {
	case u.changed <- struct{}{}:
	default:
	}
	return len(data), nil
}

func (u *unread) take() []byte {
	u.mu.Lock()
	defer u.mu.Unlock()
	taken := u.kept
	u.kept = nil
	return taken
}
