// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jeoul/jeoul/internal/host/httpserve"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// Serve is a web server of the sandbox: it answers every request with its name and the client's address, until the
// context ends.
func Serve(ctx context.Context, name string) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", ":"+strconv.Itoa(webPort))
	if err != nil {
		return err
	}
	answer := func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "%s answers %s\n", name, r.RemoteAddr) }
	return httpserve.Until(ctx, &http.Server{Handler: http.HandlerFunc(answer), ReadHeaderTimeout: 10 * time.Second},
		listener, time.Second)
}

// webs are the web servers. Commands on the client have them killed and started through a socket in the sandbox's
// directory.
type webs struct {
	sandbox *Sandbox
	socket  net.Listener
	mu      sync.Mutex
	running map[string]*lab.Process
	closed  bool
}

// start starts the web server of a name, unless it runs.
func (w *webs) start(name string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	host, err := w.host(name)
	if err != nil {
		return err
	}
	if process := w.running[name]; process != nil {
		select {
		case <-process.Done():
		default:
			return fmt.Errorf("%s runs already", name)
		}
	}
	if w.closed {
		return errors.New("the sandbox is being closed")
	}
	process, err := w.sandbox.start(host, "web", "sandbox", "serve", name)
	if err == nil {
		w.running[name] = process
	}
	return err
}

// kill kills the web server of a name.
func (w *webs) kill(name string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, err := w.host(name); err != nil {
		return err
	}
	return w.running[name].Kill(context.Background())
}

func (w *webs) host(name string) (*lab.Host, error) {
	all := w.sandbox.lab.Servers
	i := slices.IndexFunc(all, func(h *lab.Host) bool { return h.Name == name })
	if i < 0 {
		return nil, fmt.Errorf("there is no web server %q; there are %s to %s", name, all[0].Name, all[len(all)-1].Name)
	}
	return all[i], nil
}

// controlSocket is the socket's name in the sandbox's directory.
const controlSocket = "control.sock"

// listen executes the commands of SendOrder, until close.
func (w *webs) listen(ctx context.Context) (err error) {
	if w.socket, err = (&net.ListenConfig{}).Listen(ctx, "unix", w.sandbox.path(controlSocket)); err != nil {
		return err
	}
	go func() {
		for {
			connection, err := w.socket.Accept()
			if err != nil {
				return
			}
			go w.execute(connection)
		}
	}()
	return nil
}

// execute reads a command and answers with its error, or with nothing.
func (w *webs) execute(connection net.Conn) {
	defer connection.Close()
	line, _ := bufio.NewReader(io.LimitReader(connection, 100)).ReadString('\n')
	verb, name, _ := strings.Cut(strings.TrimSpace(line), " ")
	do := map[string]func(string) error{"crash": w.kill, "revive": w.start}[verb]
	if do == nil {
		return
	}
	if err := do(name); err != nil {
		fmt.Fprint(connection, err)
	}
}

// close prevents further web servers from being started.
func (w *webs) close() error {
	if w == nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	if w.socket == nil {
		return nil
	}
	return w.socket.Close()
}

// SendOrder makes the sandbox of a directory crash or revive a web server.
func SendOrder(ctx context.Context, dir, verb, name string) error {
	connection, err := new(net.Dialer).DialContext(ctx, "unix", filepath.Join(dir, controlSocket))
	if err != nil {
		return fmt.Errorf("ask the sandbox: %w", err)
	}
	defer connection.Close()
	fmt.Fprintln(connection, verb, name)
	wrong, err := io.ReadAll(connection)
	if err == nil && len(wrong) > 0 {
		err = errors.New(string(wrong))
	}
	return err
}
