// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"compress/gzip"
	"io"
	"net/http"
	"sync"

	"github.com/jeoul/jeoul/internal/host/httpserve"
)

// zippers compress as fast as they can: scrapes are so repetitive that the best compression costs more than all else of
// a scrape, and makes little less of them.
var zippers = sync.Pool{New: func() any {
	zipper, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed) // a level that there is
	return zipper
}}

// zipped compresses answers for clients that take gzip, as Prometheus does.
func zipped(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Add("Vary", "Accept-Encoding")
		if !httpserve.AcceptsGzip(r) {
			next.ServeHTTP(w, r)
			return
		}
		zipper := zippers.Get().(*gzip.Writer)
		defer zippers.Put(zipper)
		zipper.Reset(w)
		w.Header().Set("Content-Encoding", "gzip")
		next.ServeHTTP(zippedAnswer{w, zipper}, r)
		_ = zipper.Close() // the client has gone
	})
}

// zippedAnswer is an answer whose body is compressed.
type zippedAnswer struct {
	http.ResponseWriter
	body io.Writer
}

func (a zippedAnswer) Write(part []byte) (int, error) { return a.body.Write(part) }

// WriteHeader sends the head of the answer, whose length is not that of the body before.
func (a zippedAnswer) WriteHeader(code int) {
	a.Header().Del("Content-Length")
	a.ResponseWriter.WriteHeader(code)
}
