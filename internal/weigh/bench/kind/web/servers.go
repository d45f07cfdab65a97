// SPDX-License-Identifier: Apache-2.0

package web

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

	"github.com/jeoul/jeoul/internal/weigh/bench"
	"github.com/jeoul/jeoul/internal/weigh/bench/probe"
	"github.com/jeoul/jeoul/internal/weigh/bench/subject"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// Bounds of a web server.
const (
	workers = 2
	// spareFiles is the number of files that a worker opens besides connections: logs, listeners, the served file,
	// which is open while it is sent, and an epoll instance.
	spareFiles = 200
	// spread allows for one worker having more connections than the other: only three quarters of what both could hold
	// are counted on.
	spread = 0.75
)

// workerConnections returns the number of connections that one worker can hold.
func workerConnections(limits probe.Limits) int {
	// Half: while it is answered, a connection also has the file open.
	return int(max(limits.OpenFiles, spareFiles+2)-spareFiles) / 2
}

// ServersSkipReason names the limit that keeps the web servers from holding their part of the connections of p.
func ServersSkipReason(p bench.Point, limits probe.Limits) string {
	each := bench.Part(p.Concurrency, p.Form.Lab.Servers, 0)
	if most := int(spread * workers * float64(workerConnections(limits))); each > most {
		return fmt.Sprintf(
			"%d connections per web server: its %d workers can hold %d with the limit of %d open files here",
			each, workers, most, limits.OpenFiles)
	}
	return ""
}

//go:embed nginx.conf.tmpl
var nginxTemplate string

var nginxConfig = template.Must(template.New("nginx.conf").Parse(nginxTemplate))

// nginxValues are the values for the template.
type nginxValues struct {
	Dir, Root string
	// LingerDir is [lingerDir].
	LingerDir string
	Port      int
	// TLSPort is a port of TLS, with the Certificate; 0 means none.
	TLSPort                      int
	Certificate                  string
	OpenFiles, WorkerConnections int
}

// Program is the program of web servers.
var Program = bench.Program{Name: "nginx", Flag: "-v"}

// Servers are the web servers of a laboratory. They serve all subjects.
type Servers struct {
	lab *lab.Lab
	// Processes has the process of each server, in the laboratory's order.
	Processes []*lab.Process
	// tls is the certificate that the servers present over TLS; nil if no load uses TLS.
	tls *certificate
}

// Of returns the web servers of a run's laboratory.
func Of(r *bench.Runner) *Servers { return bench.LabState[Servers](r, "web servers") }

// Start starts nginx on every server, unless it runs already, and waits until each answers. The servers are stopped
// with the laboratory.
func Start(ctx context.Context, r *bench.Runner) (err error) {
	s := Of(r)
	if s.lab != nil {
		return nil
	}
	s.lab = r.Lab
	if encrypted(r.Form) {
		if s.tls, err = newCertificate(r.Lab); err != nil {
			return err
		}
	}
	r.Alive, r.AfterTrial = append(r.Alive, s.running), append(r.AfterTrial, s.emptyLogs)
	start := func(ctx context.Context) error { return s.start(ctx, r.Form.Web.FileBytes, r.Limits) }
	r.Retuned = append(r.Retuned, func(ctx context.Context) error { return errors.Join(s.stop(ctx), start(ctx)) })
	return start(ctx)
}

func (s *Servers) start(ctx context.Context, fileBytes int, limits probe.Limits) error {
	root, err := writeRoot(ctx, s.lab, fileBytes)
	if err != nil {
		return err
	}
	s.Processes = nil
	for _, server := range s.lab.Servers {
		process, err := startNginx(ctx, server, nginxValues{
			Dir: server.Dir, Root: root(server), LingerDir: lingerDir, Port: Port, TLSPort: tlsPort,
			Certificate: s.tls.path(server),
			OpenFiles:   int(limits.OpenFiles), WorkerConnections: workerConnections(limits),
		})
		if err != nil {
			return err
		}
		s.Processes = append(s.Processes, process)
	}
	for i, server := range s.lab.Servers {
		if err := s.waitFor(ctx, i, fileBytes); err != nil {
			return fmt.Errorf("starting nginx on %s: %w%s", server.Name, err, errorLog(server))
		}
	}
	return nil
}

func (s *Servers) stop(ctx context.Context) error {
	for _, process := range s.Processes {
		if err := process.Stop(ctx); err != nil {
			return fmt.Errorf("stopping a web server: %w", err)
		}
	}
	return nil
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
	// -e: without it, nginx would write to the system's log until it has read the configuration.
	process, err := server.Start(context.WithoutCancel(ctx), lab.Command{
		Path: Program.Name, Args: []string{"-e", filepath.Join(server.Dir, "error.log"), "-p", server.Dir, "-c", path}})
	if err != nil {
		return nil, err
	}
	return process, nil
}

// waitFor polls server i until it serves the file.
func (s *Servers) waitFor(ctx context.Context, i, fileBytes int) error {
	server := s.lab.Servers[i]
	address := netip.AddrPortFrom(server.IPv4, Port)
	return bench.PollAlive(ctx, s.Processes[i], func() error {
		return probe.Ask(ctx, server, address, "/"+FileName, fileBytes)
	})
}

// running returns nil while every web server runs.
func (s *Servers) running() error {
	for i, process := range s.Processes {
		select {
		case <-process.Done():
			server := s.lab.Servers[i]
			return fmt.Errorf("the web server on %s has ended: %w%s", server.Name,
				cmp.Or(process.Wait(), errors.New("by itself")), errorLog(server))
		default:
		}
	}
	return nil
}

// errorLog returns the end of a server's error log, after a semicolon.
func errorLog(server *lab.Host) string {
	return bench.LogTail(server, filepath.Join(server.Dir, "error.log"))
}

// emptyLogs empties the access logs. nginx appends to them, and in a long run they would fill the disk.
func (s *Servers) emptyLogs() error {
	return lab.Each(s.lab.Servers, func(server *lab.Host) error {
		return server.Empty(filepath.Join(server.Dir, "access.log"))
	})
}

// Services returns the one service of all web servers.
func Services(l *lab.Lab) []subject.Service {
	return []subject.Service{{Port: Port, Servers: l.Servers}}
}

// tlsServices returns the service of all web servers over TLS.
func tlsServices(l *lab.Lab) []subject.Service {
	return []subject.Service{{Port: tlsPort, PlainPort: Port, Servers: l.Servers}}
}
