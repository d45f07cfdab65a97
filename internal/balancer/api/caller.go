// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os/user"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/balancer/api/access"
	"github.com/jeoul/jeoul/internal/balancer/ops"
)

// caller is the client of a request.
type caller struct {
	// user is the user of a process on this host; nil: the caller is client.
	user   *unix.Ucred
	client access.Client
}

// callerKey is the key of the caller in a context.
type callerKey struct{}

// withCaller records the credentials that the kernel gives for the other end of a unix socket (unix(7), SO_PEERCRED),
// which no client can forge. The socket's mode has authorised it, so it may do everything.
func withCaller(ctx context.Context, c net.Conn) context.Context {
	if held, ok := c.(*limitedConn); ok {
		c = held.Conn
	}
	socket, ok := c.(*net.UnixConn)
	if !ok {
		return ctx
	}
	who := caller{client: access.Client{Name: "unknown", Role: ops.RoleConfigure}}
	if raw, err := socket.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) {
			if user, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
				who.user = user
			}
		})
	}
	return context.WithValue(ctx, callerKey{}, who)
}

// callerOf returns the caller of a request; without one, a caller without a role.
func callerOf(ctx context.Context) caller {
	who, _ := ctx.Value(callerKey{}).(caller)
	return who
}

// name is for people to read, as in "root", "token ci" or "certificate CN=ci".
func (c caller) name() string {
	if c.user == nil {
		return c.client.Name
	}
	if known, err := user.LookupId(strconv.Itoa(int(c.user.Uid))); err == nil {
		return known.Username
	}
	return fmt.Sprintf("uid %d", c.user.Uid)
}

// authenticate passes on requests of clients that the guard knows, with their roles, whose contexts end when that
// changes; denied (nil: no call) is called for others.
func authenticate(next http.Handler, guard *access.Guard, denied func(from string, why error)) http.Handler {
	origins := http.NewCrossOriginProtection() // browsers send a client certificate from any page
	origins.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		newProblem(http.StatusForbidden, "the request comes from a page of another site").write(w)
	}))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token := bearerToken(r)
		client, err := guard.Client(token, r.TLS.PeerCertificates)
		if err != nil {
			if denied != nil && !asksForLogin(r) {
				from, _, _ := net.SplitHostPort(r.RemoteAddr)
				denied(from, err)
			}
			p := problemOf(err)
			if p.Status == http.StatusUnauthorized {
				w.Header().Set("WWW-Authenticate", `Bearer realm="jeoul"`)
			}
			w.Header().Set("Connection", "close") // its body, if any, is not to be read
			p.write(w)
			return
		}
		ctx, cancel := guard.Bind(r.Context(), client, token, r.TLS.PeerCertificates)
		defer cancel()
		origins.Handler(next).ServeHTTP(w, r.WithContext(context.WithValue(ctx, callerKey{}, caller{client: client})))
	})
}

// asksForLogin reports whether a request is the dashboard's test of whether the browser has a client certificate, which
// is not logged as a denial.
func asksForLogin(r *http.Request) bool {
	return r.URL.Path == sessionPath && r.Header.Get("Authorization") == "" && len(r.TLS.PeerCertificates) == 0
}

// bearerToken returns the token of a request (RFC 6750); "" if it has none.
func bearerToken(r *http.Request) string {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// requireRole refuses callers of a lesser role than a request needs.
func requireRole(roleFor func(huma.Context) ops.Role) func(huma.Context, func(huma.Context)) {
	return func(ctx huma.Context, next func(huma.Context)) {
		who, role := callerOf(ctx.Context()), roleFor(ctx)
		if who.client.Role.Includes(role) {
			next(ctx)
			return
		}
		_, w := humago.Unwrap(ctx)
		w.Header().Set("Connection", "close")
		newProblem(http.StatusForbidden,
			fmt.Sprintf("%s has the role %s, and this needs %s; use other credentials, or change the role where it is configured",
				who.name(), who.client.Role, role)).write(w)
	}
}

// The credentials in the API's description: the unix socket needs none of these.
var (
	credentials     = []map[string][]string{{"token": {}}, {"certificate": {}}}
	securitySchemes = map[string]*huma.SecurityScheme{
		"token":       {Type: "http", Scheme: "bearer", Description: "A token of the file that api.tokens names."},
		"certificate": {Type: "mutualTLS", Description: "A client certificate with a subject that api.clients names."},
	}
)
