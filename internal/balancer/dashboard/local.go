// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/jeoul/jeoul/internal/host/httpserve"
)

// shutdownTimeout is how long requests in hand have at the end; a stream of statuses goes on until then.
const shutdownTimeout = 200 * time.Millisecond

// ServeLocal serves the page on a port of 127.0.0.1 (0: a free one) until the context ends, and prints the link to it,
// which has a random token. api answers the page's requests.
func ServeLocal(ctx context.Context, port uint16, out io.Writer, api http.Handler) error {
	at := net.JoinHostPort("127.0.0.1", strconv.Itoa(int(port)))
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", at)
	if err != nil {
		return fmt.Errorf("serve the dashboard on %s: %w; choose another port with --port, or none for a free one", at,
			err)
	}
	token := rand.Text()
	server := &http.Server{Handler: Local(listener.Addr(), token, api), ReadHeaderTimeout: 5 * time.Second,
		IdleTimeout: time.Minute}
	fmt.Fprintf(out, "http://%s/#token=%s\n", listener.Addr(), token)
	return httpserve.Until(ctx, server, listener, shutdownTimeout)
}

// Local returns a handler that serves the page at an address of this host to one user: the page itself to everybody,
// and the answers of next (the API) only to requests that bear the token. Programs of other users reach the address,
// too, and so do pages of other sites in the user's browser, by any name that they make resolve to it (DNS rebinding):
// requests for another host name, from another origin or without the token are refused, and no cookie stands for the
// token.
func Local(address net.Addr, token string, next http.Handler) http.Handler {
	wanted := sha256.Sum256([]byte(token))
	_, port, _ := net.SplitHostPort(address.String())
	hosts := map[string]bool{address.String(): true, net.JoinHostPort("localhost", port): true}
	guarded := http.NewCrossOriginProtection().Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		scheme, text, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		got := sha256.Sum256([]byte(strings.TrimSpace(text)))
		if !strings.EqualFold(scheme, "Bearer") || subtle.ConstantTimeCompare(got[:], wanted[:]) != 1 {
			writeProblem(w, http.StatusUnauthorized,
				"the token of `jeoul dashboard` is needed: open the link that the command has printed")
			return
		}
		next.ServeHTTP(w, r)
	}))
	page := Handler(guarded)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !hosts[r.Host] {
			writeProblem(w, http.StatusMisdirectedRequest, "this is not "+r.Host+
				"; open the link that `jeoul dashboard` has printed")
			return
		}
		page.ServeHTTP(w, r)
	})
}

// writeProblem answers with a problem (RFC 9457), as the API does.
func writeProblem(w http.ResponseWriter, code int, detail string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(code)
	// the client has gone
	_ = json.NewEncoder(w).Encode(map[string]any{"title": http.StatusText(code), "status": code, "detail": detail})
}
