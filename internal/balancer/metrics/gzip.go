// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"compress/gzip"
	"io"
	"net/http"
	"sync"

	"github.com/jeoul/jeoul/internal/host/httpserve"
)

// gzipPool has writers that compress as fast as they can: scrapes are so repetitive that the best compression costs
// more than all else of a scrape, and makes little less of them.
var gzipPool = sync.Pool{New: func() any {
	zipper, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed) // a level that there is
	return zipper
}}

// gzipped compresses answers for clients that take gzip, as Prometheus does.
func gzipped(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Add("Vary", "Accept-Encoding")
		if !httpserve.AcceptsGzip(r) {
			next.ServeHTTP(w, r)
			return
		}
		zipper := gzipPool.Get().(*gzip.Writer)
		defer gzipPool.Put(zipper)
		zipper.Reset(w)
		w.Header().Set("Content-Encoding", "gzip")
		next.ServeHTTP(gzipWriter{w, zipper}, r)
		_ = zipper.Close() // the client has gone
	})
}

// gzipWriter is a response writer that compresses the body.
type gzipWriter struct {
	http.ResponseWriter
	body io.Writer
}

func (a gzipWriter) Write(part []byte) (int, error) { return a.body.Write(part) }

// WriteHeader sends the head of the answer, whose length is not that of the body before.
func (a gzipWriter) WriteHeader(code int) {
	a.Header().Del("Content-Length")
	a.ResponseWriter.WriteHeader(code)
}
