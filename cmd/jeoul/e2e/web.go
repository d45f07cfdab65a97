// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"text/template"
	"time"

	"github.com/jeoul/jeoul/internal/test/testenv"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// Hash is the digest by which contents are compared.
type Hash = [sha256.Size]byte

// Files are the files of web servers: one for each size, which is its name.
type Files struct {
	dir    string
	hashes map[int64]Hash
}

// MakeFiles writes files of the given sizes, in bytes, below dir.
func MakeFiles(tb testing.TB, dir string, sizes ...int64) *Files {
	tb.Helper()
	f := &Files{dir: filepath.Join(dir, "files"), hashes: map[int64]Hash{}}
	if err := os.Mkdir(f.dir, 0o755); err != nil {
		tb.Fatal(err)
	}
	for _, size := range sizes {
		hash := sha256.New()
		file, err := os.Create(f.path(size))
		if err == nil {
			// Noise, so that no two parts of a file can stand for each other.
			_, err = io.CopyN(io.MultiWriter(file, hash), rand.NewChaCha8([32]byte{byte(size)}), size)
			err = errors.Join(err, file.Close())
		}
		if err != nil {
			tb.Fatalf("make a file of %d bytes: %v", size, err)
		}
		f.hashes[size] = Hash(hash.Sum(nil))
	}
	return f
}

func (f *Files) path(size int64) string { return filepath.Join(f.dir, strconv.FormatInt(size, 10)) }

// Hash returns the hash of the file of a size.
func (f *Files) Hash(size int64) Hash { return f.hashes[size] }

//go:embed nginx.conf.tmpl
var nginxText string

var nginxTemplate = template.Must(template.New("nginx.conf").Parse(nginxText))

// Web is nginx on a host. It serves Files, accepts uploads, and answers with headers that hold its name and the
// client's address.
type Web struct {
	Process *lab.Process
	host    *lab.Host
	dir     string
}

// StartWeb starts nginx on a host, on ports of all its addresses, and waits until it answers. It ends with the
// laboratory.
func StartWeb(tb testing.TB, host *lab.Host, files *Files, ports ...uint16) *Web {
	tb.Helper()
	program := testenv.Program(tb, "nginx")
	w := &Web{host: host, dir: filepath.Join(host.Dir, "web")}
	var text bytes.Buffer
	err := nginxTemplate.Execute(&text, map[string]any{"Name": host.Name, "Dir": w.dir, "Files": files.dir,
		"Ports": ports})
	if err == nil {
		err = os.Mkdir(w.dir, 0o755)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(w.dir, "nginx.conf"), text.Bytes(), 0o644)
	}
	if err != nil {
		tb.Fatalf("write the configuration of nginx: %v", err)
	}
	// -e: nginx would write to the system's log before it has read the configuration.
	w.Process, err = host.Start(context.WithoutCancel(tb.Context()), lab.Command{Path: program,
		Args: []string{"-e", filepath.Join(w.dir, "error.log"), "-p", w.dir, "-c", filepath.Join(w.dir, "nginx.conf")}})
	if err != nil {
		tb.Fatal(err)
	}
	testenv.Eventually(tb, WaitLimit, "nginx answers on "+host.Name, func() bool {
		_, err := NewBrowser(host).Who(tb.Context(), netip.AddrPortFrom(host.IPv6, ports[len(ports)-1]))
		return err == nil
	})
	return w
}

// Uploaded returns the hash of a file that was uploaded under a name, and
// removes it.
func (w *Web) Uploaded(name string) (Hash, error) {
	path := filepath.Join(w.dir, "uploads", name)
	file, err := os.Open(path)
	if err != nil {
		return Hash{}, fmt.Errorf("look at an upload to %s: %w", w.host.Name, err)
	}
	defer file.Close()
	hash := sha256.New()
	_, err = io.Copy(hash, file)
	return Hash(hash.Sum(nil)), errors.Join(err, os.Remove(path))
}

// Seen is a connection as a server sees it.
type Seen struct {
	// Server is the name of the host that answered.
	Server string
	// Client and Local are the connection's ends, as the server sees them.
	Client, Local netip.AddrPort
}

// Browser sends requests to web servers from inside, on a new connection each time.
type Browser struct{ http.Client }

// NewBrowser returns a Browser that is inside of where. If from is given, its connections come from the first of these
// addresses that has the server's family.
func NewBrowser(where Inside, from ...netip.Addr) *Browser {
	dial := func(ctx context.Context, network, address string) (connection net.Conn, err error) {
		dialer := net.Dialer{Timeout: WaitLimit}
		for _, own := range from {
			if own.Is4() == netip.MustParseAddrPort(address).Addr().Is4() {
				dialer.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(own, 0))
				break
			}
		}
		err = where.Do(func() (err error) {
			connection, err = dialer.DialContext(ctx, network, address)
			return err
		})
		return connection, err
	}
	return &Browser{http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true,
		DisableCompression: true}}}
}

