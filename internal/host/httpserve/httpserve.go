// SPDX-License-Identifier: Apache-2.0

// Package httpserve has the common parts of our HTTP servers: they end with a context, after the requests in progress,
// and compress answers for clients that accept gzip.
package httpserve

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"time"
)

// Until serves requests on the listener until the context ends, which is no error; then it lets the requests in
// progress finish, for shutdownTimeout at most, and closes the listener.
func Until(ctx context.Context, server *http.Server, listener net.Listener, shutdownTimeout time.Duration) error {
	closed := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(closed)
		bound, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
		defer cancel()
		if server.Shutdown(bound) != nil {
			server.Close()
		}
	})
	err := server.Serve(listener)
	if !stop() {
		<-closed
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// AcceptsGzip reports whether the client of a request accepts an answer compressed by gzip (RFC 9110, section 12.5.3).
func AcceptsGzip(r *http.Request) bool {
	accepted := r.Header.Values("Accept-Encoding")
	for _, coding := range strings.Split(strings.Join(accepted, ","), ",") {
		name, parameters, _ := strings.Cut(coding, ";")
		if strings.TrimSpace(name) == "gzip" {
			return !refusesCoding(parameters)
		}
	}
	return false
}

// refusesCoding reports whether a coding's quality is 0.
func refusesCoding(parameters string) bool {
	value, found := strings.CutPrefix(strings.ReplaceAll(parameters, " ", ""), "q=")
	return found && strings.Trim(value, "0.") == ""
}
