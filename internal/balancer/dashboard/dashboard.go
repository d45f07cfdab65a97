// SPDX-License-Identifier: Apache-2.0

// Package dashboard serves the page that shows a running balancer in a browser. The page is files without any figure
// in them: it asks the API for all that it shows, and for all that it changes, with its user's credentials. It is
// written in JavaScript modules that browsers run as they are; uPlot, which draws its charts, is in page/uplot, with
// its licence.
package dashboard

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strings"
	"sync"

	"github.com/jeoul/jeoul/internal/host/httpserve"
)

//go:embed page
var embedded embed.FS

// Folder is the path below which the page's files are served; the page itself is served at "/".
const Folder = "/dashboard/"

// contentSecurityPolicy permits the page its own files and requests to the server that it comes from, and no others.
// There are no scripts and styles in the page's text, and no text becomes markup (trusted types), so that names from a
// configuration stay text.
const contentSecurityPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; manifest-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// file is a file of the page, as it is sent.
type file struct {
	kind           string
	tag            string
	plain, gzipped []byte
}

// files are the files of the page by their path. They are compressed when the first one is asked for.
var files = sync.OnceValues(func() (map[string]file, error) {
	found := map[string]file{}
	err := fs.WalkDir(embedded, "page", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := embedded.ReadFile(name)
		if err != nil {
			return err
		}
		at := Folder + strings.TrimPrefix(name, "page/")
		if at == Folder+"index.html" {
			at = "/"
		}
		zipped, err := compress(text)
		sum := sha256.Sum256(text)
		found[at] = file{kind: kindOf(name), tag: `"` + hex.EncodeToString(sum[:8]) + `"`, plain: text, gzipped: zipped}
		return err
	})
	return found, err
})

// kindOf returns the media type of a file. The host's own table of types must not decide whether a browser runs a
// module.
func kindOf(name string) string {
	switch path.Ext(name) {
	case ".js":
		return "text/javascript; charset=utf-8"
	case ".css":
		return "text/css; charset=utf-8"
	case ".html":
		return "text/html; charset=utf-8"
	case ".svg":
		return "image/svg+xml"
	case "":
		return "text/plain; charset=utf-8"
	}
	return mime.TypeByExtension(path.Ext(name))
}

func compress(text []byte) ([]byte, error) {
	var zipped bytes.Buffer
	w, err := gzip.NewWriterLevel(&zipped, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(text); err != nil {
		return nil, err
	}
	err = w.Close()
	return zipped.Bytes(), err
}

// Handler returns a handler that serves the page and its files, and leaves all other requests to next.
func Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/" && !strings.HasPrefix(r.URL.Path, Folder) {
			next.ServeHTTP(w, r)
			return
		}
		serve(w, r)
	})
}

// serve sends a file of the page.
func serve(w http.ResponseWriter, r *http.Request) {
	all, err := files()
	if err != nil {
		http.Error(w, "the dashboard cannot be read from the program: "+err.Error(), http.StatusInternalServerError)
		return
	}
	f, found := all[r.URL.Path]
	switch {
	case !found:
		http.Error(w, "the dashboard has no such file", http.StatusNotFound)
		return
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "the dashboard is only read: GET or HEAD", http.StatusMethodNotAllowed)
		return
	}
	header := w.Header()
	header.Set("Content-Type", f.kind)
	header.Set("Content-Security-Policy", contentSecurityPolicy)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cross-Origin-Opener-Policy", "same-origin")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	header.Set("Vary", "Accept-Encoding")
	// A browser asks each time whether the file is still the same: after an upgrade the page is of one version.
	header.Set("Cache-Control", "no-cache")
	header.Set("ETag", f.tag)
	if r.Header.Get("If-None-Match") == f.tag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	body := f.plain
	if httpserve.AcceptsGzip(r) {
		header.Set("Content-Encoding", "gzip")
		body = f.gzipped
	}
	if r.Method == http.MethodGet {
		_, _ = w.Write(body) // the client has gone
	}
}