// do makes a request and passes the answer's body to use.
func (b *Browser) do(request *http.Request, want int, use func(io.Reader) error) (Seen, error) {
	response, err := b.Do(request)
	if err != nil {
		return Seen{}, err
	}
	defer response.Body.Close()
	if err := use(response.Body); err != nil {
		return Seen{}, fmt.Errorf("%s %s: read the answer: %w", request.Method, request.URL, err)
	}
	if response.StatusCode != want {
		return Seen{}, fmt.Errorf("%s %s: %s, want %d", request.Method, request.URL, response.Status, want)
	}
	seen := Seen{Server: response.Header.Get("Lab-Server")}
	seen.Client, err = endpoint(response.Header.Get("Lab-Client"), response.Header.Get("Lab-Client-Port"))
	if err != nil {
		return seen, err
	}
	seen.Local, err = endpoint(response.Header.Get("Lab-Local"), response.Header.Get("Lab-Local-Port"))
	return seen, err
}

func endpoint(address, port string) (netip.AddrPort, error) {
	a, err := netip.ParseAddr(address)
	if err != nil {
		return netip.AddrPort{}, err
	}
	p, err := strconv.ParseUint(port, 10, 16)
	return netip.AddrPortFrom(a.Unmap(), uint16(p)), err
}

func url(to netip.AddrPort, path string) string { return "http://" + to.String() + path }

// Who requests only a server's name and the connection's endpoints.
func (b *Browser) Who(ctx context.Context, to netip.AddrPort) (Seen, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url(to, "/who"), nil)
	if err != nil {
		return Seen{}, err
	}
	return b.do(request, http.StatusOK, func(body io.Reader) error {
		_, err := io.Copy(io.Discard, body)
		return err
	})
}

// errStalled ends a transfer that has stalled.
var errStalled = errors.New("nothing has moved for " + WaitLimit.String())

// transfer bounds a transfer of many bytes by its progress, and not by their number, because slow machines need time.
// The context ends when moved was not called for WaitLimit, with the error errStalled.
func transfer(ctx context.Context) (moving context.Context, moved, end func()) {
	moving, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(WaitLimit, func() { cancel(errStalled) })
	return moving, func() { timer.Reset(WaitLimit) }, func() { timer.Stop(); cancel(nil) }
}

// movingReader calls moved whenever something was read.
type movingReader struct {
	io.Reader
	moved func()
}

func (r movingReader) Read(p []byte) (n int, err error) {
	n, err = r.Reader.Read(p)
	if n > 0 {
		r.moved()
	}
	return n, err
}

// Download gets the file of a size and compares its hash. It may take any time, as long as data flow.
func (b *Browser) Download(ctx context.Context, to netip.AddrPort, files *Files, size int64) (Seen, error) {
	ctx, moved, end := transfer(ctx)
	defer end()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url(to, "/"+strconv.FormatInt(size, 10)), nil)
	if err != nil {
		return Seen{}, err
	}
	hash := sha256.New()
	var got int64
	seen, err := b.do(request, http.StatusOK, func(body io.Reader) (err error) {
		got, err = io.Copy(hash, movingReader{body, moved})
		return err
	})
	if err == nil && Hash(hash.Sum(nil)) != files.hashes[size] {
		err = fmt.Errorf("%s: got %d bytes that are not the file's %d", request.URL, got, size)
	}
	return seen, err
}

// Upload sends the file of a size under a name, and compares its hash with that of the server's file; servers are those
// that may have received it. It may take any time, as long as data flow.
func (b *Browser) Upload(ctx context.Context, to netip.AddrPort, files *Files, size int64, name string,
	servers map[string]*Web) (Seen, error) {
	file, err := os.Open(files.path(size))
	if err != nil {
		return Seen{}, err
	}
	defer file.Close()
	ctx, moved, end := transfer(ctx)
	defer end()
	request, err := http.NewRequestWithContext(ctx, http.MethodPut, url(to, "/uploads/"+name),
		movingReader{file, moved})
	if err != nil {
		return Seen{}, err
	}
	request.ContentLength = size
	seen, err := b.do(request, http.StatusCreated, func(body io.Reader) error {
		_, err := io.Copy(io.Discard, body)
		return err
	})
	if err != nil {
		return seen, err
	}
	web := servers[seen.Server]
	if web == nil {
		return seen, fmt.Errorf("%s: answered by %q, which is no server of the service", request.URL, seen.Server)
	}
	hash, err := web.Uploaded(name)
	if err == nil && hash != files.hashes[size] {
		err = fmt.Errorf("%s: %s has received other bytes than the %d sent", request.URL, seen.Server, size)
	}
	return seen, err
}
