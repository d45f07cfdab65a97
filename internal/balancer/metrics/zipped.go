// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"compress/gzip"
	"io"
	"net/http"
	"strings"
	"sync"
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
		if !takesGzip(r.Header.Values("Accept-Encoding")) {
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

// takesGzip says whether a client takes gzip, by what it accepts.
func takesGzip(accepted []string) bool {
	for _, coding := range strings.Split(strings.Join(accepted, ","), ",") {
		name, parameters, _ := strings.Cut(coding, ";")
		if strings.TrimSpace(name) == "gzip" {
			return !refusesCoding(parameters)
		}
	}
	return false
}

// refusesCoding says whether a coding's quality is 0.
func refusesCoding(parameters string) bool {
	value, found := strings.CutPrefix(strings.ReplaceAll(parameters, " ", ""), "q=")
	return found && strings.Trim(value, "0.") == ""
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
