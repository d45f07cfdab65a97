// SPDX-License-Identifier: Apache-2.0

// Package httpserve ends an HTTP server with a context, after the requests in hand.
package httpserve

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"
)

// Until answers requests on the listener until the context ends, which is no error; then it
// lets the requests in hand finish, for as long as farewell, and closes the listener.
func Until(ctx context.Context, server *http.Server, listener net.Listener, farewell time.Duration) error {
	closed := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(closed)
		bound, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewell)
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
