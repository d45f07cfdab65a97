// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"text/template"
	"time"

	"github.com/jeoul/jeoul/internal/weigh/bench/probe"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// The service that is weighed.
const (
	servicePort = 80
	// fileName is its name in experiment 1.
	fileName = "dummy_file"
)

// Bounds of a web server.
const (
	webWorkers = 2
	// webSpareFiles is what a worker opens besides connections: logs, listeners,
	// the file served, which is open while it is sent, and an epoll instance.
	webSpareFiles = 200
	// webSpread allows for one worker taking more of the connections than the
	// other: three quarters of what both could hold are counted on.
	webSpread = 0.75
)

// webWorkerConnections is what one worker can hold.
func webWorkerConnections(limits probe.Limits) int {
	// Half: while it answers, a connection has the file open besides.
	return int(max(limits.OpenFiles, webSpareFiles+2)-webSpareFiles) / 2
}

// webObstacle says what keeps the web servers from holding their part of p.
func webObstacle(p Point, limits probe.Limits) string {
	each := part(p.Concurrency, p.Form.Lab.Servers, 0)
	if most := int(webSpread * webWorkers * float64(webWorkerConnections(limits))); each > most {
		return fmt.Sprintf(
			"%d connections per web server: its %d workers can hold %d with the limit of %d open files here",
			each, webWorkers, most, limits.OpenFiles)
	}
	return ""
}

//go:embed nginx.conf.tmpl
var nginxTemplate string

var nginxConfig = template.Must(template.New("nginx.conf").Parse(nginxTemplate))

// nginxValues are what the template needs.
type nginxValues struct {
	Dir, Root string
	// PatientDir is [patientDir].
	PatientDir string
	Port       int
	// TLSPort is one of TLS, with the Certificate; 0 for none.
	TLSPort                      int
	Certificate                  string
	OpenFiles, WorkerConnections int
}

// web is the web servers of a laboratory, which serve all subjects.
type web struct {
	lab       *lab.Lab
	processes []*lab.Process
}

// startWeb starts nginx on every server and waits until each answers. They are
// stopped with the laboratory.
func startWeb(ctx context.Context, l *lab.Lab, fileBytes int, limits probe.Limits, shown *certificate) (*web, error) {
	root, err := writeRoot(ctx, l, fileBytes)
	if err != nil {
		return nil, err
	}
	w := &web{lab: l}
	for _, server := range l.Servers {
		process, err := startNginx(ctx, server, nginxValues{
			Dir: server.Dir, Root: root(server), PatientDir: patientDir, Port: servicePort, TLSPort: tlsPort,
			Certificate: shown.path(server),
			OpenFiles:   int(limits.OpenFiles), WorkerConnections: webWorkerConnections(limits),
		})
		if err != nil {
			return nil, err
		}
		w.processes = append(w.processes, process)
	}
	for i, server := range l.Servers {
		if err := w.waitFor(ctx, i, fileBytes); err != nil {
			return nil, fmt.Errorf("starting nginx on %s: %w%s", server.Name, err, errorLog(server))
		}
	}
	return w, nil
}

func startNginx(ctx context.Context, server *lab.Host, values nginxValues) (*lab.Process, error) {
	var text bytes.Buffer
	if err := nginxConfig.Execute(&text, values); err != nil {
		return nil, fmt.Errorf("writing nginx's configuration: %w", err)
	}
	path := filepath.Join(server.Dir, "nginx.conf")
	if err := server.WriteFile(path, text.Bytes()); err != nil {
		return nil, fmt.Errorf("writing nginx's configuration: %w", err)
	}
	// -e: before it has read the configuration, it would write to the system's log.
	process, err := server.Start(context.WithoutCancel(ctx), lab.Command{
		Path: "nginx", Args: []string{"-e", filepath.Join(server.Dir, "error.log"), "-p", server.Dir, "-c", path}})
	if err != nil {
		return nil, err
	}
	return process, nil
}

// webBound is how long a web server may take to answer.
const webBound = 30 * time.Second

// waitFor polls server i until it serves the file.
func (w *web) waitFor(ctx context.Context, i, fileBytes int) error {
	server := w.lab.Servers[i]
	address := netip.AddrPortFrom(server.IPv4, servicePort)
	return pollAlive(ctx, w.processes[i], func() error {
		return probe.Ask(ctx, server, address, "/"+fileName, fileBytes)
	})
}

// giveUp tells poll that trying again is no use.
type giveUp struct{ error }

func (e giveUp) Unwrap() error { return e.error }

// givesUp says whether err is, or wraps, a giveUp.
func givesUp(err error) bool {
	var e giveUp
	return errors.As(err, &e)
}

// poll calls try every few milliseconds until it returns nil or a giveUp, ctx
// ends, or bound is over; the error is then try's last.
func poll(ctx context.Context, bound time.Duration, try func() error) error {
	limit := time.NewTimer(bound)
	defer limit.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		err := try()
		if err == nil || givesUp(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-limit.C:
			return fmt.Errorf("not within %v: %w", bound, err)
		case <-tick.C:
		}
	}
}

// running returns nil if every web server still runs.
func (w *web) running() error {
	for i, process := range w.processes {
		select {
		case <-process.Done():
			server := w.lab.Servers[i]
			return fmt.Errorf("the web server on %s has ended: %w%s", server.Name,
				cmp.Or(process.Wait(), errors.New("by itself")), errorLog(server))
		default:
		}
	}
	return nil
}

// pollAlive is poll for a server's process, with webBound; it gives up when that ends.
func pollAlive(ctx context.Context, process *lab.Process, try func() error) error {
	return poll(ctx, webBound, func() error {
		select {
		case <-process.Done():
			return giveUp{cmp.Or(process.Wait(), errors.New("it ended by itself"))}
		default:
			return try()
		}
	})
}

// errorLog returns the end of a server's error log behind a semicolon.
func errorLog(server *lab.Host) string { return endOf(server, filepath.Join(server.Dir, "error.log")) }

// endOf returns the end of a host's log behind a semicolon; nothing if there is none.
func endOf(host *lab.Host, path string) string {
	const most = 500
	text, err := host.ReadEnd(path, most)
	if err != nil || len(text) == 0 {
		return ""
	}
	return fmt.Sprintf("; the end of its log: %q", bytes.TrimSpace(text))
}

// emptyLogs empties the access logs, which nginx appends to: in a long run they
// would fill the disk.
func (w *web) emptyLogs() error {
	return lab.Each(w.lab.Servers, func(server *lab.Host) error {
		return server.Empty(filepath.Join(server.Dir, "access.log"))
	})
}
